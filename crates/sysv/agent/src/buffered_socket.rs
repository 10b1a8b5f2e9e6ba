//! A buffered socket, which is read and written without waiting for the other end.

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket with its buffers: received bytes that were not used yet, and bytes that are still to be sent.
pub struct BufferedSocket {
    socket: OwnedFd,
    /// The bytes that were received; the user of the socket takes them out.
    pub received: Vec<u8>,
    unsent: Vec<u8>,
}

impl BufferedSocket {
    /// A buffered socket; `socket` must not block.
    pub fn new(socket: OwnedFd) -> BufferedSocket {
        BufferedSocket { socket, received: Vec::new(), unsent: Vec::new() }
    }

    /// Receives until there is no more, or more than `longest` bytes wait to be used. False: the other end
    /// has closed.
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

    /// Queues bytes to be sent.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// The number of bytes that are still to be sent.
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
