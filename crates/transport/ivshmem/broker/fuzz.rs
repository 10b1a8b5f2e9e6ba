//! What reads what machines, keepers and clients say, each as a function from bytes. It panics where a reader has a fault.

use super::control::{Answer, Request, Status};
use super::link::Link;
use super::message;
use crate::fuzz::{Reader, SEAM};
use rustix::net::{send, socketpair, AddressFamily, SendFlags, SocketFlags, SocketType};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// All of them, by name.
pub const READERS: &[(&str, Reader)] =
    &[("control", control), ("ivshmem", ivshmem), ("link", link)];

/// Either side of the control socket.
fn control(line: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(line) {
        serde_json::to_string(&request).expect("plain data");
    }
    let _ = serde_json::from_slice::<Status>(line).map(|s| s.pools.len());
    let _ = serde_json::from_slice::<Answer>(line).map(|a| a.error);
}

/// The protocol of ivshmem-server, from its client's side.
fn ivshmem(stream: &[u8]) {
    let (ours, theirs) = UnixStream::pair().expect("two sockets");
    // A server says little; more than the socket's buffer would have to be read meanwhile.
    let said = &stream[..stream.len().min(4096)];
    assert_eq!(
        send(&theirs, said, SendFlags::NOSIGNAL).ok(),
        Some(said.len())
    );
    theirs.shutdown(Shutdown::Write).expect("open");
    while let Ok(Some((_, fd))) = message::receive(&ours) {
        assert!(fd.is_none(), "none was sent");
    }
}

/// What back end and keeper say to each other.
fn link(stream: &[u8]) {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("two sockets");
    for packet in stream.split(|c| *c == SEAM).take(8) {
        let _ = send(&theirs, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    drop(theirs);
    let ours = Link(ours);
    while let Ok(Some((_, label, fds))) = ours.receive() {
        assert!(fds.is_empty() && label.chars().count() < 256, "a label");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_read_what_they_should() {
        let samples: [(&str, &[u8]); 3] = [
            ("control", br#"{"serve":{"pool":"work","vectors":2}}"#),
            ("ivshmem", &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]),
            ("link", b"Slock\xffEpool/work/\xff."),
        ];
        crate::fuzz::try_all(READERS, &samples);
    }
}
