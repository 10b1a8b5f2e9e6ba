//! The keeper's store of file descriptors: the protocol between it and the back end. A packet is a letter, a
//! label, and descriptors.
//!
//! Packets arrive in order, and even if the sender dies right after sending.

use rustix::net::{
    recvmsg, sendmsg, socketpair, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most vectors of a peer.
pub const MOST_VECTORS: usize = 32;
/// Most descriptors in a packet: a pool's vectors and what else it has.
const MOST: usize = MOST_VECTORS + 8;
/// Longest packet in bytes.
const LONGEST: usize = 256;

/// Store these descriptors under this label, in place of those that it had.
pub const STORE: u8 = b'S';
/// Remove all descriptors whose label begins so.
pub const REMOVE: u8 = b'F';
/// Send all descriptors.
pub const FETCH: u8 = b'H';
/// A response to that: descriptors and their label.
pub const ENTRY: u8 = b'E';
/// The last response; its label is the keeper's pid.
pub const END: u8 = b'.';
/// The back end was asked to end: the keeper ends, too.
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
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if label.len() >= LONGEST || fds.len() > MOST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if !fds.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(fds));
        }
        let first = [letter];
        let parts = [IoSlice::new(&first), IoSlice::new(label.as_bytes())];
        sendmsg(&self.0, &parts, &mut rights, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for a packet; `None`: the other end is closed.
    pub fn receive(&self) -> io::Result<Option<Packet>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0u8; LONGEST];
        let got = loop {
            let flags = RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags) {
                Err(rustix::io::Errno::INTR) => (),
                other => break other?,
            }
        };
        let mut fds = Vec::new();
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        let Some((letter, label)) = bytes[..got.bytes].split_first() else {
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
