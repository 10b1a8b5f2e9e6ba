//! What reads what others say to agents, each as a function from bytes. It panics where a reader has a fault.

use crate::guest::channel::Lines;
use crate::guest::{pools, protocol};
use crate::reaper::Reaper;
use crate::reclaimer::Reclaimer;
use crate::{http, worker};
use std::os::fd::OwnedFd;
use vshmem_ipc::Ctx;
use vshmem_transport::given::Grant;

/// A reader.
pub type Reader = fn(&[u8]);

/// All of them, by name.
pub const READERS: &[(&str, Reader)] = &[
    ("front end", front_end),
    ("http", http),
    ("address", address),
];

/// What the back end does in a pool in a second, with all that it may have to do there; a front end does the first part of it. The file
/// tells where the pool has memory.
pub fn turn(c: &Ctx, file: OwnedFd) {
    let mut reclaimer = Reclaimer::new(file, Default::default());
    worker::turn(c, &mut Reaper::default(), &mut reclaimer, true, || false);
}

/// What stands between the pieces in which a stream comes.
pub(crate) const SEAM: u8 = 0xff;

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

/// Has each reader of a list read each beginning of its sample.
#[cfg(test)]
pub(crate) fn try_all(readers: &[(&str, Reader)], samples: &[(&str, &[u8])]) {
    assert_eq!(readers.len(), samples.len());
    for (name, sample) in samples {
        let (_, read) = readers.iter().find(|(n, _)| n == name).expect("a reader");
        for end in 0..=sample.len() {
            read(&sample[..end]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_read_what_they_should() {
        let front_end: &[u8] =
            b"{\"id\":7,\"pools\":[{\"address\":\xff\"0000:05:00.0\",\"name\":\"work\"}]}\n";
        let samples: [(&str, &[u8]); 3] = [
            ("front end", front_end),
            ("http", b"GET /metrics HTTP/1.1\r\n\r\n"),
            ("address", b"127.0.0.1:9500"),
        ];
        try_all(READERS, &samples);
    }
}
