//! The readers of messages from machines, keepers and clients, for the fuzzer: functions from bytes, which
//! panic where a reader has a fault.

use super::control::{Request, Response, Status};
use super::fd_store::Connection;
use super::message;
use crate::fuzz::{Reader, SEPARATOR};
use rustix::net::{send, socketpair, AddressFamily, SendFlags, SocketFlags, SocketType};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// The readers, by name.
pub const READERS: &[(&str, Reader)] = &[("control", control), ("ivshmem", ivshmem), ("fd store", fd_store)];

/// Either side of the control socket.
fn control(line: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(line) {
        serde_json::to_string(&request).expect("plain data");
    }
    let _ = serde_json::from_slice::<Status>(line).map(|s| s.pools.len());
    let _ = serde_json::from_slice::<Response>(line).map(|a| a.error);
}

/// The protocol of ivshmem-server, from its client's side.
fn ivshmem(stream: &[u8]) {
    let (ours, theirs) = UnixStream::pair().expect("two sockets");
    // No more than fits into the socket's buffer.
    let sent = &stream[..stream.len().min(4096)];
    assert_eq!(send(&theirs, sent, SendFlags::NOSIGNAL).ok(), Some(sent.len()));
    theirs.shutdown(Shutdown::Write).expect("open");
    while let Ok(Some((_, fd))) = message::receive(&ours) {
        assert!(fd.is_none(), "none was sent");
    }
}

/// Either end of the connection between back end and keeper.
fn fd_store(stream: &[u8]) {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("two sockets");
    for packet in stream.split(|c| *c == SEPARATOR).take(8) {
        let _ = send(&theirs, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    drop(theirs);
    let ours = Connection(ours);
    while let Ok(Some((_, label, fds))) = ours.receive() {
        assert!(fds.is_empty() && label.chars().count() < 256, "a label");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_examples_are_parsed() {
        let examples: [(&str, &[u8]); 3] = [
            ("control", br#"{"serve":{"pool":"work","vectors":2}}"#),
            ("ivshmem", &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]),
            ("fd store", b"Slock\xffEpool/work/\xff."),
        ];
        crate::fuzz::run_all(READERS, &examples);
    }
}
