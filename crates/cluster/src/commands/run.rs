//! Runs commands on several kernels at once: passes on output, input and signals, and ends all of them when
//! one fails.

use super::group::Group;
use super::job::{Job, Location};
use super::local;
use super::outcome::Outcome;
use super::terminal::Raw;
use crate::error::{error, Explain, Result, OUR_FAILURE};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::tcgetpgrp;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use vshmem_agent::signals::Signals;

/// How to run commands.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Each line of output is preceded by its command's label, if there are several commands.
    pub prefix: bool,
    /// The others go on when one command fails.
    pub keep_going: bool,
    /// A single ctrl-C ends commands, even if they ignore it.
    pub insist: bool,
}

/// How long commands may take to end after SIGTERM or an interrupt.
const GRACE: Duration = Duration::from_secs(3);
/// How long a machine may take to report the end of a command that was killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The same signal twice within this time is one interrupt: timeout(1) signals its command, and then the
/// command's process group.
const SAME_INTERRUPT: Duration = Duration::from_millis(100);
/// Ctrl-C on a terminal.
const CTRL_C: u8 = 3;
/// Signals that ask this process to end, and others that it passes on or looks at.
const WATCHED: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD, libc::SIGWINCH];
/// Exit code if nobody reads our output any more.
const PIPE_CLOSED: u8 = 128 + libc::SIGPIPE as u8;

/// Runs all jobs. Returns the exit code of the first that failed, or zero. A single job on this kernel is
/// executed in place of this process.
pub fn run(jobs: &[Job], options: Options) -> Result<u8> {
    if let [only] = jobs {
        if matches!(only.location, Location::Local) {
            return Err(local::become_command(only));
        }
    }
    let terminal = jobs.iter().any(|job| job.request.terminal.is_some());
    let signals = Signals::watch(&WATCHED).explain(|| "could not watch for signals".into())?;
    let group = Group::start(jobs, options.prefix && jobs.len() > 1)?;
    let raw = terminal.then(Raw::begin).transpose();
    let mut run = Run {
        jobs,
        group,
        options,
        raw: raw.explain(|| "could not take the terminal".into())?,
        failed: None,
        interrupted: None,
        passed_on: None,
        kill_at: None,
        killed: None,
        printed: BTreeSet::new(),
    };
    match run.run(&signals) {
        Ok(()) => Ok(run.failed.unwrap_or(0)),
        Err(e) => {
            run.signal(libc::SIGKILL);
            if e.kind() == io::ErrorKind::BrokenPipe {
                return Ok(PIPE_CLOSED);
            }
            Err(error!("could not pass on the commands' output: {e}"))
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
    /// When the user interrupted, and by which signal; `None` once it was checked whether machines answer.
    interrupted: Option<(Instant, i32)>,
    /// When the last signal came that was passed on, and which.
    passed_on: Option<(Instant, i32)>,
    /// When commands that have not ended will be killed.
    kill_at: Option<Instant>,
    /// Since when they are killed.
    killed: Option<Instant>,
    /// Errors that were printed.
    printed: BTreeSet<String>,
}

impl Run<'_> {
    fn run(&mut self, signals: &Signals) -> io::Result<()> {
        let mut input_open = self.jobs.iter().any(|job| job.request.stdin);
        while self.group.runs() {
            let room = self.group.input_room().filter(|_| input_open && may_read_input());
            let ready = self.wait(signals, room)?;
            if ready.signals {
                while let Some(signal) = signals.next() {
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

    /// Gives up machines that are stopped, once the user has interrupted or everything was killed.
    fn give_up(&mut self) -> io::Result<()> {
        if let Some((_, signal)) = self.interrupted.take_if(|(at, _)| at.elapsed() >= GRACE) {
            let code = 128u8.saturating_add(signal as u8);
            self.group.give_up(GRACE, code)?;
        }
        match self.killed.filter(|since| since.elapsed() >= KILL_TIMEOUT) {
            Some(_) => self.group.give_up(KILL_TIMEOUT, OUR_FAILURE),
            None => Ok(()),
        }
    }

    /// The user has interrupted. Machines get some time before it is checked whether they answer.
    fn interrupt(&mut self, signal: i32) {
        self.interrupted.get_or_insert((Instant::now(), signal));
    }

    /// Prints why a task failed that has just ended, and ends the others.
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

    /// Prints it once, even if it applies to several tasks.
    fn print_error(&mut self, text: String) {
        // A raw terminal does not return to the beginning of the line by itself.
        let end = if self.raw.is_some() { "\r\n" } else { "\n" };
        if !self.printed.contains(&text) {
            eprint!("vshmem: {}{end}", text.replace('\n', end));
            self.printed.insert(text);
        }
    }

    fn read_input(&mut self, room: usize) -> bool {
        let mut bytes = vec![0; room];
        // The standard library would buffer input, of which poll knows nothing.
        let len = rustix::io::retry_on_intr(|| rustix::io::read(stdin(), &mut bytes)).unwrap_or(0);
        self.group.input(&bytes[..len]);
        if self.raw.is_some() && bytes[..len].contains(&CTRL_C) {
            // The program gets it if its machine runs; there is no other way to leave one that is stopped.
            self.interrupt(libc::SIGINT);
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
        let last = self.passed_on.replace((Instant::now(), signal));
        if last.is_some_and(|(at, of)| of == signal && at.elapsed() < SAME_INTERRUPT) {
            return;
        }
        self.interrupt(signal);
        if self.kill_at.is_some() {
            // The second interrupt.
            self.signal(libc::SIGKILL);
            return;
        }
        let grace =
            if self.options.insist || signal != libc::SIGINT { GRACE } else { Duration::from_secs(3600) };
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
        let input = stdin();
        let mut entries = vec![PollFd::new(signals, PollFlags::IN)];
        let wanted = room.is_some_and(|room| room > 0);
        entries.extend(wanted.then(|| PollFd::new(&input, PollFlags::IN)));
        entries.extend(self.group.descriptors());
        let kill_at = self.kill_at.filter(|_| self.killed.is_none());
        let look_at = self.interrupted.map(|(at, _)| at + GRACE);
        let moments = kill_at.into_iter().chain(look_at);
        let times = moments.map(|at| at.saturating_duration_since(Instant::now()));
        let times = times.chain(self.group.poll_interval());
        let timeout = times.min().and_then(|time| time.try_into().ok());
        match poll(&mut entries, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
        Ok(Ready {
            signals: !entries[0].revents().is_empty(),
            input: wanted && !entries[1].revents().is_empty(),
        })
    }
}

struct Ready {
    signals: bool,
    input: bool,
}

/// A background process that reads from the terminal is stopped by the kernel.
fn may_read_input() -> bool {
    if !io::stdin().is_terminal() {
        return true;
    }
    tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}
