//! A task: a command that was started, with its input, its output and its outcome.

use super::channel::{protocol_error, Channel};
use super::outcome::Outcome;
use super::output::{Output, Stream};
use crate::wire::frame::{Frame, Kind, MAX_DATA, STDIN_WINDOW};
use crate::wire::message::AgentMessage;
use std::io;
use vshmem_base::error::Result;

/// A command of a run that was started.
pub struct Task {
    /// Its output.
    pub output: Output,
    /// Its outcome, if it has ended.
    pub outcome: Option<Outcome>,
    /// Index of its channel in the group.
    pub channel: usize,
    /// Its number in the session.
    pub stream: u16,
    stdin_open: bool,
    /// Bytes of input that may still be sent.
    window: usize,
}

impl Task {
    /// A command whose start was requested.
    pub fn new(output: Output, channel: usize, stream: u16, stdin: bool) -> Task {
        Task { output, outcome: None, channel, stream, stdin_open: stdin, window: STDIN_WINDOW }
    }

    /// Bytes of input that it takes now; `None` if it takes none any more.
    pub fn input_room(&self) -> Option<usize> {
        (self.stdin_open && self.outcome.is_none()).then_some(self.window.min(MAX_DATA))
    }

    /// Passes it input over its channel; empty input ends it.
    pub fn input(&mut self, bytes: &[u8], channel: &mut Channel) {
        self.stdin_open &= !bytes.is_empty();
        self.window = self.window.saturating_sub(bytes.len());
        // A lost machine is noticed when its output is read.
        let _ = channel.send_input(self.stream, bytes);
    }

    /// Handles a frame about it. The outer error is about our own output, the inner one about the machine.
    pub fn handle(&mut self, frame: &Frame) -> io::Result<Result<Option<Outcome>>> {
        match frame.kind {
            Kind::Stdout => self.output.write(Stream::Out, &frame.payload)?,
            Kind::Stderr => self.output.write(Stream::Err, &frame.payload)?,
            Kind::Stdin => return Ok(Err(protocol_error("it sends input"))),
            Kind::Message => match frame.message() {
                Some(AgentMessage::Taken(taken)) => {
                    self.window = self.window.saturating_add(taken).min(STDIN_WINDOW);
                }
                Some(AgentMessage::Failed { code, why }) => {
                    return Ok(Ok(Some(Outcome::Failed(code, vshmem_base::printable(&why)))));
                }
                Some(AgentMessage::Ended(ended)) => return Ok(Ok(Some(Outcome::Ended(ended)))),
                Some(AgentMessage::Here) => (),
                None => return Ok(Err(protocol_error("a message is damaged"))),
            },
        }
        Ok(Ok(None))
    }
}
