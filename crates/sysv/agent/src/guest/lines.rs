//! The lines of a channel, put together from pieces.

use super::protocol::MAX_LINE;
use std::collections::VecDeque;

/// The lines of a channel. One that is too long is dropped.
#[derive(Default)]
pub struct Lines {
    complete: VecDeque<Vec<u8>>,
    pub(super) partial: Vec<u8>,
    too_long: bool,
}

/// Most complete lines that wait to be taken. Further ones are dropped: a host waits for a response first.
const MAX_LINES: usize = 16;

impl Lines {
    /// Adds bytes that were read.
    pub fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|&c| c == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            self.too_long |= self.partial.len() + text.len() > MAX_LINE;
            if self.too_long {
                self.partial.clear();
            } else {
                self.partial.extend_from_slice(text);
            }
            if ends {
                let line = std::mem::take(&mut self.partial);
                if !self.too_long && !line.is_empty() && self.complete.len() < MAX_LINES {
                    self.complete.push_back(line);
                }
                self.too_long = false;
            }
        }
    }

    /// The host side was closed: a partial line won't be completed.
    pub fn hang_up(&mut self) {
        self.partial.clear();
        self.too_long = false;
    }

    /// The next complete line.
    #[allow(clippy::should_implement_trait)] // there may be more after the last one
    pub fn next(&mut self) -> Option<Vec<u8>> {
        self.complete.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<String> {
        std::iter::from_fn(|| lines.next()).map(|line| String::from_utf8(line).expect("text")).collect()
    }

    #[test]
    fn lines_come_in_pieces() {
        let mut lines = Lines::default();
        lines.push(b"one\ntw");
        lines.push(b"o\n\n\nthree");
        assert_eq!(all(&mut lines), ["one", "two"]);
        lines.hang_up();
        lines.push(b"four\n");
        assert_eq!(all(&mut lines), ["four"], "the partial line is dropped");
    }

    #[test]
    fn endless_lines_take_no_memory() {
        let mut lines = Lines::default();
        for _ in 0..100 {
            lines.push(&[b'x'; 4096]);
            assert!(lines.partial.len() <= MAX_LINE);
        }
        lines.push(b"\nshort\n");
        assert_eq!(all(&mut lines), ["short"]);
        lines.push(&b"a\n".repeat(1000));
        assert_eq!(all(&mut lines).len(), MAX_LINES);
    }
}
