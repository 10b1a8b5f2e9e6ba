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
/// How often the agent is asked whether it still knows of the session.
pub const ASK_EVERY: Duration = Duration::from_secs(1);
/// The agent must notice between two tries that the host's end was closed.
const PAUSE: Duration = Duration::from_millis(100);

/// An open channel. Closing it kills the command that runs on it.
pub struct Channel {
    stream: UnixStream,
    parser: Parser,
    out: Vec<u8>,
    session: Session,
    lock: File,
    farewell: Option<Farewell>,
}

/// What tells whether the agent at the other end still is the one that the session began with. A machine that is reset inside of its QEMU
/// keeps the socket open, and its new agent would wait for a greeting for ever. So the greeting is sent again and again: who knows the
/// session passes over it, and a new agent answers it.
struct Session {
    nonce: Nonce,
    /// The end of what came in, as far as it may be the beginning of an answer.
    tail: Vec<u8>,
    asked: Instant,
    /// When something came in last.
    heard: Instant,
    lost: bool,
}

impl Session {
    fn new(nonce: Nonce) -> Session {
        Session {
            nonce,
            tail: Vec::new(),
            asked: Instant::now(),
            heard: Instant::now(),
            lost: false,
        }
    }

    /// Looks for an answer among what came in: it may stand anywhere, even in what looks like a frame of the agent before. Nobody else
    /// knows its number.
    fn hear(&mut self, bytes: &[u8]) {
        let answer = greeting(&WELCOME, &self.nonce);
        self.heard = Instant::now();
        self.tail.extend_from_slice(bytes);
        self.lost |= self.tail.windows(answer.len()).any(|part| part == answer);
        self.tail
            .drain(..self.tail.len().saturating_sub(answer.len() - 1));
    }
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
            if let Some((stream, parser, nonce)) = greet(&socket)? {
                stream
                    .set_nonblocking(true)
                    .explain(|| "preparing a socket".into())?;
                return Ok(Some(Channel {
                    stream,
                    parser,
                    out: Vec::new(),
                    session: Session::new(nonce),
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

    /// Asks the agent now and then whether it still knows of the session, unless it has not read what it was told before.
    pub fn ask(&mut self) -> Result<()> {
        if self.out.is_empty() && self.session.asked.elapsed() >= ASK_EVERY {
            self.session.asked = Instant::now();
            self.out
                .extend_from_slice(&greeting(&HELLO, &self.session.nonce));
        }
        self.flush()
    }

    /// For how long nothing has come in.
    pub fn silence(&self) -> Duration {
        self.session.heard.elapsed()
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
                self.session.hear(&bytes[..len]);
                match self.session.lost {
                    true => Err(forgotten()),
                    false => Ok(()),
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(_) => Err(gone()),
        }
    }

    /// The next whole frame that has come in.
    pub fn next(&mut self) -> Result<Option<Frame>> {
        self.parser.next().map_err(|e| match self.session.lost {
            true => forgotten(),
            false => Error::new(format!("the machine's agent talks nonsense: {e}")),
        })
    }
}

fn gone() -> Error {
    Error::new("the machine has gone away").hint("See vshmem ps.")
}

fn forgotten() -> Error {
    Error::new("the command is gone: the machine was reset while it ran")
        .hint("Run the command again; the machine's console.log may say why.")
}

/// One try; `None` if the agent doesn't answer (yet).
fn greet(socket: &Path) -> Result<Option<(UnixStream, Parser, Nonce)>> {
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
                return Ok(Some((stream, Parser::new(seen), nonce)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Ended;

    /// A channel, and the agent's end of it.
    fn channel() -> (Channel, UnixStream) {
        let (stream, agent) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut session = Session::new([7; 16]);
        session.asked -= ASK_EVERY;
        let channel = Channel {
            stream,
            parser: Parser::default(),
            out: Vec::new(),
            session,
            lock: File::open("/dev/null").unwrap(),
            farewell: None,
        };
        (channel, agent)
    }

    #[test]
    fn an_agent_is_asked_now_and_then() {
        let (mut channel, mut agent) = channel();
        channel.ask().unwrap();
        channel.ask().unwrap();
        drop(channel);
        let mut heard = Vec::new();
        agent.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, greeting(&HELLO, &[7; 16]), "once in a second");
    }

    #[test]
    fn an_agent_that_was_born_later_is_noticed_wherever_the_one_before_was_cut_off() {
        let answer = greeting(&WELCOME, &[7; 16]);
        for cut in [0, 1, 8, 9, 1000] {
            for step in [1, 5, 64] {
                let (mut channel, mut agent) = channel();
                let mut said = Vec::new();
                encode(Kind::Stdout, &[b'x'; 2000], &mut said);
                said.truncate(cut);
                said.extend_from_slice(&answer);
                let told = said.chunks(step).any(|part| {
                    agent.write_all(part).unwrap();
                    channel.receive().is_err()
                });
                assert!(told, "cut after {cut}, in steps of {step}");
                let why = forgotten().to_string();
                assert!(channel
                    .next()
                    .map_or_else(|e| e.to_string() == why, |frame| frame.is_none()));
            }
        }
    }

    #[test]
    fn a_command_that_has_ended_has_ended() {
        let (mut channel, mut agent) = channel();
        let mut said = Vec::new();
        encode(Kind::Exit, &Ended::Exited(3).to_bytes(), &mut said);
        said.extend_from_slice(&greeting(&WELCOME, &[7; 16]));
        agent.write_all(&said).unwrap();
        assert!(channel.receive().is_err());
        let frame = channel.next().unwrap().expect("it came first");
        assert_eq!(Ended::from_frame(&frame), Some(Ended::Exited(3)));
    }

    #[test]
    fn what_a_command_prints_means_nothing() {
        let (mut channel, mut agent) = channel();
        let mut said = Vec::new();
        encode(Kind::Stdout, &greeting(&WELCOME, &[8; 16]), &mut said);
        agent.write_all(&said).unwrap();
        channel.receive().unwrap();
        assert_eq!(
            channel.next().unwrap().map(|frame| frame.kind),
            Some(Kind::Stdout)
        );
    }
}
