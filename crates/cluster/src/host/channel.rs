//! The host's end of a channel to a machine.

use super::farewell::Farewell;
use super::qemu::channel_socket;
use super::state::{lock_file, Machine, Record};
use crate::error::{Error, Explain, Result};
use crate::wire::frame::{encode, Frame, Kind, Parser};
use crate::wire::{find_greeting, greeting, Nonce, HELLO, WELCOME};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for an answer to one greeting before the next try.
const ONE_TRY: Duration = Duration::from_millis(700);
/// The agent must notice between two tries that the host's end was closed.
const PAUSE: Duration = Duration::from_millis(100);

/// An open channel. Closing it kills the command that runs on it.
pub struct Channel {
    stream: UnixStream,
    parser: Parser,
    out: Vec<u8>,
    lock: File,
    farewell: Option<Farewell>,
}

impl Channel {
    /// Takes a free channel of a machine that is up.
    pub fn open(record: &Record, machine: &Machine, within: Duration) -> Result<Channel> {
        let directory = record.machine_directory(machine)?;
        for channel in 0..record.channels {
            if let Some(mut open) = Channel::take(&directory, channel, within)? {
                if !record.hypervisor().tells_of_hang_ups() {
                    open.say_farewell()?;
                }
                return Ok(open);
            }
        }
        Err(Error::new(format!(
            "all {} channels of {} are in use",
            record.channels, machine.name
        ))
        .hint("Wait until one of the commands in it has ended."))
    }

    /// Opens one channel unless another process uses it.
    pub fn take(directory: &Path, channel: usize, within: Duration) -> Result<Option<Channel>> {
        let socket = channel_socket(directory, channel);
        let Some(lock) = lock_file(&socket.with_extension("lock"), false)? else {
            return Ok(None);
        };
        let deadline = Instant::now() + within;
        loop {
            super::interrupt::check()?;
            if let Some((stream, parser)) = greet(&socket)? {
                stream
                    .set_nonblocking(true)
                    .explain(|| "preparing a socket".into())?;
                return Ok(Some(Channel {
                    stream,
                    parser,
                    out: Vec::new(),
                    lock,
                    farewell: None,
                }));
            }
            if Instant::now() > deadline {
                return Err(Error::new(format!(
                    "the machine behind {} does not answer",
                    socket.display()
                ))
                .hint("See its console.log in the same directory; vshmem down ends it."));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Has the machine told when this end is closed.
    fn say_farewell(&mut self) -> Result<()> {
        let last = greeting(&HELLO, &nonce()?);
        let said = Farewell::on(self.stream.as_raw_fd(), self.lock.as_raw_fd(), last);
        self.farewell = Some(said.explain(|| {
            "could not start a process that ends the command if this one is killed".into()
        })?);
        Ok(())
    }

    /// For poll.
    pub fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Something waits to be written.
    pub fn wants_to_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// Queues a frame and writes what can be written.
    pub fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<()> {
        encode(kind, payload, &mut self.out);
        self.flush()
    }

    /// Writes what can be written.
    pub fn flush(&mut self) -> Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(len) => drop(self.out.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(_) => return Err(gone()),
            }
        }
        Ok(())
    }

    /// Reads what has come in.
    pub fn receive(&mut self) -> Result<()> {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(gone()),
            Ok(len) => {
                self.parser.push(&bytes[..len]);
                Ok(())
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(_) => Err(gone()),
        }
    }

    /// The next whole frame that has come in.
    pub fn next(&mut self) -> Result<Option<Frame>> {
        self.parser
            .next()
            .map_err(|e| Error::new(format!("the machine's agent talks nonsense: {e}")))
    }
}

fn gone() -> Error {
    Error::new("the machine has gone away").hint("See vshmem ps.")
}

/// One try; `None` if the agent doesn't answer (yet).
fn greet(socket: &Path) -> Result<Option<(UnixStream, Parser)>> {
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => return Err(gone()),
        Err(e) => {
            return Err(Error::new(format!(
                "could not open {}: {e}",
                socket.display()
            )))
        }
    };
    let nonce = nonce()?;
    let deadline = Instant::now() + ONE_TRY;
    let write = stream
        .set_write_timeout(Some(ONE_TRY))
        .and_then(|()| stream.write_all(&greeting(&HELLO, &nonce)));
    if write.is_err() {
        return Ok(None);
    }
    let mut seen = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        stream
            .set_read_timeout(Some(left))
            .explain(|| "preparing a socket".into())?;
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(None),
            Ok(len) => seen.extend_from_slice(&bytes[..len]),
            Err(e) if e.kind() == ErrorKind::Interrupted => super::interrupt::check()?,
            Err(_) => return Ok(None),
        }
        while let Some(found) = find_greeting(&mut seen, &WELCOME) {
            if found == nonce {
                return Ok(Some((stream, Parser::new(seen))));
            }
        }
    }
}

fn nonce() -> Result<Nonce> {
    let mut nonce = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut nonce))
        .explain(|| "reading /dev/urandom".into())?;
    Ok(nonce)
}
