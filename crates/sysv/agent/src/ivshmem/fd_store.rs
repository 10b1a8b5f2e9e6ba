//! The keeper's store of file descriptors: the protocol between it and the back end. A packet is a letter, a
//! label, and descriptors.
//!
//! Packets arrive in order, and even if the sender dies right after sending.

use crate::ivshmem::fds::{self, MAX_DESCRIPTORS};
use rustix::net::{socketpair, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most vectors of a peer.
pub const MAX_VECTORS: usize = 32;
const _: () = assert!(MAX_VECTORS + 8 <= MAX_DESCRIPTORS);
/// Bytes of the longest packet.
const MAX_PACKET: usize = 256;

/// Store these descriptors under this label, in place of those that it had.
pub const STORE: u8 = b'S';
/// Remove all descriptors whose labels begin with this label.
pub const REMOVE: u8 = b'F';
/// Send all descriptors.
pub const FETCH: u8 = b'H';
/// A response to [`FETCH`]: descriptors and their label.
pub const ENTRY: u8 = b'E';
/// The last response to [`FETCH`]; its label is the keeper's pid.
pub const END: u8 = b'.';
/// End the keeper: the back end was asked to end.
pub const STOP: u8 = b'B';

/// A packet.
pub type Packet = (u8, String, Vec<OwnedFd>);

/// One end of the connection between back end and keeper.
pub struct Connection(pub OwnedFd);

impl Connection {
    /// Both ends.
    pub fn pair() -> io::Result<(Connection, Connection)> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Connection(one), Connection(other)))
    }

    /// Sends a packet; waits while the buffer is full.
    pub fn send(&self, letter: u8, label: &str, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        if label.len() >= MAX_PACKET || fds.len() > MAX_DESCRIPTORS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        fds::send(self, &[&[letter], label.as_bytes()], fds, SendFlags::empty()).map(|_| ())
    }

    /// Waits for a packet; `None`: the other end is closed.
    pub fn receive(&self) -> io::Result<Option<Packet>> {
        let mut bytes = [0u8; MAX_PACKET];
        let (len, fds) = loop {
            match fds::receive(self, &mut bytes, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => (),
                other => break other?,
            }
        };
        let Some((letter, label)) = bytes[..len].split_first() else {
            return Ok(None);
        };
        let label = String::from_utf8_lossy(label).into_owned();
        Ok(Some((*letter, label, fds)))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
