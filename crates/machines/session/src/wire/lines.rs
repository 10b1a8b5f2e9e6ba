//! The lines of a stream.

/// The error for a line that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// The lines of a stream, put together from pieces.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// The lines that these bytes complete, none of which is longer than `most`.
    pub fn push(&mut self, bytes: &[u8], most: usize) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut complete = Vec::new();
        for part in bytes.split_inclusive(|&c| c == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            if self.partial.len() + text.len() > most {
                return Err(TooLong);
            }
            self.partial.extend_from_slice(text);
            if ends {
                complete.push(std::mem::take(&mut self.partial));
            }
        }
        Ok(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces_and_are_limited() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"one\ntw", 4), Ok(vec![b"one".to_vec()]));
        assert_eq!(lines.push(b"o\n\nfour\n", 4), Ok(vec![b"two".to_vec(), vec![], b"four".to_vec()]));
        assert_eq!(lines.push(b"abcd", 4), Ok(vec![]));
        assert_eq!(lines.push(b"e", 4), Err(TooLong));
    }
}
