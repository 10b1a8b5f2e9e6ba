//! What reads what others say to the agent's two ends, each as a function from bytes. It panics where a reader has a fault.

use crate::attendant::Attendant;
use crate::caretaker::Caretaker;
use crate::control::{Answer, Request, Status};
use crate::guest::channel::Lines;
use crate::guest::{pools, protocol};
use crate::link::Link;
use crate::{http, message, worker, xen};
use rustix::net::{send, socketpair, AddressFamily, SendFlags, SocketFlags, SocketType};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use vshmem_ipc::Ctx;
use vshmem_port::Grant;

/// A reader.
pub type Reader = fn(&[u8]);

/// All of them, by name.
pub const READERS: &[(&str, Reader)] = &[
    ("front end", front_end),
    ("control", control),
    ("http", http),
    ("address", address),
    ("ivshmem", ivshmem),
    ("link", link),
    ("ticket", ticket),
];

/// What the back end does in a pool in a second, with all that it may have to do there; a front end does the first part of it. The file
/// tells where the pool has memory.
pub fn turn(c: &Ctx, file: OwnedFd) {
    let mut caretaker = Caretaker::new(file, Default::default());
    worker::turn(c, &mut Attendant::default(), &mut caretaker, true, || false);
}

/// What stands between the pieces in which a stream comes.
const SEAM: u8 = 0xff;

/// The virtio port of a front end. What of a table makes sense is written down, and read again from there.
fn front_end(stream: &[u8]) {
    let mut lines = Lines::default();
    for (n, piece) in stream.split(|c| *c == SEAM).enumerate() {
        lines.push(piece);
        if n % 7 == 6 {
            lines.hang_up();
        }
        while let Some(line) = lines.next() {
            assert!(
                line.len() <= protocol::LONGEST && !line.contains(&b'\n'),
                "a line"
            );
            let Ok(ask) = serde_json::from_slice::<protocol::Ask>(&line) else {
                continue;
            };
            let table = ask.pools.unwrap_or_default();
            let (grants, failed) = pools::check(&table);
            assert_eq!(grants.len() + failed.len(), table.len(), "each is told of");
            for grant in grants {
                let written = grant.to_string();
                let again = Grant::parse(written.as_bytes()).expect("what was written");
                assert_eq!(again.name(), grant.name(), "the same");
            }
        }
    }
}

/// Either side of the control socket.
fn control(line: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(line) {
        serde_json::to_string(&request).expect("plain data");
    }
    let _ = serde_json::from_slice::<Status>(line).map(|s| s.pools.len());
    let _ = serde_json::from_slice::<Answer>(line).map(|a| a.error);
}

/// A request for metrics: whatever it is, the answer has a head.
fn http(request: &[u8]) {
    let answer = http::respond(request, || "x 1\n".into());
    assert!(
        answer.starts_with("HTTP/1.1 ") && answer.contains("\r\n\r\n"),
        "{answer}"
    );
}

/// Where metrics are told.
fn address(text: &[u8]) {
    let _ = http::parse(&String::from_utf8_lossy(text)).map(|a| a.to_string());
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

/// A pool's announcement by another Xen domain.
fn ticket(text: &[u8]) {
    let read = |text: &str| xen::announce::read(text);
    if let Some(ticket) = read(&String::from_utf8_lossy(text)) {
        assert_eq!(
            read(&xen::announce::write(&ticket)),
            Some(ticket),
            "and again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_read_what_they_should() {
        let samples: [(&str, &[u8]); 6] = [
            (
                "front end",
                b"{\"id\":7,\"pools\":[{\"address\":\xff\"0000:05:00.0\",\"name\":\"work\"}]}\n",
            ),
            ("control", br#"{"serve":{"pool":"work","vectors":2}}"#),
            ("http", b"GET /metrics HTTP/1.1\r\n\r\n"),
            ("ivshmem", &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]),
            ("link", b"Slock\xffEpool/work/\xff."),
            ("ticket", b"16777216 9 8 4000000000 0 7"),
        ];
        for (name, sample) in samples {
            let (_, read) = READERS.iter().find(|(n, _)| *n == name).expect("a reader");
            for end in 0..=sample.len() {
                read(&sample[..end]);
            }
        }
    }
}
