//! The readers of untrusted input to agents, for the fuzzer: each a function from bytes, which panics where
//! the reader has a fault.

use crate::guest::Lines;
use crate::guest::{pools, protocol};
use crate::reaper::Reaper;
use crate::reclaimer::Reclaimer;
use crate::{http, worker};
use std::os::fd::OwnedFd;
use vshmem_ipc::Ctx;
use vshmem_transport::given::Grant;

/// A reader, with checks of what it returns.
pub type Reader = fn(&[u8]);

/// The readers, by name.
pub const READERS: &[(&str, Reader)] = &[("front end", front_end), ("http", http), ("address", address)];

/// One pass of a back end's worker in a pool; a front end's does a part of it. The holes of `file` tell where
/// the pool has no memory.
pub fn pass(c: &Ctx, file: OwnedFd) {
    let mut reclaimer = Reclaimer::new(file, Default::default());
    worker::pass(c, &mut Reaper::default(), &mut reclaimer, true, || false);
}

/// Separates the pieces of a stream.
pub(crate) const SEPARATOR: u8 = 0xff;

/// A front end's virtio port. Valid grants are written as the table of grants has them, and parsed again.
fn front_end(stream: &[u8]) {
    let mut lines = Lines::default();
    for (n, piece) in stream.split(|c| *c == SEPARATOR).enumerate() {
        lines.push(piece);
        if n % 7 == 6 {
            lines.hang_up();
        }
        while let Some(line) = lines.next() {
            assert!(line.len() <= protocol::MAX_LINE && !line.contains(&b'\n'), "a line");
            let Ok(request) = serde_json::from_slice::<protocol::GuestRequest>(&line) else {
                continue;
            };
            let table = request.pools.unwrap_or_default();
            let (grants, failed) = pools::check(&table);
            assert_eq!(grants.len() + failed.len(), table.len(), "each is answered");
            for grant in grants {
                let written = grant.to_string();
                let again = Grant::parse(written.as_bytes()).expect("what was written");
                assert_eq!(again.name(), grant.name(), "the same");
            }
        }
    }
}

/// A request for metrics: the response to any text has a head.
fn http(request: &[u8]) {
    let answer = |_: &http::Request<'_>| Some(http::Answer { kind: "text/plain", body: "x 1\n".into() });
    let response = http::respond(request, answer);
    assert!(response.starts_with("HTTP/1.1 ") && response.contains("\r\n\r\n"), "{response}");
}

/// The address of the endpoint for metrics.
fn address(text: &[u8]) {
    let _ = http::parse(&String::from_utf8_lossy(text)).map(|a| a.to_string());
}

/// Runs each reader on all prefixes of its example.
#[cfg(test)]
pub(crate) fn run_all(readers: &[(&str, Reader)], examples: &[(&str, &[u8])]) {
    assert_eq!(readers.len(), examples.len());
    for (name, example) in examples {
        let (_, run) = readers.iter().find(|(n, _)| n == name).expect("a reader");
        for end in 0..=example.len() {
            run(&example[..end]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_examples_are_parsed() {
        let front_end: &[u8] =
            b"{\"id\":7,\"pools\":[{\"address\":\xff\"0000:05:00.0\",\"name\":\"work\"}]}\n";
        let examples: [(&str, &[u8]); 3] = [
            ("front end", front_end),
            ("http", b"GET /metrics HTTP/1.1\r\n\r\n"),
            ("address", b"127.0.0.1:9500"),
        ];
        run_all(READERS, &examples);
    }
}
