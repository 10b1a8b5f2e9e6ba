//! The messages of ivshmem-server's protocol, version 0 (QEMU's `docs/specs/ivshmem-spec.txt`): a 64-bit
//! number, little-endian, and for some a descriptor.

use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The first message: the protocol's version.
pub const VERSION: i64 = 0;
/// The message that carries the pool's descriptor.
pub const MEMORY: i64 = -1;

/// Sends a message without waiting; `WouldBlock` if the peer does not read. Eight bytes are sent as a whole
/// or not at all.
pub fn send(socket: BorrowedFd<'_>, number: i64, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let fds = with.map(|fd| [fd]);
    if let Some(fds) = &fds {
        rights.push(SendAncillaryMessage::ScmRights(fds));
    }
    let bytes = number.to_le_bytes();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(socket, &[IoSlice::new(&bytes)], &mut rights, flags)? {
        8 => Ok(()),
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Receives a message, as a client of the protocol; `None` at the end.
pub fn receive(socket: impl AsFd) -> io::Result<Option<(i64, Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0u8; 8];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags)?;
    let mut fd = None;
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.last().or(fd);
        }
    }
    match got.bytes {
        0 => Ok(None),
        8 => Ok(Some((i64::from_le_bytes(bytes), fd))),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
