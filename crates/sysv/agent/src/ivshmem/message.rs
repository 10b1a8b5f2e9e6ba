//! The messages of ivshmem-server's protocol, version 0 (QEMU's `docs/specs/ivshmem-spec.txt`): a 64-bit
//! number, little-endian, and for some a descriptor.

use crate::ivshmem::fds;
use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The first message: the protocol's version.
pub const VERSION: i64 = 0;
/// The message that carries the pool's descriptor.
pub const MEMORY: i64 = -1;

/// Sends a message without waiting; `WouldBlock` if the peer does not read. Eight bytes are sent as a whole
/// or not at all.
pub fn send(socket: BorrowedFd<'_>, number: i64, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
    match fds::send(socket, &[&number.to_le_bytes()], with.as_slice(), SendFlags::DONTWAIT)? {
        8 => Ok(()),
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Receives a message, as a client of the protocol; `None` at the end.
pub fn receive(socket: impl AsFd) -> io::Result<Option<(i64, Option<OwnedFd>)>> {
    let mut bytes = [0u8; 8];
    let (len, mut fds) = fds::receive(socket, &mut bytes, RecvFlags::WAITALL)?;
    match len {
        0 => Ok(None),
        8 => Ok(Some((i64::from_le_bytes(bytes), fds.pop()))),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
