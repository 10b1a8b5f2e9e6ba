//! A command that runs, in a machine or here, seen from outside: descriptors to poll, output, input, signals, end.

use super::channel::{Channel, ASK_EVERY};
use super::command::{Identity, Job, Place};
use super::output::{Output, Stream};
use crate::error::{Error, Result, OUR_FAILURE};
use crate::wire::frame::{Frame, Kind, MAX_DATA};
use crate::wire::{Ended, STDIN_WINDOW};
use crate::{signals, user};
use rustix::fs::{accessat, Access, AtFlags, CWD};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// How long a machine's agent may take to answer when a command is to be started.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Exit code for a command that could not be run, and for one that does not exist, as in shells.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How a task ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The command ended.
    Ended(Ended),
    /// It never started, or the machine went away: an exit code and why.
    Failed(u8, String),
}

impl Outcome {
    /// The exit code that stands for it.
    pub fn code(&self) -> u8 {
        match self {
            Outcome::Ended(ended) => ended.code(),
            Outcome::Failed(code, _) => *code,
        }
    }
}

/// A command that was started.
pub struct Task {
    output: Output,
    body: Body,
    outcome: Option<Outcome>,
    stdin_open: bool,
}

enum Body {
    Remote(Box<Remote>),
    Local(Box<Local>),
}

struct Remote {
    channel: Channel,
    /// Bytes of input that may still be sent.
    window: usize,
}

struct Local {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    input: Vec<u8>,
    input_ended: bool,
}

impl Task {
    /// Starts a job. `prefix`: its label stands before each line of output.
    pub fn start(job: &Job, prefix: bool) -> Result<Task> {
        let output = Output::new(prefix.then_some(&job.label));
        let (body, outcome) = match &job.place {
            Place::Machine(record, machine) => {
                let mut channel = Channel::open(record, machine, ANSWER_WITHIN)?;
                channel.send(Kind::Start, &job.order().encode()?)?;
                (
                    Body::Remote(Box::new(Remote {
                        channel,
                        window: STDIN_WINDOW,
                    })),
                    None,
                )
            }
            Place::Local => (Body::Local(Box::new(Local::start(job)?)), None),
        };
        Ok(Task {
            output,
            body,
            outcome,
            stdin_open: job.stdin,
        })
    }

    /// How it ended, if it has.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// How long it may be left alone if nothing happens.
    pub fn patience(&self) -> Option<Duration> {
        let remote = matches!(self.body, Body::Remote(_));
        (remote && self.outcome.is_none()).then_some(ASK_EVERY)
    }

    /// What to poll.
    pub fn descriptors(&self) -> Vec<(RawFd, i16)> {
        if self.outcome.is_some() {
            return vec![];
        }
        match &self.body {
            Body::Remote(remote) => {
                let write = if remote.channel.wants_to_write() {
                    libc::POLLOUT
                } else {
                    0
                };
                vec![(remote.channel.fd(), libc::POLLIN | write)]
            }
            Body::Local(local) => local.descriptors(),
        }
    }

    /// Does what can be done now. An error is one of our own output's.
    pub fn service(&mut self) -> io::Result<()> {
        if self.outcome.is_some() {
            return Ok(());
        }
        let outcome = match &mut self.body {
            Body::Remote(remote) => remote.service(&mut self.output)?,
            Body::Local(local) => local.service(&mut self.output)?,
        };
        if outcome.is_some() {
            self.output.end()?;
        }
        self.outcome = outcome;
        Ok(())
    }

    /// How many bytes of input it takes now; `None` if it takes none any more.
    pub fn input_room(&self) -> Option<usize> {
        if !self.stdin_open || self.outcome.is_some() {
            return None;
        }
        match &self.body {
            Body::Remote(remote) => Some(remote.window.min(MAX_DATA)),
            Body::Local(local) => {
                local.stdin.as_ref()?;
                Some(if local.input.is_empty() { MAX_DATA } else { 0 })
            }
        }
    }

    /// Gives it input; nothing ends the input.
    pub fn input(&mut self, bytes: &[u8]) {
        self.stdin_open &= !bytes.is_empty();
        match &mut self.body {
            Body::Remote(remote) => {
                remote.window = remote.window.saturating_sub(bytes.len());
                // A machine that has gone is noticed when its output is read.
                let _ = remote.channel.send(Kind::Stdin, bytes);
            }
            Body::Local(local) => {
                local.input.extend_from_slice(bytes);
                local.input_ended |= bytes.is_empty();
                local.feed();
            }
        }
    }

    /// Waits no longer for a machine that has said nothing for so long; true if it did until now. When the machine goes on, the command
    /// ends there with its channel.
    pub fn give_up(&mut self, silence: Duration) -> bool {
        let silent = match &self.body {
            Body::Remote(remote) => remote.channel.silence() >= silence,
            Body::Local(_) => false,
        };
        if self.outcome.is_some() || !silent {
            return false;
        }
        let why = "the machine does not answer (is it paused?): the command is killed there when it goes on";
        self.outcome = Some(Outcome::Failed(OUR_FAILURE, why.into()));
        true
    }

    /// Sends it a signal, or all of its processes if the signal is SIGKILL.
    pub fn signal(&mut self, signal: i32) {
        if self.outcome.is_some() {
            return;
        }
        match &mut self.body {
            Body::Remote(remote) => {
                let _ = remote.channel.send(Kind::Signal, &[signal as u8]);
            }
            Body::Local(local) => {
                // SAFETY: plain values; the child is not reaped before `outcome` is set, so the group is its.
                unsafe { libc::kill(-(local.child.id() as i32), signal) };
            }
        }
    }
}

impl Remote {
    fn service(&mut self, output: &mut Output) -> io::Result<Option<Outcome>> {
        let lost = |e: Error| Ok(Some(Outcome::Failed(OUR_FAILURE, e.to_string())));
        let moved = self.channel.ask().and_then(|()| self.channel.receive());
        loop {
            match self.channel.next() {
                Ok(Some(frame)) => {
                    if let Some(outcome) = self.take(&frame, output)? {
                        return Ok(Some(outcome));
                    }
                }
                Ok(None) => break,
                Err(e) => return lost(e),
            }
        }
        match moved {
            Ok(()) => Ok(None),
            Err(e) => lost(e),
        }
    }

    fn take(&mut self, frame: &Frame, output: &mut Output) -> io::Result<Option<Outcome>> {
        let nonsense = || {
            Some(Outcome::Failed(
                OUR_FAILURE,
                "the agent talks nonsense".into(),
            ))
        };
        match frame.kind {
            Kind::Stdout => output.put(Stream::Out, &frame.payload)?,
            Kind::Stderr => output.put(Stream::Err, &frame.payload)?,
            Kind::Started => (),
            Kind::Taken => match frame.payload[..].try_into() {
                Ok(count) => {
                    let taken = u32::from_le_bytes(count) as usize;
                    self.window = self.window.saturating_add(taken).min(STDIN_WINDOW);
                }
                Err(_) => return Ok(nonsense()),
            },
            Kind::Failed => {
                let Some((&code, why)) = frame.payload.split_first() else {
                    return Ok(nonsense());
                };
                let why = crate::printable(&String::from_utf8_lossy(why));
                return Ok(Some(Outcome::Failed(code, why)));
            }
            Kind::Exit => {
                return Ok(
                    Ended::from_frame(frame).map_or_else(nonsense, |e| Some(Outcome::Ended(e)))
                )
            }
            Kind::Start | Kind::Stdin | Kind::Signal => return Ok(nonsense()),
        }
        Ok(None)
    }
}

impl Local {
    fn start(job: &Job) -> Result<Local> {
        if let Some(cwd) = &job.cwd {
            check_directory(cwd)?;
        }
        Local::spawn(job).map_err(|error| cannot_run(job, &error))
    }

    fn spawn(job: &Job) -> io::Result<Local> {
        let mut command = Command::new(&job.argv[0]);
        command.args(&job.argv[1..]).env_clear();
        command.envs(job.env.iter().map(|(key, value)| (key, value)));
        if let Some(cwd) = &job.cwd {
            command.current_dir(cwd);
        }
        command.stdin(if job.stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(Identity { uid, gid, groups }) = other_user(job) {
            user::switch(&mut command, *uid, *gid, groups.clone());
        }
        let die_with_us = || {
            // SAFETY: plain values; safe in a forked child.
            if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        };
        // SAFETY: the closure makes one system call; it takes no lock and no memory.
        unsafe { command.pre_exec(die_with_us) };
        signals::unblock(&mut command);
        let mut child = command.spawn()?;
        let local = Local {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child,
            input: Vec::new(),
            input_ended: false,
        };
        for (fd, _) in local.descriptors() {
            nonblocking(fd)?;
        }
        if let Some(stdin) = &local.stdin {
            nonblocking(stdin.as_raw_fd())?;
        }
        Ok(local)
    }

    fn descriptors(&self) -> Vec<(RawFd, i16)> {
        let out = self.stdout.as_ref().map(|s| (s.as_raw_fd(), libc::POLLIN));
        let err = self.stderr.as_ref().map(|s| (s.as_raw_fd(), libc::POLLIN));
        let full = self.stdin.as_ref().filter(|_| !self.input.is_empty());
        let input = full.map(|s| (s.as_raw_fd(), libc::POLLOUT));
        [out, err, input].into_iter().flatten().collect()
    }

    fn service(&mut self, output: &mut Output) -> io::Result<Option<Outcome>> {
        self.feed();
        // Asked before the pipes are emptied, so that all it printed is in them.
        let status = self.child.try_wait()?;
        empty(&mut self.stdout, Stream::Out, output)?;
        empty(&mut self.stderr, Stream::Err, output)?;
        Ok(status.map(|status| Outcome::Ended(Ended::from_wait(status.into_raw()))))
    }

    fn feed(&mut self) {
        while let (Some(stdin), false) = (&mut self.stdin, self.input.is_empty()) {
            match stdin.write(&self.input) {
                Ok(len) => drop(self.input.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // It reads no more.
                    self.stdin = None;
                    self.input.clear();
                }
            }
        }
        if self.input_ended {
            self.stdin = None;
        }
    }
}

fn empty<R: Read>(source: &mut Option<R>, stream: Stream, output: &mut Output) -> io::Result<()> {
    let mut bytes = [0; MAX_DATA];
    while let Some(reader) = source {
        match reader.read(&mut bytes) {
            Ok(0) => *source = None,
            Ok(len) => output.put(stream, &bytes[..len])?,
            Err(e) if e.kind() == ErrorKind::Interrupted => (),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(_) => *source = None,
        }
    }
    Ok(())
}

fn nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: plain values.
    if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn cannot_run(job: &Job, error: &io::Error) -> Error {
    let missing = error.kind() == ErrorKind::NotFound;
    let why = if missing {
        "there is no such command".into()
    } else {
        error.to_string()
    };
    let code = if missing { NOT_FOUND } else { CANNOT_RUN };
    let program = job.argv[0].to_string_lossy();
    let Some(Identity { uid, gid, .. }) = other_user(job) else {
        return Error::new(format!("could not run {program}: {why}")).code(code);
    };
    let text = format!("could not run {program} as the user {uid}:{gid}: {why}");
    let refused = Error::new(text).code(code);
    match error.kind() {
        ErrorKind::PermissionDenied if Identity::current().uid != 0 => {
            refused.hint("Only root can run programs as others.")
        }
        _ => refused,
    }
}

/// As whom a local job runs, if not as who calls.
fn other_user(job: &Job) -> Option<&Identity> {
    let ids = |identity: &Identity| (identity.uid, identity.gid);
    Some(&job.identity).filter(|identity| ids(identity) != ids(&Identity::current()))
}

/// An error unless a program can begin there: else it would be blamed for that.
fn check_directory(cwd: &Path) -> Result<()> {
    let inside = cwd.join(".");
    let why = match accessat(CWD, &inside, Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => return Ok(()),
        Err(Errno::NOENT) => format!("there is no directory {}", cwd.display()),
        Err(why) => format!(
            "could not enter {}: {}",
            cwd.display(),
            io::Error::from(why)
        ),
    };
    Err(Error::new(why).code(CANNOT_RUN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A shell's command on this kernel.
    fn job(script: &str) -> Job {
        Job {
            place: Place::Local,
            label: "p0".into(),
            argv: ["sh", "-c", script].map(Into::into).to_vec(),
            env: std::env::vars_os().collect(),
            cwd: None,
            stdin: false,
            identity: Identity::current(),
            needs: vec![],
        }
    }

    fn succeeds(job: &Job) -> bool {
        let mut local = Local::start(job).expect("it starts");
        local.child.wait().unwrap().success()
    }

    #[test]
    fn a_local_program_runs_as_whom_it_is_told() {
        let other = Identity {
            uid: 65534,
            gid: 65533,
            groups: vec![65532],
        };
        let test = r#"[ "$(id -u):$(id -g):$(id -G)" = "65534:65533:65533 65532" ]"#;
        let told = Job {
            identity: other,
            ..job(test)
        };
        if Identity::current().uid == 0 {
            assert!(succeeds(&told) && !succeeds(&job(test)));
            return;
        }
        let why = Local::start(&told).map(|_| ()).unwrap_err();
        assert_eq!(why.exit_code(), CANNOT_RUN);
        assert!(why.to_string().contains("Only root"), "{why}");
    }

    #[test]
    fn a_local_program_ends_with_who_runs_it_whoever_it_is() {
        let mut told = job("sleep 60");
        if told.identity.uid == 0 {
            (told.identity.uid, told.identity.gid) = (65534, 65534);
        }
        // The thread that starts it ends.
        let started = std::thread::spawn(move || Local::start(&told).unwrap().child);
        let mut child = started.join().unwrap();
        let begun = Instant::now();
        child.wait().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_directory_that_is_none_is_named() {
        for (cwd, why) in [
            ("/no/such", "there is no directory /no/such"),
            ("/dev/null", "could not enter /dev/null: Not a directory"),
        ] {
            let told = Job {
                cwd: Some(cwd.into()),
                ..job("true")
            };
            let error = Local::start(&told).map(|_| ()).unwrap_err();
            assert_eq!(error.exit_code(), CANNOT_RUN);
            assert!(error.to_string().starts_with(why), "{error}");
        }
    }
}
