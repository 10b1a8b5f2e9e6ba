//! A connection to the control socket.

use crate::ivshmem::control::LONGEST;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A client of the control socket.
pub struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
}

impl Client {
    /// For a connection that does not block.
    pub fn new(stream: UnixStream) -> Client {
        Client { stream, received: Vec::new(), unsent: Vec::new() }
    }

    /// Reads what is there; an error if the connection is closed or a line too long.
    pub fn read(&mut self) -> io::Result<()> {
        let mut part = [0u8; 4096];
        while self.unsent.is_empty() {
            match self.stream.read(&mut part) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.received.extend_from_slice(&part[..len]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
            if self.received.len() > LONGEST {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        Ok(())
    }

    /// The next complete line, unless too many responses are unsent.
    pub fn line(&mut self) -> Option<Vec<u8>> {
        if self.unsent.len() > LONGEST {
            return None;
        }
        let end = self.received.iter().position(|b| *b == b'\n')?;
        Some(self.received.drain(..=end).collect())
    }

    /// Sends a response, now or as soon as the client reads.
    pub fn send(&mut self, response: &impl serde::Serialize) {
        let text = serde_json::to_vec(response).expect("a response is plain data");
        self.unsent.extend(text);
        self.unsent.push(b'\n');
        let _ = self.write();
    }

    /// Whether a part of a response is unsent.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Writes as much as it can without waiting.
    pub fn write(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
