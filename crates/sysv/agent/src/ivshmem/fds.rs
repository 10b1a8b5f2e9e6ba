//! Descriptors over a Unix socket, along with bytes.

use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors that are sent or received at a time: those of a pool with the most vectors, and its others.
pub const MAX_DESCRIPTORS: usize = 40;

/// Sends bytes and descriptors; returns how many bytes went.
pub fn send(
    socket: impl AsFd,
    parts: &[&[u8]],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !rights.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    Ok(sendmsg(socket, &parts, &mut rights, flags | SendFlags::NOSIGNAL)?)
}

/// Receives bytes and descriptors; returns how many bytes came, 0 at the end.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut rights, flags)?;
    let mut fds = Vec::new();
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok((got.bytes, fds))
}
