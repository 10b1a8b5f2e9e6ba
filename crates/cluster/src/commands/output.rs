//! Passes on the output of commands, as it is or with a prefix for each line.

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
    to: Sink,
    out: Vec<u8>,
    err: Vec<u8>,
}

/// Where output goes.
enum Sink {
    /// This process's two streams.
    Ours,
    /// Both to one list.
    #[cfg(any(test, feature = "fuzz"))]
    List(std::rc::Rc<std::cell::RefCell<Vec<u8>>>),
}

impl Output {
    /// With a label, which precedes each line.
    pub fn new(label: Option<&str>) -> Output {
        let prefix = label.map(|label| format!("{label}: "));
        Output { prefix, to: Sink::Ours, out: Vec::new(), err: Vec::new() }
    }

    /// Output that is kept in a list.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn to(label: Option<&str>, list: &std::rc::Rc<std::cell::RefCell<Vec<u8>>>) -> Output {
        Output { to: Sink::List(list.clone()), ..Output::new(label) }
    }

    /// Passes on output of the command.
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let (buffer, prefix) = match stream {
            Stream::Out => (&mut self.out, &self.prefix),
            Stream::Err => (&mut self.err, &self.prefix),
        };
        match prefix {
            None => self.to.write(stream, bytes),
            Some(prefix) => self.to.write(stream, &whole_lines(buffer, prefix, bytes)),
        }
    }

    /// The command has ended: passes on incomplete lines.
    pub fn end(&mut self) -> io::Result<()> {
        for stream in [Stream::Out, Stream::Err] {
            let buffer = if stream == Stream::Out { &self.out } else { &self.err };
            if !buffer.is_empty() {
                self.write(stream, b"\n")?;
            }
        }
        Ok(())
    }
}

impl Sink {
    fn write(&self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match (self, stream) {
            (Sink::Ours, Stream::Out) => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            (Sink::Ours, Stream::Err) => io::stderr().lock().write_all(bytes),
            #[cfg(any(test, feature = "fuzz"))]
            (Sink::List(list), _) => {
                list.borrow_mut().extend_from_slice(bytes);
                Ok(())
            }
        }
    }
}

/// The complete lines, each with the prefix; the rest stays in `buffer`.
pub(crate) fn whole_lines(buffer: &mut Vec<u8>, prefix: &str, bytes: &[u8]) -> Vec<u8> {
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
