//! A command that runs, in a machine or here, seen from outside: input, output, end.

use super::channel::{protocol_error, Channel};
use super::local::Local;
use super::outcome::Outcome;
use super::output::{Output, Stream};
use crate::error::Result;
use crate::wire::ended::Ended;
use crate::wire::frame::{Frame, Kind, MAX_DATA, STDIN_WINDOW};
use std::io;

/// A command that was started.
pub struct Task {
    /// What it prints goes there.
    pub output: Output,
    /// Where it runs.
    pub body: Body,
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
    stdin_open: bool,
}

/// Where a task runs.
pub enum Body {
    /// In a machine.
    Remote(Remote),
    /// Here.
    Local(Box<Local>),
}

/// A command in a machine.
pub struct Remote {
    /// The index of the machine's channel among all of them.
    pub channel: usize,
    /// Its number in the session there.
    pub stream: u16,
    /// Bytes of input that may still be sent.
    window: usize,
}

impl Remote {
    /// A command whose start was ordered.
    pub fn new(channel: usize, stream: u16) -> Remote {
        Remote {
            channel,
            stream,
            window: STDIN_WINDOW,
        }
    }
}

impl Task {
    /// One that was started.
    pub fn new(output: Output, body: Body, stdin: bool) -> Task {
        Task {
            output,
            body,
            outcome: None,
            stdin_open: stdin,
        }
    }

    /// How many bytes of input it takes now; `None` if it takes none any more.
    pub fn input_room(&self) -> Option<usize> {
        if !self.stdin_open || self.outcome.is_some() {
            return None;
        }
        match &self.body {
            Body::Remote(remote) => Some(remote.window.min(MAX_DATA)),
            Body::Local(local) => local.input_room(),
        }
    }

    /// Gives it input; nothing ends the input. `find` finds the channel of a machine.
    pub fn input<'a>(&mut self, bytes: &[u8], find: impl FnOnce(usize) -> &'a mut Channel) {
        self.stdin_open &= !bytes.is_empty();
        match &mut self.body {
            Body::Remote(remote) => {
                remote.window = remote.window.saturating_sub(bytes.len());
                // A machine that has gone is noticed when its output is read.
                let _ = find(remote.channel).send(Kind::Stdin, remote.stream, bytes);
            }
            Body::Local(local) => local.input(bytes),
        }
    }

    /// Takes what a machine says of it. The first error is one of our own output's, the second one the machine's.
    pub fn take(&mut self, frame: &Frame) -> io::Result<Result<Option<Outcome>>> {
        let damaged = || Err(protocol_error("a message is damaged"));
        let Body::Remote(remote) = &mut self.body else {
            return Ok(damaged());
        };
        Ok(match frame.kind {
            Kind::Stdout => {
                self.output.write(Stream::Out, &frame.payload)?;
                Ok(None)
            }
            Kind::Stderr => {
                self.output.write(Stream::Err, &frame.payload)?;
                Ok(None)
            }
            Kind::Started | Kind::Here => Ok(None),
            Kind::Taken => match frame.payload[..].try_into() {
                Ok(count) => {
                    let taken = u32::from_le_bytes(count) as usize;
                    remote.window = remote.window.saturating_add(taken).min(STDIN_WINDOW);
                    Ok(None)
                }
                Err(_) => damaged(),
            },
            Kind::Failed => match frame.payload.split_first() {
                Some((&code, why)) => {
                    let why = crate::printable(&String::from_utf8_lossy(why));
                    Ok(Some(Outcome::Failed(code, why)))
                }
                None => damaged(),
            },
            Kind::Exit => match Ended::from_frame(frame) {
                Some(ended) => Ok(Some(Outcome::Ended(ended))),
                None => damaged(),
            },
            Kind::Start | Kind::Stdin | Kind::Signal | Kind::Resize => damaged(),
        })
    }
}
