//! A command that was started, in a machine or on this kernel: its input, its output, its end.

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
    /// Where its output goes.
    pub output: Output,
    /// Where it runs.
    pub body: Body,
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
    stdin_open: bool,
}

/// Where a command runs.
pub enum Body {
    /// In a machine.
    Remote(Remote),
    /// On this kernel.
    Local(Box<Local>),
}

/// A command in a machine.
pub struct Remote {
    /// Index of the machine's channel in the group.
    pub channel: usize,
    /// Its number in the session.
    pub stream: u16,
    /// Bytes of input that may still be sent.
    window: usize,
}

impl Remote {
    /// A command whose start was requested.
    pub fn new(channel: usize, stream: u16) -> Remote {
        Remote { channel, stream, window: STDIN_WINDOW }
    }
}

impl Task {
    /// A command that was started.
    pub fn new(output: Output, body: Body, stdin: bool) -> Task {
        Task { output, body, outcome: None, stdin_open: stdin }
    }

    /// Bytes of input that it takes now; `None` if it takes none any more.
    pub fn input_room(&self) -> Option<usize> {
        if !self.stdin_open || self.outcome.is_some() {
            return None;
        }
        match &self.body {
            Body::Remote(remote) => Some(remote.window.min(MAX_DATA)),
            Body::Local(local) => local.input_room(),
        }
    }

    /// Passes it input; empty input ends it. `find` returns the channel of a machine.
    pub fn input<'a>(&mut self, bytes: &[u8], find: impl FnOnce(usize) -> &'a mut Channel) {
        self.stdin_open &= !bytes.is_empty();
        match &mut self.body {
            Body::Remote(remote) => {
                remote.window = remote.window.saturating_sub(bytes.len());
                // A lost machine is noticed when its output is read.
                let _ = find(remote.channel).send(Kind::Stdin, remote.stream, bytes);
            }
            Body::Local(local) => local.input(bytes),
        }
    }

    /// Handles a frame about it. The outer error is about our own output, the inner one about the machine.
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
