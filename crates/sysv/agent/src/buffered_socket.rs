//! A socket that is read and written without waiting for the other end.

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket, what was received and not used yet, and what is still to be sent.
pub struct BufferedSocket {
    socket: OwnedFd,
    /// What was received; its user takes it out.
    pub received: Vec<u8>,
    unsent: Vec<u8>,
}

impl BufferedSocket {
    /// For a socket that does not block.
    pub fn new(socket: OwnedFd) -> BufferedSocket {
        BufferedSocket { socket, received: Vec::new(), unsent: Vec::new() }
    }

    /// Receives what is there, until more than `longest` bytes are to be used. False: the other end sends
    /// nothing more.
    pub fn receive(&mut self, longest: usize) -> io::Result<bool> {
        let mut part = [0u8; 4096];
        while self.received.len() <= longest {
            match rustix::io::read(&self.socket, &mut part) {
                Ok(0) => return Ok(false),
                Ok(len) => self.received.extend_from_slice(&part[..len]),
                Err(Errno::WOULDBLOCK | Errno::INTR) => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    /// Adds to what is to be sent.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// How many bytes are still to be sent.
    pub fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Sends as much as the other end takes at present.
    pub fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match rustix::net::send(&self.socket, &self.unsent, rustix::net::SendFlags::NOSIGNAL) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(Errno::WOULDBLOCK | Errno::INTR) => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

impl AsFd for BufferedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
