//! The output of a command, passed on as it is or with a prefix for each line.

use std::io::{self, Write};

/// One of a command's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Longer lines are split.
const MAX_LINE: usize = 64 * 1024;

/// The output of one command.
pub struct Output {
    prefix: Option<String>,
    /// The incomplete line of each stream, and the destination of its output.
    streams: [(Vec<u8>, Box<dyn Write>); 2],
}

impl Output {
    /// Output to these two. A label precedes each line.
    pub fn new(label: Option<&str>, streams: [Box<dyn Write>; 2]) -> Output {
        let prefix = label.map(|label| format!("{label}: "));
        Output { prefix, streams: streams.map(|to| (Vec::new(), to)) }
    }

    /// Passes on output of the command.
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let (buffer, to) = &mut self.streams[stream as usize];
        match &self.prefix {
            None => to.write_all(bytes)?,
            Some(prefix) => to.write_all(&whole_lines(buffer, prefix, bytes))?,
        }
        to.flush()
    }

    /// The command has ended: passes on incomplete lines.
    pub fn end(&mut self) -> io::Result<()> {
        for stream in [Stream::Out, Stream::Err] {
            if !self.streams[stream as usize].0.is_empty() {
                self.write(stream, b"\n")?;
            }
        }
        Ok(())
    }
}

/// The complete lines, each with the prefix; the rest stays in `buffer`.
pub fn whole_lines(buffer: &mut Vec<u8>, prefix: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 64);
    for piece in bytes.split_inclusive(|&b| b == b'\n') {
        buffer.extend_from_slice(piece);
        let whole = buffer.ends_with(b"\n");
        if whole || buffer.len() >= MAX_LINE {
            out.extend_from_slice(prefix.as_bytes());
            out.append(buffer);
            if !whole {
                out.push(b'\n');
            }
        }
    }
    out
}

#[cfg(any(test, feature = "fuzz"))]
pub mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together() {
        let mut buffer = Vec::new();
        assert_eq!(whole_lines(&mut buffer, "vm0: ", b"one\ntw"), b"vm0: one\n");
        assert_eq!(whole_lines(&mut buffer, "vm0: ", b"o\n\nx"), b"vm0: two\nvm0: \n");
        assert_eq!(buffer, b"x");
    }

    #[test]
    fn endless_lines_are_cut() {
        let mut buffer = Vec::new();
        let got = whole_lines(&mut buffer, "p: ", &vec![b'x'; MAX_LINE]);
        assert_eq!(got.len(), MAX_LINE + 4);
        assert!(buffer.is_empty());
    }
}
