//! A command of a session, with its input and output in flight.

use super::command::{Cgroup, RunningCommand};
use super::terminal;
use crate::wire::ended::Ended;
use crate::wire::frame::{encode, Kind, MAX_DATA, STDIN_WINDOW};
use crate::wire::message::AgentMessage;
use crate::wire::start::Size;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use vshmem_base::error::{Error, Result};

/// A command of a session. It buffers at most a window of input, and no output.
pub struct Stream {
    number: u16,
    /// The command, or why it was not started.
    body: Result<RunningCommand>,
    /// A notice for its user, which precedes its output.
    notice: Option<String>,
    /// One that follows it.
    last_notice: Option<String>,
    ended: Option<Ended>,
    input: VecDeque<u8>,
    input_ended: bool,
}

/// The outcome of a command's turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// No work until an event of one of its descriptors.
    Idle,
    /// There may be more output.
    Again,
    /// It has ended, and so has its output.
    Over,
}

impl Stream {
    /// A command that was started, or the error why not, and a notice for its user.
    pub fn new(number: u16, body: Result<RunningCommand>, notice: Option<String>) -> Stream {
        Stream {
            number,
            body,
            notice,
            last_notice: None,
            ended: None,
            input: VecDeque::new(),
            input_ended: false,
        }
    }

    fn command(&self) -> Option<&RunningCommand> {
        self.body.as_ref().ok()
    }

    /// The pid of its process, until that has ended.
    pub fn pid(&self) -> Option<i32> {
        self.command().filter(|_| self.ended.is_none()).map(|command| command.pid)
    }

    /// Its process has ended.
    pub fn ended(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }

    /// Has it tell its user something after its output.
    pub fn tell(&mut self, notice: Option<String>) {
        self.last_notice = notice;
    }

    /// The cgroup of the processes that it has left in the background, if they end with the session.
    pub fn into_background(self) -> Option<Cgroup> {
        self.body.ok().and_then(RunningCommand::into_background)
    }

    /// The descriptors to watch.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.command().map_or(vec![], RunningCommand::descriptors)
    }

    /// Queues input; empty input ends it. False if it exceeds the window.
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
            Some(command) if signal == libc::SIGKILL => command.kill(self.ended.is_none()),
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
        let is_raw = self.command().is_some_and(|it| it.terminal.is_some());
        say(self.notice.take(), is_raw, number, out);
        let command = match &mut self.body {
            Err(error) => {
                refusal(error).encode(number, out);
                return Turn::Over;
            }
            Ok(command) => command,
        };
        let terminal = command.terminal.is_some();
        let taken = feed(&mut self.input, &mut command.input);
        if taken > 0 {
            AgentMessage::Taken(taken).encode(number, out);
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
                say(self.last_notice.take(), is_raw, number, out);
                AgentMessage::Ended(ended).encode(number, out);
                Turn::Over
            }
        }
    }
}

/// Writes a notice, if there is one, as a line of standard error. The user's terminal may be raw.
fn say(notice: Option<String>, is_raw: bool, number: u16, out: &mut VecDeque<u8>) {
    if let Some(notice) = notice {
        let notice: String = notice.chars().take(MAX_DATA / 8).collect();
        let end = if is_raw { "\r\n" } else { "\n" };
        encode(Kind::Stderr, number, format!("{notice}{end}").as_bytes(), out);
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

/// The message for a command that was not started. Its reason may name a path of any length, so it is
/// truncated.
fn refusal(error: &Error) -> AgentMessage {
    let why = error.to_string().chars().take(MAX_DATA / 8).collect();
    AgentMessage::Failed { code: error.exit_code(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::{Parser, MAX_PAYLOAD};

    #[test]
    fn a_refusal_fits_in_a_frame_whatever_it_names() {
        for (message, len) in
            [("no such command".into(), 15), ("\u{1}\u{fffd}".repeat(MAX_PAYLOAD), MAX_DATA / 8)]
        {
            let mut stream = Stream::new(7, Err(Error::new(message).code(127)), None);
            let mut out = VecDeque::new();
            assert_eq!(stream.turn(&mut out), Turn::Over);
            let frame = Parser::new(out.into()).next_frame().unwrap().expect("a frame");
            let Some(AgentMessage::Failed { code: 127, why }) = frame.message() else { panic!("{frame:?}") };
            assert_eq!((frame.stream, why.chars().count()), (7, len));
        }
    }
}
