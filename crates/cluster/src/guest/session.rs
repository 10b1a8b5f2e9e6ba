//! One channel for commands: a virtio-serial port, or a console of Xen, and, while a command runs, that command.
//!
//! Nothing here blocks: [`Session::service`] does all that can be done now and is called again when something has
//! happened to the port or to the command's pipes.

use super::command::{self, Refusal, Running};
use super::poller::{set_nonblocking, Poller};
use super::sys;
use crate::wire::frame::{encode, Frame, Interruption, Kind, Parser, MAX_DATA};
use crate::wire::start::Start;
use crate::wire::{find_greeting, greeting, Ended, Nonce, HELLO, STDIN_WINDOW, WELCOME};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Output is not read from a command while this much of it has not been taken by the host.
const BACKLOG: usize = 256 * 1024;
/// The kernel's driver copies each write into one buffer; larger ones fail.
const LONGEST_WRITE: usize = 32 * 1024;

/// The kernel learns later that the host's end was closed or opened than what came in through it. So an end that was
/// opened again at once may seem closed for a moment; only one that stays closed for this long is taken for it.
const HUNG_UP_AFTER: Duration = Duration::from_millis(50);

/// One channel.
pub struct Session {
    port: File,
    token: usize,
    out: VecDeque<u8>,
    state: State,
    /// Since when the host's end has seemed closed to a session.
    closed_since: Option<Instant>,
}

enum State {
    /// For a greeting; with what came in and may be the beginning of one.
    Waiting(Vec<u8>),
    /// A host is there.
    Active(Active),
}

#[derive(Default)]
struct Active {
    nonce: Nonce,
    parser: Parser,
    command: Option<Running>,
    ended: Option<Ended>,
    input: VecDeque<u8>,
    input_ended: bool,
    taken: u32,
}

impl Session {
    /// Opens a port and watches it under this token.
    pub fn open(device: &Path, token: usize, poller: &Poller) -> io::Result<Session> {
        // A console must not become the terminal that controls this process.
        let mut options = File::options();
        let port = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(device)?;
        // For as long as it is open: the kernel forgets it with the last who closes it.
        if port.is_terminal() {
            sys::make_raw(port.as_raw_fd())?;
        }
        set_nonblocking(port.as_raw_fd())?;
        poller.add(port.as_raw_fd(), token)?;
        let state = State::Waiting(Vec::new());
        Ok(Session {
            port,
            token,
            out: VecDeque::new(),
            state,
            closed_since: None,
        })
    }

    /// The process whose end this session waits for.
    pub fn pid(&self) -> Option<i32> {
        match &self.state {
            State::Active(active) if active.ended.is_none() => Some(active.command.as_ref()?.pid),
            _ => None,
        }
    }

    /// Its command has ended.
    pub fn ended(&mut self, ended: Ended) {
        if let State::Active(active) = &mut self.state {
            active.ended = Some(ended);
        }
    }

    /// Does all that can be done without waiting. `serial` numbers the commands of this machine.
    pub fn service(&mut self, poller: &Poller, serial: &mut u64) {
        loop {
            let mut progress = self.read_port();
            if self
                .deadline()
                .is_some_and(|deadline| Instant::now() >= deadline)
            {
                self.hang_up();
            }
            progress |= self.advance(poller, serial);
            progress |= self.flush();
            if !progress {
                return;
            }
        }
    }

    fn read_port(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        match self.port.read(&mut bytes) {
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

    /// When to call [`Session::service`] even if nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.closed_since? + HUNG_UP_AFTER)
    }

    /// Ends the session, and its command if that still runs.
    fn hang_up(&mut self) {
        self.closed_since = None;
        if let State::Active(Active {
            command: Some(command),
            ..
        }) = &self.state
        {
            command.kill();
        }
        self.out.clear();
        self.state = State::Waiting(Vec::new());
    }

    fn advance(&mut self, poller: &Poller, serial: &mut u64) -> bool {
        match &mut self.state {
            State::Waiting(buffer) => {
                let Some(nonce) = find_greeting(buffer, &HELLO) else {
                    return false;
                };
                let rest = std::mem::take(buffer);
                self.begin(nonce, rest);
                true
            }
            State::Active(active) => {
                let mut turn = Turn {
                    out: &mut self.out,
                    poller,
                    token: self.token,
                    serial,
                };
                match active.advance(&mut turn) {
                    Advance::Idle => false,
                    Advance::Progress => true,
                    Advance::Over => {
                        let rest = std::mem::take(&mut active.parser).into_rest();
                        self.state = State::Waiting(rest);
                        self.closed_since = None;
                        true
                    }
                    Advance::Replaced(nonce) => {
                        let rest = std::mem::take(&mut active.parser).into_rest();
                        self.hang_up();
                        self.begin(nonce, rest);
                        true
                    }
                    Advance::Broken => {
                        self.hang_up();
                        false
                    }
                }
            }
        }
    }

    /// Begins a session. Whatever an earlier one has left to say, nobody is there to hear it.
    fn begin(&mut self, nonce: Nonce, rest: Vec<u8>) {
        self.out.clear();
        self.out.extend(greeting(&WELCOME, &nonce));
        let parser = Parser::new(rest);
        self.state = State::Active(Active {
            nonce,
            parser,
            ..Active::default()
        });
    }

    fn flush(&mut self) -> bool {
        let mut progress = false;
        while !self.out.is_empty() {
            let (head, _) = self.out.as_slices();
            match self.port.write(&head[..head.len().min(LONGEST_WRITE)]) {
                Ok(len) if len > 0 => {
                    self.out.drain(..len);
                    progress = true;
                }
                _ => break,
            }
        }
        progress
    }
}

/// What a session lends to its active part for one turn.
struct Turn<'a> {
    out: &'a mut VecDeque<u8>,
    poller: &'a Poller,
    token: usize,
    serial: &'a mut u64,
}

impl Turn<'_> {
    fn send(&mut self, kind: Kind, payload: &[u8]) {
        let mut bytes = Vec::with_capacity(payload.len() + 8);
        encode(kind, payload, &mut bytes);
        self.out.extend(bytes);
    }

    fn room(&self) -> bool {
        self.out.len() < BACKLOG
    }
}

enum Advance {
    Idle,
    Progress,
    Over,
    /// A new session has begun on the same port.
    Replaced(Nonce),
    Broken,
}

impl Active {
    fn advance(&mut self, turn: &mut Turn<'_>) -> Advance {
        let mut progress = false;
        loop {
            match self.parser.interruption(&HELLO) {
                Interruption::None => (),
                Interruption::Begun => break,
                Interruption::Greeting(nonce) if nonce == self.nonce => continue,
                Interruption::Greeting(nonce) => return Advance::Replaced(nonce),
            }
            match self.parser.next() {
                Ok(Some(frame)) => match self.obey(&frame, turn) {
                    Advance::Progress => progress = true,
                    end => return end,
                },
                Ok(None) => break,
                Err(_) => return Advance::Broken,
            }
        }
        progress |= self.feed(turn);
        let drained = self.pump(turn, &mut progress);
        if let (Some(ended), true) = (self.ended, drained) {
            turn.send(Kind::Exit, &ended.to_bytes());
            return Advance::Over;
        }
        if progress {
            Advance::Progress
        } else {
            Advance::Idle
        }
    }

    fn obey(&mut self, frame: &Frame, turn: &mut Turn<'_>) -> Advance {
        match frame.kind {
            Kind::Start if self.command.is_none() => return self.start(&frame.payload, turn),
            Kind::Stdin if frame.payload.is_empty() => self.input_ended = true,
            Kind::Stdin => {
                if self.input.len() + frame.payload.len() > STDIN_WINDOW {
                    return Advance::Broken;
                }
                self.input.extend(&frame.payload);
            }
            Kind::Signal => match (frame.payload[..].first(), &self.command) {
                (Some(&signal), Some(command)) if i32::from(signal) == libc::SIGKILL => {
                    command.kill()
                }
                (Some(&signal), Some(command)) if self.ended.is_none() => {
                    command.signal(i32::from(signal))
                }
                _ => (),
            },
            _ => return Advance::Broken,
        }
        Advance::Progress
    }

    fn start(&mut self, payload: &[u8], turn: &mut Turn<'_>) -> Advance {
        let Some(order) = Start::decode(payload) else {
            return Advance::Broken;
        };
        *turn.serial += 1;
        match command::start(&order, *turn.serial) {
            Ok(running) => {
                for end in [
                    running.stdin.as_ref().map(AsRawFd::as_raw_fd),
                    running.stdout.as_ref().map(AsRawFd::as_raw_fd),
                    running.stderr.as_ref().map(AsRawFd::as_raw_fd),
                ]
                .into_iter()
                .flatten()
                {
                    // Can fail only for want of memory; the pipe is then served when others are.
                    let _ = turn.poller.add(end, turn.token);
                }
                self.command = Some(running);
                turn.send(Kind::Started, &[]);
                Advance::Progress
            }
            Err(refusal) => {
                turn.send(Kind::Failed, &why(&refusal));
                Advance::Over
            }
        }
    }

    /// Gives the command its input.
    fn feed(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(command) = &mut self.command else {
            return false;
        };
        let mut progress = false;
        while !self.input.is_empty() {
            let (head, _) = self.input.as_slices();
            let len = match command.stdin.as_mut().map(|stdin| stdin.write(head)) {
                Some(Ok(len)) => len,
                Some(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => break,
                // It reads no more: the rest is thrown away, and counts as taken.
                Some(Err(_)) | None => {
                    command.stdin = None;
                    self.input.len()
                }
            };
            self.input.drain(..len);
            self.taken += len as u32;
            progress = true;
        }
        if self.taken > 0 {
            turn.send(Kind::Taken, &self.taken.to_le_bytes());
            self.taken = 0;
        }
        if self.input_ended && self.input.is_empty() && command.stdin.is_some() {
            command.stdin = None;
            progress = true;
        }
        progress
    }

    /// Passes output on; true if nothing is left of it now.
    fn pump(&mut self, turn: &mut Turn<'_>, progress: &mut bool) -> bool {
        let Some(command) = &mut self.command else {
            return false;
        };
        let out = pump_one(&mut command.stdout, Kind::Stdout, turn, progress);
        let err = pump_one(&mut command.stderr, Kind::Stderr, turn, progress);
        out && err
    }
}

/// A refusal as the payload of a frame. It may name a path of any length: what is too long for people is cut.
fn why(refusal: &Refusal) -> Vec<u8> {
    let mut payload = vec![refusal.code];
    let text = refusal.message.as_bytes();
    payload.extend_from_slice(&text[..text.len().min(MAX_DATA)]);
    payload
}

fn pump_one<R: Read>(
    source: &mut Option<R>,
    kind: Kind,
    turn: &mut Turn<'_>,
    progress: &mut bool,
) -> bool {
    let mut bytes = [0; MAX_DATA];
    while turn.room() {
        let Some(reader) = source else { return true };
        match reader.read(&mut bytes) {
            Ok(0) => *source = None,
            Ok(len) => {
                turn.send(kind, &bytes[..len]);
                *progress = true;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            Err(_) => *source = None,
        }
    }
    source.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::MAX_PAYLOAD;

    #[test]
    fn a_refusal_fits_in_a_frame_whatever_it_names() {
        let message = "could not run x: there is no such command".to_string();
        let short = why(&Refusal {
            code: 127,
            message: message.clone(),
        });
        assert_eq!(short.split_first(), Some((&127, message.as_bytes())));
        let long = why(&Refusal {
            code: 126,
            message: "\u{fffd}".repeat(MAX_PAYLOAD / 2),
        });
        let mut frame = Vec::new();
        encode(Kind::Failed, &long, &mut frame);
        assert_eq!(long[0], 126);
    }
}
