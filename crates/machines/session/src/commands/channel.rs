//! The host's end of a channel to a machine.

use super::channel_command::ChannelCommand;
use super::hang_up::HangUpNotice;
use super::location::MachineLocation;
use crate::wire::ended::Ended;
use crate::wire::frame::{encode, Frame, Kind, Parser};
use crate::wire::greeting::{find_greeting, greeting, Nonce, HELLO, WELCOME};
use crate::wire::message::{AgentMessage, HostMessage};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{connect, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_base::directories::{channel_socket, cluster_directory};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::lock::lock_file;
use vshmem_base::{interrupt, random};

/// Time to wait for an answer to one greeting.
const GREETING_TIMEOUT: Duration = Duration::from_millis(700);
/// Interval at which the agent is pinged whether it still knows the session.
pub const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between two tries, for the agent to notice that the host's end was closed.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// An open channel. Closing it kills the commands that run on it.
pub struct Channel {
    stream: UnixStream,
    parser: Parser,
    out: Vec<u8>,
    session: Session,
    /// The lock that keeps other commands from using it.
    lock: Option<File>,
    hang_up: Option<HangUpNotice>,
    /// The command whose input and output are the channel, if there is one. Below `stream`, which is closed
    /// before.
    command: Option<ChannelCommand>,
}

/// The host's side of a session, which detects that another agent is at the other end. If a machine is reset
/// from inside, the hypervisor keeps the socket open, and the new agent would wait for a greeting for ever.
/// So the greeting is repeated: an agent that knows the session confirms it, a new agent welcomes it, and a
/// machine that is stopped does not answer.
struct Session {
    nonce: Nonce,
    /// The end of the input, as far as it may be the beginning of an answer.
    tail: Vec<u8>,
    pinged: Instant,
    /// Time of the last input.
    last_input: Instant,
    lost: bool,
}

impl Session {
    fn new(nonce: Nonce) -> Session {
        Session { nonce, tail: Vec::new(), pinged: Instant::now(), last_input: Instant::now(), lost: false }
    }

    /// Looks for a welcome in the input. It may be anywhere, even in what looks like a frame of the earlier
    /// agent, and is recognized by the session's random number.
    fn look_for_welcome(&mut self, bytes: &[u8]) {
        let answer = greeting(&WELCOME, &self.nonce);
        self.last_input = Instant::now();
        self.tail.extend_from_slice(bytes);
        self.lost |= self.tail.windows(answer.len()).any(|part| part == answer);
        self.tail.drain(..self.tail.len().saturating_sub(answer.len() - 1));
    }
}

impl Channel {
    /// Takes a free channel of a machine that is up; waits while there is none. A machine that does
    /// not notice when this end is closed is told by a process.
    pub fn open(machine: &MachineLocation, timeout: Duration) -> Result<Channel> {
        let directory = cluster_directory(&machine.cluster)?.join(&machine.name);
        let mut waits = false;
        loop {
            for channel in 0..machine.channels {
                let taken = Channel::take(&directory, channel, timeout);
                let taken = taken.map_err(|error| error.about(&machine.name));
                if let Some(mut open) = taken? {
                    if !machine.reports_hang_up {
                        open.notify_hang_up()?;
                    }
                    return Ok(open);
                }
            }
            if !waits {
                waits = true;
                eprintln!(
                    "vshmem: {} runs {} commands of exec, shell and run; this one waits until one of them ends.",
                    machine.name, machine.channels
                );
            }
            interrupt::check()?;
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Opens one channel unless another process uses it.
    pub fn take(directory: &Path, channel: usize, timeout: Duration) -> Result<Option<Channel>> {
        let socket = channel_socket(directory, channel);
        let Some(lock) = lock_file(&socket.with_extension("lock"), false)? else {
            return Ok(None);
        };
        let deadline = Instant::now() + timeout;
        loop {
            check_interrupt()?;
            let stream = connect_to(&socket)?;
            let greeted = stream.map(|stream| Channel::greet(stream, GREETING_TIMEOUT)).transpose()?;
            if let Some(channel) = greeted.flatten() {
                return Ok(Some(Channel { lock: Some(lock), ..channel }));
            }
            if Instant::now() > deadline {
                return Err(error!("the machine behind {} does not answer",
                    socket.display())
                .hint("It may be paused, or started by another version of Vshmem. See its console.log in the same directory; vshmem down ends it."));
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Begins a session; `None` if the agent does not answer (yet).
    pub fn greet(mut stream: UnixStream, timeout: Duration) -> Result<Option<Channel>> {
        let nonce = random::bytes()?;
        let deadline = Instant::now() + timeout;
        let write = stream
            .set_write_timeout(Some(timeout))
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
            let wait = left.min(GREETING_TIMEOUT);
            stream.set_read_timeout(Some(wait)).explain(|| "preparing a socket".into())?;
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(len) => seen.extend_from_slice(&bytes[..len]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    check_interrupt()?;
                }
                Err(_) => return Ok(None),
            }
            while let Some(found) = find_greeting(&mut seen, &WELCOME) {
                if found == nonce {
                    return Channel::begin(stream, nonce, seen).map(Some);
                }
            }
        }
    }

    /// A channel with a session that has begun, and what was read of it already.
    fn begin(stream: UnixStream, nonce: Nonce, rest: Vec<u8>) -> Result<Channel> {
        stream.set_nonblocking(true).explain(|| "preparing a socket".into())?;
        let (parser, session) = (Parser::new(rest), Session::new(nonce));
        Ok(Channel { stream, parser, out: Vec::new(), session, lock: None, hang_up: None, command: None })
    }

    /// The channel with its command: the command's input and output are the channel.
    pub fn beside(self, command: ChannelCommand) -> Channel {
        Channel { command: Some(command), ..self }
    }

    /// The error for a channel that has ended.
    fn ended(&mut self) -> Error {
        self.command.as_mut().map_or_else(machine_lost, ChannelCommand::lost)
    }

    /// Has a process tell the machine when this end is closed, if the channel does not.
    fn notify_hang_up(&mut self) -> Result<()> {
        let last = greeting(&HELLO, &random::bytes()?);
        let lock = self.lock.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let said = HangUpNotice::on(self.stream.as_raw_fd(), lock, last);
        self.hang_up =
            Some(said.explain(|| {
                "could not start a process that ends the command if this one is killed".into()
            })?);
        Ok(())
    }

    /// A channel whose session has begun, for tests.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn on(stream: UnixStream, nonce: Nonce) -> Channel {
        Channel::begin(stream, nonce, vec![]).expect("a socket")
    }

    /// Its descriptor, and the events to poll, if there are any: unless it `receives`, only what is to be
    /// sent matters.
    pub fn descriptor(&self, receives: bool) -> Option<PollFd<'_>> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, receives);
        events.set(PollFlags::OUT, !self.out.is_empty());
        (!events.is_empty()).then(|| PollFd::new(&self.stream, events))
    }

    /// Closes the channel's sending side, so that its command, if there is one, begins to end.
    pub fn hang_up(&self) {
        if self.command.is_some() {
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }

    /// Bytes that the machine has not taken yet.
    pub fn unsent(&self) -> usize {
        self.out.len()
    }

    /// Queues a message, and writes what can be written.
    pub fn send(&mut self, stream: u16, message: &HostMessage) -> Result<()> {
        encode(Kind::Message, stream, &message.to_payload()?, &mut self.out);
        self.flush()
    }

    /// Queues input of a command, and writes what can be written.
    pub fn send_input(&mut self, stream: u16, bytes: &[u8]) -> Result<()> {
        encode(Kind::Stdin, stream, bytes, &mut self.out);
        self.flush()
    }

    /// Repeats the greeting now and then, unless earlier output was not read yet.
    pub fn ping(&mut self) -> Result<()> {
        if self.out.is_empty() && self.session.pinged.elapsed() >= PING_INTERVAL {
            self.session.pinged = Instant::now();
            self.out.extend_from_slice(&greeting(&HELLO, &self.session.nonce));
        }
        self.flush()
    }

    /// Sends queued bytes and reads nothing; the time does not count as the machine's silence.
    pub fn send_only(&mut self) -> Result<()> {
        self.session.last_input = Instant::now();
        self.flush()
    }

    /// Time since the last input.
    pub fn silence(&self) -> Duration {
        self.session.last_input.elapsed()
    }

    /// Writes what can be written.
    pub fn flush(&mut self) -> Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(len) => drop(self.out.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(_) => return Err(self.ended()),
            }
        }
        Ok(())
    }

    /// Reads input.
    pub fn receive(&mut self) -> Result<()> {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(self.ended()),
            Ok(len) => {
                self.parser.push(&bytes[..len]);
                self.session.look_for_welcome(&bytes[..len]);
                match self.session.lost {
                    true => Err(session_lost()),
                    false => Ok(()),
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(_) => Err(self.ended()),
        }
    }

    /// The next whole frame for a command.
    pub fn next_frame(&mut self) -> Result<Option<Frame>> {
        loop {
            match self.parser.next_frame() {
                Ok(Some(frame)) if is_confirmation(&frame) => (),
                Ok(frame) => return Ok(frame),
                Err(_) if self.session.lost => return Err(session_lost()),
                Err(e) => return Err(protocol_error(&e.to_string())),
            }
        }
    }
}

/// Whether the agent says that it knows the session, and nothing about a command.
fn is_confirmation(frame: &Frame) -> bool {
    frame.kind == Kind::Message && frame.message() == Some(AgentMessage::Here)
}

/// The error for input that is not understood.
pub fn protocol_error(what: &str) -> Error {
    error!("the machine's agent violates the protocol: {what}")
}

/// An error if the user no longer wants to wait for the machine.
fn check_interrupt() -> Result<()> {
    interrupt::signal().map_or(Ok(()), |signal| {
        let error = Error::new("interrupted: the machine does not answer (is it paused?)");
        Err(error.code(Ended::Killed(signal as u8).code()))
    })
}

fn machine_lost() -> Error {
    Error::new("the machine has gone away").hint("See vshmem ps.")
}

fn session_lost() -> Error {
    Error::new("the commands are lost: the machine was reset meanwhile")
        .hint("Run it again; the machine's console.log may say why.")
}

/// A connection to the socket at a path. `None` if no process listens yet, or the listener does not accept
/// connections: the machine is stopped, and a blocking call could not be interrupted.
fn connect_to(path: &Path) -> Result<Option<UnixStream>> {
    let address = SocketAddrUnix::new(path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connected = address.and_then(|address| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)?;
        Ok(UnixStream::from(socket))
    });
    match connected {
        Ok(stream) => {
            let blocking = stream.set_nonblocking(false);
            blocking.explain(|| "preparing a socket".into())?;
            Ok(Some(stream))
        }
        Err(Errno::NOENT | Errno::AGAIN) => Ok(None),
        Err(Errno::CONNREFUSED) => Err(machine_lost()),
        Err(e) => {
            let e = std::io::Error::from(e);
            Err(error!("could not open {}: {e}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel, and the agent's end of it.
    fn channel() -> (Channel, UnixStream) {
        let (stream, agent) = UnixStream::pair().unwrap();
        let mut channel = Channel::on(stream, [7; 16]);
        channel.session.pinged -= PING_INTERVAL;
        (channel, agent)
    }

    #[test]
    fn an_agent_is_pinged_now_and_then() {
        let (mut channel, mut agent) = channel();
        channel.ping().unwrap();
        channel.ping().unwrap();
        drop(channel);
        let mut heard = Vec::new();
        agent.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, greeting(&HELLO, &[7; 16]), "once in a second");
    }

    #[test]
    fn a_new_agent_is_noticed_wherever_the_earlier_one_was_cut_off() {
        let answer = greeting(&WELCOME, &[7; 16]);
        for cut in [0, 1, 8, 9, 1000] {
            for step in [1, 5, 64] {
                let (mut channel, mut agent) = channel();
                let mut said = Vec::new();
                encode(Kind::Stdout, 0, &[b'x'; 2000], &mut said);
                said.truncate(cut);
                said.extend_from_slice(&answer);
                let noticed = said.chunks(step).any(|part| {
                    agent.write_all(part).unwrap();
                    channel.receive().is_err()
                });
                assert!(noticed, "cut after {cut}, in steps of {step}");
                let why = session_lost().to_string();
                assert!(channel.next_frame().map_or_else(|e| e.to_string() == why, |frame| frame.is_none()));
            }
        }
    }

    #[test]
    fn an_agent_that_takes_no_connections_is_not_waited_for() {
        let directory = std::env::temp_dir().join(format!("vshmem-channel-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("socket");
        assert!(matches!(connect_to(&path), Ok(None)), "nobody listens yet");
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None);
        let listener = listener.unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| connect_to(&path).unwrap()).collect();
        assert!((1..10).contains(&waiting.len()), "as many as its backlog");
        drop(listener);
        assert!(connect_to(&path).is_err(), "it has ended");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_confirmed_session_goes_on() {
        let (mut channel, mut agent) = channel();
        channel.session.last_input -= Duration::from_secs(9);
        let mut said = Vec::new();
        AgentMessage::Here.encode(0, &mut said);
        agent.write_all(&said).unwrap();
        assert!(channel.silence() >= Duration::from_secs(9));
        channel.receive().unwrap();
        assert!(channel.silence() < Duration::from_secs(9));
        assert_eq!(channel.next_frame().unwrap(), None);
    }

    #[test]
    fn the_end_of_a_command_outlasts_a_reset() {
        let (mut channel, mut agent) = channel();
        let mut said = Vec::new();
        let ended = AgentMessage::Ended(Ended::Exited(3));
        ended.encode(0, &mut said);
        said.extend_from_slice(&greeting(&WELCOME, &[7; 16]));
        agent.write_all(&said).unwrap();
        assert!(channel.receive().is_err());
        let frame = channel.next_frame().unwrap().expect("it came first");
        assert_eq!(frame.message(), Some(ended));
    }

    #[test]
    fn a_welcome_in_output_means_nothing() {
        let (mut channel, mut agent) = channel();
        let mut said = Vec::new();
        encode(Kind::Stdout, 0, &greeting(&WELCOME, &[8; 16]), &mut said);
        agent.write_all(&said).unwrap();
        channel.receive().unwrap();
        assert_eq!(channel.next_frame().unwrap().map(|frame| frame.kind), Some(Kind::Stdout));
    }
}
