//! A session: the commands that a host runs on one channel.
//!
//! Nothing here blocks. [`Session::service`] does some of the work, and is called again when there is more,
//! or after an event of the port or of a command. Commands take turns at the port, with a
//! frame for each of their outputs, and are not read from while the host lags behind. So memory is bounded,
//! and a command with much output delays others by a turn only.

use super::command::{Cgroup, Starter};
use super::stream::{Stream, Turn};
use crate::wire::ended::Ended;
use crate::wire::frame::{Frame, Interruption, Kind, Parser};
use crate::wire::greeting::{find_greeting, greeting, Nonce, HELLO, WELCOME};
use crate::wire::message::{AgentMessage, HostMessage};
use crate::wire::start::Start;
use rustix::io::ioctl_fionbio;
use rustix::termios::{tcgetattr, tcsetattr, OptionalActions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_agent::guest::port::{self, Poller};

/// Bytes that may wait for the host; with more, commands' output is not read.
const BACKLOG: usize = 256 * 1024;
/// Frames that are handled before other channels are served.
const FRAMES: usize = 64;
/// Turns of commands before other channels are served.
const TURNS: usize = 64;

/// Time for which the host's end must seem closed to count as closed. The kernel learns that it is closed and
/// opened later than of the bytes in between, so an end that was opened again at once may seem closed.
const HUNG_UP_AFTER: Duration = Duration::from_millis(50);

/// The parts of an agent that its sessions use.
pub struct Context<'a> {
    /// The poller, which watches descriptors.
    pub poller: &'a Poller,
    /// The starter of commands.
    pub starter: &'a mut dyn Starter,
}

/// The source of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The port of the session with this index.
    Port(usize),
    /// A command of the session with this index.
    Command(usize, u16),
}

impl Source {
    /// The source as a token for the poller.
    pub fn token(self) -> usize {
        match self {
            Source::Port(index) => index << 17,
            Source::Command(index, stream) => index << 17 | 1 << 16 | usize::from(stream),
        }
    }

    /// The source of this token.
    pub fn from_token(token: usize) -> Source {
        match token >> 16 & 1 {
            0 => Source::Port(token >> 17),
            _ => Source::Command(token >> 17, token as u16),
        }
    }
}

/// One channel and its session, if a host is connected.
pub struct Session {
    port: File,
    index: usize,
    out: VecDeque<u8>,
    state: State,
    /// The time since which the host's end has seemed closed.
    closed_since: Option<Instant>,
}

enum State {
    /// Waiting for a greeting; with input that may be the beginning of one.
    Waiting(Vec<u8>),
    /// A host is connected.
    Active(Active),
}

#[derive(Default)]
struct Active {
    nonce: Nonce,
    parser: Parser,
    /// There may be whole frames that were not handled yet.
    unread: bool,
    /// The host has repeated its greeting.
    asked: bool,
    has_started_some: bool,
    streams: BTreeMap<u16, Stream>,
    /// Cgroups of processes that commands have left, and that end with the session.
    background: Vec<Cgroup>,
    ready: RunQueue,
}

/// Commands that are ready for their turn, each of them once.
#[derive(Default)]
struct RunQueue {
    order: VecDeque<u16>,
    members: BTreeSet<u16>,
}

impl RunQueue {
    fn push(&mut self, stream: u16) {
        if self.members.insert(stream) {
            self.order.push_back(stream);
        }
    }

    fn pop(&mut self) -> Option<u16> {
        let stream = self.order.pop_front()?;
        self.members.remove(&stream);
        Some(stream)
    }
}

impl Session {
    /// Opens a port and watches it.
    pub fn open(device: &Path, index: usize, poller: &Poller) -> io::Result<Session> {
        // A console must not become this process's controlling terminal.
        let mut options = File::options();
        let port = options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(device)?;
        // The mode lasts as long as the port is open.
        if port.is_terminal() {
            let mut modes = tcgetattr(&port)?;
            modes.make_raw();
            tcsetattr(&port, OptionalActions::Now, &modes)?;
        }
        Session::on(port, index, poller)
    }

    /// A session on a port that is open.
    pub fn on(port: File, index: usize, poller: &Poller) -> io::Result<Session> {
        ioctl_fionbio(&port, true)?;
        poller.add(&port, Source::Port(index).token())?;
        let state = State::Waiting(Vec::new());
        Ok(Session { port, index, out: VecDeque::new(), state, closed_since: None })
    }

    /// Whether a host is connected.
    pub fn has_host(&self) -> bool {
        matches!(self.state, State::Active(_))
    }

    /// A process has ended. Returns its stream if it was a command of this session, which is to be serviced
    /// then.
    pub fn ended(&mut self, pid: i32, ended: Ended) -> Option<u16> {
        let State::Active(active) = &mut self.state else {
            return None;
        };
        let mut streams = active.streams.iter_mut();
        let (number, stream) = streams.find(|(_, stream)| stream.pid() == Some(pid))?;
        stream.ended(ended);
        active.ready.push(*number);
        Some(*number)
    }

    /// Has a command that has ended tell its user something after its output.
    pub fn tell(&mut self, stream: u16, notice: Option<String>) {
        if let State::Active(active) = &mut self.state {
            if let Some(stream) = active.streams.get_mut(&stream) {
                stream.tell(notice);
            }
        }
    }

    /// An event of this command; the session is to be serviced then.
    pub fn mark_ready(&mut self, stream: u16) {
        match &mut self.state {
            State::Active(active) if active.streams.contains_key(&stream) => {
                active.ready.push(stream);
            }
            _ => (),
        }
    }

    /// Does some work that needs no waiting. True if there may be more.
    pub fn service(&mut self, context: &mut Context<'_>) -> bool {
        let read = self.read_port();
        if self.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            self.hang_up();
        }
        let advanced = self.advance(context);
        let written = port::write(&mut self.port, &mut self.out).unwrap_or(false);
        written || advanced || read
    }

    fn read_port(&mut self) -> bool {
        if matches!(&self.state, State::Active(active) if active.unread) {
            return true;
        }
        let mut bytes = [0; 16 * 1024];
        let read = match self.port.read(&mut bytes) {
            // A socket says this once, if its other end was closed with something unread.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(0),
            read => read,
        };
        match read {
            // The host's end is closed, or seems so.
            Ok(0) => {
                if let (State::Active(_), None) = (&self.state, self.closed_since) {
                    self.closed_since = Some(Instant::now());
                }
                false
            }
            Ok(len) => {
                self.closed_since = None;
                match &mut self.state {
                    State::Waiting(buffer) => buffer.extend_from_slice(&bytes[..len]),
                    State::Active(active) => active.parser.push(&bytes[..len]),
                }
                true
            }
            Err(_) => {
                self.closed_since = None;
                false
            }
        }
    }

    /// The time at which to call [`Session::service`] even if nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.closed_since? + HUNG_UP_AFTER)
    }

    /// Ends the session, and its commands that still run.
    fn hang_up(&mut self) {
        self.closed_since = None;
        if let State::Active(active) = &self.state {
            for stream in active.streams.values() {
                stream.signal(libc::SIGKILL);
            }
            for group in &active.background {
                group.kill();
            }
        }
        self.out.clear();
        self.state = State::Waiting(Vec::new());
    }

    fn advance(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.state {
            State::Waiting(buffer) => {
                let Some(nonce) = find_greeting(buffer, &HELLO) else {
                    return false;
                };
                let rest = std::mem::take(buffer);
                self.begin(nonce, rest);
                true
            }
            State::Active(active) => match active.handle_some(self.index, context) {
                Handled::Some(progress) => active.write_some(&mut self.out) || progress,
                Handled::Replaced(nonce) => {
                    let rest = std::mem::take(&mut active.parser).into_rest();
                    self.hang_up();
                    self.begin(nonce, rest);
                    true
                }
                Handled::Invalid => {
                    self.hang_up();
                    false
                }
            },
        }
    }

    /// Begins a session. Output of an earlier one is dropped, since no host reads it.
    fn begin(&mut self, nonce: Nonce, rest: Vec<u8>) {
        self.out.clear();
        self.out.extend(greeting(&WELCOME, &nonce));
        self.state =
            State::Active(Active { nonce, parser: Parser::new(rest), unread: true, ..Active::default() });
    }
}

/// The result of handling the host's frames.
enum Handled {
    /// Some were handled, if true.
    Some(bool),
    /// A new session has begun on the same port.
    Replaced(Nonce),
    /// They violate the protocol.
    Invalid,
}

impl Active {
    fn handle_some(&mut self, index: usize, context: &mut Context<'_>) -> Handled {
        for done in 0..FRAMES {
            match self.parser.interruption(&HELLO) {
                Interruption::None => (),
                Interruption::Greeting(nonce) if nonce == self.nonce => {
                    self.asked = true;
                    continue;
                }
                Interruption::Greeting(nonce) => return Handled::Replaced(nonce),
                Interruption::Begun => {
                    self.unread = false;
                    return Handled::Some(done > 0);
                }
            }
            let started = self.streams.len();
            match self.parser.next_frame() {
                Ok(Some(frame)) if self.handle(&frame, index, context) => (),
                Ok(None) => {
                    self.unread = false;
                    return Handled::Some(done > 0);
                }
                Ok(Some(_)) | Err(_) => return Handled::Invalid,
            }
            // Starting a program takes long.
            if self.streams.len() > started {
                break;
            }
        }
        self.unread = true;
        Handled::Some(true)
    }

    /// False if the frame violates the protocol.
    fn handle(&mut self, frame: &Frame, index: usize, context: &mut Context<'_>) -> bool {
        // An unknown command may have ended before the host knew.
        let stream = self.streams.get_mut(&frame.stream);
        let message = match frame.kind {
            Kind::Message => frame.message(),
            Kind::Stdin => {
                self.ready.push(frame.stream);
                return stream.is_none_or(|stream| stream.input(&frame.payload));
            }
            Kind::Stdout | Kind::Stderr => None,
        };
        match (message, stream) {
            (Some(HostMessage::Start(request)), None) => {
                self.start(frame.stream, &request, index, context);
            }
            (Some(HostMessage::Signal(signal)), Some(stream)) => stream.signal(signal),
            (Some(HostMessage::Resize(size)), Some(stream)) => stream.resize(size),
            (Some(HostMessage::Signal(_) | HostMessage::Resize(_)), None) => (),
            (Some(HostMessage::Start(_)), Some(_)) | (None, _) => return false,
        }
        true
    }

    fn start(&mut self, number: u16, request: &Start, index: usize, context: &mut Context<'_>) {
        let first = !std::mem::replace(&mut self.has_started_some, true);
        let notice = if first { context.starter.prepare() } else { None };
        let stream = Stream::new(number, context.starter.start(request), notice);
        for end in stream.descriptors() {
            // Only fails without memory; the pipe is then serviced along with others.
            let _ = context.poller.add(end, Source::Command(index, number).token());
        }
        self.streams.insert(number, stream);
        self.ready.push(number);
    }

    /// Lets commands take turns while there is room for their output.
    fn write_some(&mut self, out: &mut VecDeque<u8>) -> bool {
        let mut progress = false;
        for _ in 0..TURNS {
            if out.len() >= BACKLOG {
                break;
            }
            if std::mem::take(&mut self.asked) {
                AgentMessage::Here.encode(0, out);
            }
            let Some(number) = self.ready.pop() else {
                break;
            };
            progress = true;
            match self.streams.get_mut(&number).map(|s| s.turn(out)) {
                Some(Turn::Again) => self.ready.push(number),
                Some(Turn::Over) => {
                    let ended = self.streams.remove(&number);
                    self.background.retain(|group| !group.remove());
                    self.background.extend(ended.and_then(Stream::into_background));
                }
                Some(Turn::Idle) | None => (),
            }
        }
        progress
    }
}

#[cfg(any(test, feature = "fuzz"))]
pub mod testing;
#[cfg(test)]
mod tests;
