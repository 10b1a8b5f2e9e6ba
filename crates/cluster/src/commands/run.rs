//! Runs commands in several places at once: passes on output, input and signals, and ends all when one fails.

use super::group::Group;
use super::job::{Job, Location};
use super::local;
use super::outcome::Outcome;
use super::terminal::{self, Raw};
use crate::error::{Error, Explain, Result, OUR_FAILURE};
use rustix::stdio::stdin;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How to run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The label of where it runs stands before each line of a command's output, if there are several.
    pub prefix: bool,
    /// When one command fails, the others go on.
    pub keep_going: bool,
    /// One interrupt (ctrl-C) is enough to end commands that ignore it.
    pub insist: bool,
}

/// How long commands may take to end after they were asked to.
const GRACE: Duration = Duration::from_secs(3);
/// How long a machine may take to say that a command which was killed has ended.
const LAST_WORD: Duration = Duration::from_secs(5);
/// What ctrl-C is on a terminal.
const CTRL_C: u8 = 3;
/// Exit code when nobody reads our output any more.
const PIPE_CLOSED: u8 = 128 + libc::SIGPIPE as u8;

/// Runs all jobs. Returns the exit code of the first that failed, or zero. A job that is the only one, and on this kernel, takes this
/// process's place.
pub fn run(jobs: &[Job], options: Options) -> Result<u8> {
    if let [only] = jobs {
        if matches!(only.location, Location::Local) {
            return Err(local::become_command(only));
        }
    }
    let terminal = jobs.iter().any(|job| job.terminal);
    if terminal {
        terminal::check()?;
    }
    let signals = Signals::new().explain(|| "could not watch for signals".into())?;
    let group = Group::start(jobs, options.prefix && jobs.len() > 1)?;
    let raw = terminal.then(Raw::begin).transpose();
    let mut run = Run {
        jobs,
        group,
        options,
        raw: raw.explain(|| "could not take the terminal".into())?,
        failed: None,
        asked: None,
        kill_at: None,
        killed: None,
        said: BTreeSet::new(),
    };
    match run.run(&signals) {
        Ok(()) => Ok(run.failed.unwrap_or(0)),
        Err(e) => {
            run.signal(libc::SIGKILL);
            if e.kind() == io::ErrorKind::BrokenPipe {
                return Ok(PIPE_CLOSED);
            }
            Err(Error::new(format!(
                "could not pass on the commands' output: {e}"
            )))
        }
    }
}

struct Run<'a> {
    jobs: &'a [Job],
    group: Group,
    options: Options,
    /// The user's terminal, if a command has it.
    raw: Option<Raw>,
    failed: Option<u8>,
    /// When the user asked to end, and by which signal, until it was seen whether the machines answer.
    asked: Option<(Instant, i32)>,
    /// When those that have not ended are killed.
    kill_at: Option<Instant>,
    /// Since when they are.
    killed: Option<Instant>,
    /// What the user was told.
    said: BTreeSet<String>,
}

impl Run<'_> {
    fn run(&mut self, signals: &Signals) -> io::Result<()> {
        let mut input_open = self.jobs.iter().any(|job| job.stdin);
        while self.group.runs() {
            let room = self
                .group
                .input_room()
                .filter(|_| input_open && may_read_input());
            let ready = self.wait(signals, room)?;
            if ready.signals {
                for signal in signals.take() {
                    self.pass_on(signal);
                }
            }
            if let (true, Some(room)) = (ready.input, room) {
                input_open = self.read_input(room);
            }
            self.group.service()?;
            if self.kill_at.is_some_and(|at| Instant::now() >= at) && self.killed.is_none() {
                self.signal(libc::SIGKILL);
            }
            self.give_up()?;
            for index in self.group.take_ended() {
                self.report_end(index);
            }
        }
        Ok(())
    }

    /// Waits no longer for machines that stand still when the user has asked to end, or all was killed.
    fn give_up(&mut self) -> io::Result<()> {
        if let Some((_, signal)) = self.asked.take_if(|(at, _)| at.elapsed() >= GRACE) {
            let code = 128u8.saturating_add(signal as u8);
            self.group.give_up(GRACE, code)?;
        }
        match self.killed.filter(|since| since.elapsed() >= LAST_WORD) {
            Some(_) => self.group.give_up(LAST_WORD, OUR_FAILURE),
            None => Ok(()),
        }
    }

    /// The user has asked to end: whether machines answer is looked at when they have had time for it.
    fn ask(&mut self, signal: i32) {
        self.asked.get_or_insert((Instant::now(), signal));
    }

    /// Says why a task failed that has just ended, and has the others end.
    fn report_end(&mut self, index: usize) {
        let Some(outcome) = self.group.outcome(index) else {
            return;
        };
        let code = outcome.code();
        let job = &self.jobs[index];
        let said = match outcome {
            Outcome::Ended(_) => None,
            Outcome::Failed(_, why) => Some(format!("{}: {why}", job.runs_on())),
        };
        let invisible = job.invisible_file().filter(|_| code != 0).map(|file| {
            format!(
                "{}: the machine does not see {}. Machines see what is shared with them when they are started: vshmem up --share DIR",
                job.runs_on(),
                file.display()
            )
        });
        for text in said.into_iter().chain(invisible) {
            self.print_error(text);
        }
        if code != 0 && self.failed.is_none() {
            self.failed = Some(code);
            if !self.options.keep_going {
                self.signal(libc::SIGTERM);
                self.kill_at.get_or_insert(Instant::now() + GRACE);
            }
        }
    }

    /// Says it once, however many it is true of.
    fn print_error(&mut self, text: String) {
        // A terminal that a program has does not go to the beginning of the next line by itself.
        let end = if self.raw.is_some() { "\r\n" } else { "\n" };
        if !self.said.contains(&text) {
            eprint!("vshmem: {}{end}", text.replace('\n', end));
            self.said.insert(text);
        }
    }

    fn read_input(&mut self, room: usize) -> bool {
        let mut bytes = vec![0; room];
        // Not by the standard library, whose buffer may keep bytes of which poll knows nothing.
        let len = rustix::io::retry_on_intr(|| rustix::io::read(stdin(), &mut bytes)).unwrap_or(0);
        self.group.input(&bytes[..len]);
        if self.raw.is_some() && bytes[..len].contains(&CTRL_C) {
            // The program gets it if its machine runs; who wants to leave one that stands still has no other way.
            self.ask(libc::SIGINT);
        }
        len > 0
    }

    fn pass_on(&mut self, signal: i32) {
        match signal {
            libc::SIGCHLD => return,
            libc::SIGWINCH => {
                if self.raw.is_some() {
                    self.group.resize();
                }
                return;
            }
            _ => (),
        }
        self.ask(signal);
        if self.kill_at.is_some() {
            // Asked a second time.
            self.signal(libc::SIGKILL);
            return;
        }
        let grace = if self.options.insist || signal != libc::SIGINT {
            GRACE
        } else {
            Duration::from_secs(3600)
        };
        self.kill_at = Some(Instant::now() + grace);
        self.signal(signal);
    }

    fn signal(&mut self, signal: i32) {
        if signal == libc::SIGKILL {
            self.killed.get_or_insert_with(Instant::now);
        }
        self.group.signal(signal);
    }

    fn wait(&self, signals: &Signals, room: Option<usize>) -> io::Result<Ready> {
        let entry = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let input = if room.is_some_and(|room| room > 0) {
            0
        } else {
            -1
        };
        let mut entries = vec![
            entry(signals.fd.as_raw_fd(), libc::POLLIN),
            entry(input, libc::POLLIN),
        ];
        let descriptors = self.group.descriptors().into_iter();
        entries.extend(descriptors.map(|(fd, events)| entry(fd, events)));
        let kill_at = self.kill_at.filter(|_| self.killed.is_none());
        let look_at = self.asked.map(|(at, _)| at + GRACE);
        let moments = kill_at.into_iter().chain(look_at);
        let times = moments.map(|at| at.saturating_duration_since(Instant::now()));
        let times = times.chain(self.group.poll_interval());
        let timeout = times.min().map_or(-1, |time| time.as_millis() as i32 + 1);
        // SAFETY: the list has as many entries as poll is told.
        let count =
            unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout) };
        if count < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(Ready {
            signals: entries[0].revents != 0,
            input: entries[1].revents != 0,
        })
    }
}

struct Ready {
    signals: bool,
    input: bool,
}

/// A command in the background must not read from the terminal: the kernel would stop it.
fn may_read_input() -> bool {
    if !io::stdin().is_terminal() {
        return true;
    }
    // SAFETY: plain values.
    unsafe { libc::tcgetpgrp(0) == libc::getpgrp() }
}

/// Signals that ask us to end, and those that tell of children and of the terminal's size, as something to poll.
struct Signals {
    fd: OwnedFd,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        // SAFETY: `set` is initialised by sigemptyset before it is read; the result is checked before it is taken
        // for a descriptor.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [
                libc::SIGINT,
                libc::SIGQUIT,
                libc::SIGTERM,
                libc::SIGHUP,
                libc::SIGCHLD,
                libc::SIGWINCH,
            ] {
                libc::sigaddset(&mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Signals {
                fd: OwnedFd::from_raw_fd(fd),
            })
        }
    }

    fn take(&self) -> Vec<i32> {
        let mut out = Vec::new();
        loop {
            // SAFETY: all zeros is a value of this structure of integers, and the kernel writes one of its size.
            let (len, info) = unsafe {
                let mut info: libc::signalfd_siginfo = std::mem::zeroed();
                let size = size_of::<libc::signalfd_siginfo>();
                let to: *mut libc::signalfd_siginfo = &mut info;
                (libc::read(self.fd.as_raw_fd(), to.cast(), size), info)
            };
            if len <= 0 {
                return out;
            }
            out.push(info.ssi_signo as i32);
        }
    }
}
