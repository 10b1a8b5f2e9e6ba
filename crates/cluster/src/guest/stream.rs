//! One command of a session, with its input and output in flight.

use super::command::{RunningCommand, StartError};
use super::terminal;
use crate::wire::ended::Ended;
use crate::wire::frame::{encode, Kind, MAX_DATA, STDIN_WINDOW};
use crate::wire::start::Size;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;

/// One command. It buffers at most a window of input, and no output.
pub struct Stream {
    number: u16,
    body: Body,
    ended: Option<Ended>,
    input: VecDeque<u8>,
    input_ended: bool,
    taken: u32,
}

enum Body {
    /// Why it was not started, as the payload of a frame.
    Refused(Vec<u8>),
    Runs {
        command: Box<RunningCommand>,
        announced: bool,
    },
}

/// The outcome of a command's turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing to do until an event of one of its descriptors.
    Idle,
    /// There may be more output.
    Again,
    /// It has ended, and so has its output.
    Over,
}

impl Stream {
    /// A command that was started, or could not be.
    pub fn new(number: u16, started: Result<RunningCommand, StartError>) -> Stream {
        let body = match started {
            Ok(command) => Body::Runs { command: Box::new(command), announced: false },
            Err(error) => Body::Refused(why(&error)),
        };
        Stream { number, body, ended: None, input: VecDeque::new(), input_ended: false, taken: 0 }
    }

    fn command(&self) -> Option<&RunningCommand> {
        match &self.body {
            Body::Runs { command, .. } => Some(command),
            Body::Refused(_) => None,
        }
    }

    /// The pid of its process, until that has ended.
    pub fn pid(&self) -> Option<i32> {
        self.command().filter(|_| self.ended.is_none()).map(|command| command.pid)
    }

    /// Its process has ended.
    pub fn ended(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }

    /// Descriptors to watch.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.command().map_or(vec![], RunningCommand::descriptors)
    }

    /// Takes input; empty input ends it. False if it exceeds the window.
    pub fn input(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() && !self.input_ended {
            self.input_ended = true;
            let terminal = self.command().and_then(|command| command.terminal.as_ref());
            let last = terminal.map(terminal::end_of_input);
            self.input.extend(last);
        }
        let room = self.input.len() + bytes.len() <= STDIN_WINDOW;
        if room && !self.input_ended {
            self.input.extend(bytes);
        }
        room
    }

    /// Sends it a signal. SIGKILL reaches its descendants too.
    pub fn signal(&self, signal: i32) {
        match self.command() {
            Some(command) if signal == libc::SIGKILL => command.kill(),
            Some(command) if self.ended.is_none() => command.signal(signal),
            _ => (),
        }
    }

    /// The size of its terminal has changed.
    pub fn resize(&self, size: Size) {
        let terminal = self.command().and_then(|command| command.terminal.as_ref());
        // A terminal that nobody has open has no size.
        let _ = terminal.map(|terminal| terminal::resize(terminal, size));
    }

    /// Writes its frames, about one for each of its outputs.
    pub fn turn(&mut self, out: &mut VecDeque<u8>) -> Turn {
        let number = self.number;
        let (command, announced) = match &mut self.body {
            Body::Refused(why) => {
                encode(Kind::Failed, number, why, out);
                return Turn::Over;
            }
            Body::Runs { command, announced } => (command, announced),
        };
        if !std::mem::replace(announced, true) {
            encode(Kind::Started, number, &[], out);
        }
        let terminal = command.terminal.is_some();
        let fed = feed(&mut self.input, &mut command.input);
        self.taken += fed as u32;
        if self.taken > 0 {
            encode(Kind::Taken, number, &self.taken.to_le_bytes(), out);
            self.taken = 0;
        }
        if self.input_ended && self.input.is_empty() && !terminal {
            command.input = None;
        }
        let said = pump(&mut command.output, terminal, |bytes| encode(Kind::Stdout, number, bytes, out))
            | pump(&mut command.errors, terminal, |bytes| encode(Kind::Stderr, number, bytes, out));
        match (said, self.ended) {
            (true, _) => Turn::Again,
            (false, None) => Turn::Idle,
            (false, Some(ended)) => {
                encode(Kind::Exit, number, &ended.to_bytes(), out);
                Turn::Over
            }
        }
    }
}

/// Passes input to a command as far as it reads it. Returns the number of bytes.
fn feed(input: &mut VecDeque<u8>, to: &mut Option<File>) -> usize {
    let mut taken = 0;
    while !input.is_empty() {
        let (head, _) = input.as_slices();
        let len = match to.as_mut().map(|to| to.write(head)) {
            Some(Ok(len)) => len,
            Some(Err(e)) if e.kind() == ErrorKind::WouldBlock => break,
            Some(Err(e)) if e.kind() == ErrorKind::Interrupted => continue,
            // It does not read any more: the rest is discarded, and counts as taken.
            Some(Err(_)) | None => {
                *to = None;
                input.len()
            }
        };
        input.drain(..len);
        taken += len;
    }
    taken
}

/// Passes on what one read returns; false if that is nothing.
fn pump(from: &mut Option<File>, terminal: bool, send: impl FnOnce(&[u8])) -> bool {
    let mut bytes = [0; MAX_DATA];
    let Some(reader) = from else { return false };
    match reader.read(&mut bytes) {
        Ok(len) if len > 0 => {
            send(&bytes[..len]);
            true
        }
        Err(e) if e.kind() == ErrorKind::Interrupted => true,
        Err(e) if e.kind() == ErrorKind::WouldBlock => false,
        // Nobody has the terminal open; that may change.
        Err(_) if terminal => false,
        Ok(_) | Err(_) => {
            *from = None;
            false
        }
    }
}

/// A error as the payload of a frame. It may name a path of any length, so it is truncated.
fn why(error: &StartError) -> Vec<u8> {
    let mut payload = vec![error.code];
    let text = error.message.as_bytes();
    payload.extend_from_slice(&text[..text.len().min(MAX_DATA - 1)]);
    payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::MAX_PAYLOAD;

    #[test]
    fn a_refusal_fits_in_a_frame_whatever_it_names() {
        let message = "could not run x: there is no such command".to_string();
        let short = why(&StartError { code: 127, message: message.clone() });
        assert_eq!(short.split_first(), Some((&127, message.as_bytes())));
        let long = why(&StartError { code: 126, message: "\u{fffd}".repeat(MAX_PAYLOAD / 2) });
        assert_eq!((long[0], long.len()), (126, MAX_DATA));
    }
}
