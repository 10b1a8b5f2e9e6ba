//! The back end, with its keeper, in two threads of this process, and enemies at every socket that it has:
//! they connect, say pieces of requests and nonsense, read or don't, ring, write into its pool, and leave.
//! After each input it must tell how it is within seconds.

mod serving;

use crate::input::Input;
use crate::pool::enemy;
use serving::Serving;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Steps of an input, and connections at once, at the most.
const MOST_STEPS: usize = 40;
const MOST_CONNECTIONS: usize = 12;

/// What is said whole, beside what the fuzzer makes up.
const PHRASES: [&str; 14] = [
    "{\"list\":{}}\n",
    "{\"drop\":{\"pool\":\"fuzzed\"}}\n",
    "{\"name\":{\"pid\":1,\"name\":\"vm\\n\\\"0\"}}\n",
    "{\"metrics\":{\"address\":\"socket\"}}\n",
    "{\"metrics\":{\"address\":null}}\n",
    "{\"metrics\":{\"address\":\"1.2.3.4\"}}\n",
    "{\"restart\":{}}\n",
    "{\"serve\":{\"pool\":\"no-such-pool\",\"vectors\":1}}\n",
    "{\"serve\":{\"pool\":\"/dev/null\",\"vectors\":33}}\n",
    "{\"list\":{}}\n{\"list\":{}}\n{\"list\"",
    "GET /metrics HTTP/1.1\r\n\r\n",
    "HEAD /metrics?x HTTP/1.0\n\n",
    "GET /metrics HTTP/1.1\r\nX: ",
    "\n\n",
];

/// Plays what the input says.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let serving = Serving::begin();
    let mut connections = Vec::new();
    for _ in 0..MOST_STEPS {
        if input.is_empty() {
            break;
        }
        step(serving, &mut input, &mut connections);
    }
    drop(connections);
    serving.tells_how_it_is();
}

/// Somebody connected, and what he has said last: enough of it to keep him from asking for files of his
/// choice.
struct Connection {
    stream: UnixStream,
    said: Vec<u8>,
}

impl Connection {
    /// Says something, unless it could make sense as a request that names files: the back end may do to them
    /// what its user may.
    fn say(&mut self, bytes: &[u8]) {
        self.said.extend_from_slice(bytes);
        let names = |word: &[u8]| self.said.windows(word.len()).any(|part| part == word);
        if names(b"metr") || names(b"serv") || names(b"\\") {
            self.said.clear();
            let _ = self.stream.write_all(b"\n");
        } else {
            let _ = self.stream.write(bytes);
        }
    }
}

fn step(serving: &Serving, input: &mut Input, connections: &mut Vec<Connection>) {
    let what = input.byte();
    let which = usize::from(what >> 4) % connections.len().max(1);
    let connection = connections.get_mut(which);
    match (what % 16, connection) {
        (n @ 0..=3, _) => {
            let path = match n {
                0 | 1 => serving.directory.pool("fuzzed"),
                2 => serving.directory.control(),
                _ => serving.directory.path().join("metrics.sock"),
            };
            if connections.len() < MOST_CONNECTIONS {
                let stream = UnixStream::connect(path).ok();
                let stream = stream.filter(|s| s.set_nonblocking(true).is_ok());
                let said = Vec::new();
                connections.extend(stream.map(|stream| Connection { stream, said }));
            }
        }
        (4..=6, Some(connection)) => {
            let len = usize::from(input.byte());
            connection.say(input.bytes(len));
        }
        (7..=9, Some(connection)) => {
            let phrase = input.one_of(&PHRASES);
            let _ = connection.stream.write(phrase.as_bytes());
            connection.said.clear();
        }
        (10, Some(connection)) => {
            // What was said before was heard by now.
            serving.tells_how_it_is();
            let mut answer = vec![0; usize::from(input.u16())];
            let _ = connection.stream.read(&mut answer);
        }
        (11, Some(connection)) => ring(connection),
        (12, Some(connection)) => {
            let _ = connection.stream.shutdown(Shutdown::Write);
        }
        (13, Some(_)) => drop(connections.swap_remove(which)),
        (14, _) => {
            if what & 16 != 0 {
                serving.machine_dies();
            }
            enemy::write_some(serving.mem, input);
        }
        (15, _) => serving.serve(1 + input.below(2)),
        _ => {}
    }
}

/// A machine takes what it is told, and rings all whom it knows.
fn ring(connection: &Connection) {
    while let Ok(Some((_, fd))) = vshmem_agent::ivshmem::receive_message(connection.stream.as_fd()) {
        if let Some(fd) = fd {
            let one = 1u64.to_ne_bytes();
            // SAFETY: a descriptor of ours, and eight bytes. The pool's own file would be written to as well,
            // which is nothing worse.
            unsafe {
                let flags = libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&fd), libc::F_GETFL);
                if flags & libc::O_NONBLOCK != 0 {
                    libc::write(std::os::fd::AsRawFd::as_raw_fd(&fd), one.as_ptr().cast(), 8);
                }
            }
        }
    }
}
