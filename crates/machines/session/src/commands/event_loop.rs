//! The event loop of commands that run: it passes on input, output and signals, and kills commands that do
//! not end in time.

use super::output::Stream;
use super::tasks::Tasks;
use super::terminal::Raw;
use super::writers::Writers;
use crate::wire::ended::Ended;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::tcgetpgrp;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use vshmem_base::error::{Explain, Result, OUR_FAILURE};
use vshmem_base::signal_descriptor::Signals;

/// Time that commands may take to end after SIGTERM or an interrupt.
pub const GRACE: Duration = Duration::from_secs(3);
/// Time within which a repeated signal is the same interrupt: timeout(1) signals its command, and then the
/// command's process group.
const SAME_INTERRUPT: Duration = Duration::from_millis(100);
/// Ctrl-C on a terminal.
const CTRL_C: u8 = 3;
/// The signals that ask this process to end.
const ASKS_TO_END: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
/// The other signals that it watches.
const ALSO_WATCHED: [i32; 2] = [libc::SIGCHLD, libc::SIGWINCH];
/// Time for the last of the output to be read once the user has asked commands to end, and all were killed.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);
const SILENT: &str = "the machine does not answer (is it paused?): what runs there is killed when it goes on";
const UNREAD: &str = "nobody reads the commands' output: what was not passed on is lost";
/// Different errors that are printed in one run. Guests write some of them, so there must be a limit.
const MAX_ERRORS: usize = 4096;

/// Settings of an event loop.
pub struct Settings {
    /// A single ctrl-C ends commands, even if they ignore it.
    pub insist: bool,
    /// Input is read and passed on.
    pub stdin: bool,
    /// A command has the user's terminal.
    pub terminal: bool,
    /// Time that a machine may take to report the end of a command that was killed.
    pub kill_timeout: Duration,
}

/// The tasks that get signals and input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipients {
    /// All tasks; input goes to the one that takes it.
    All,
    /// This task.
    One(usize),
    /// No task.
    None,
}

/// The event loop of commands that run.
pub struct EventLoop {
    /// The commands' tasks.
    pub tasks: Tasks,
    /// The tasks that get signals and input.
    pub recipients: Recipients,
    /// The writers of this process's own output.
    pub writers: Writers,
    signals: Signals,
    settings: Settings,
    input_open: bool,
    /// The user's terminal, if a command has it.
    raw: Option<Raw>,
    /// The time and signal of the user's interruption; `None` once it was checked whether machines answer.
    interrupted: Option<(Instant, i32)>,
    /// The time and number of the last signal that was passed on.
    passed_on: Option<(Instant, i32)>,
    /// The time at which commands that have not ended will be killed.
    kill_at: Option<Instant>,
    /// The time since which they are killed.
    killed: Option<Instant>,
    /// Errors that were printed.
    printed: BTreeSet<String>,
}

impl EventLoop {
    /// Watches for signals, then has commands started.
    pub fn start(settings: Settings, start: impl FnOnce(&Writers) -> Result<Tasks>) -> Result<EventLoop> {
        let signals = Signals::watch(&[&ASKS_TO_END[..], &ALSO_WATCHED].concat())
            .explain(|| "could not watch for signals".into())?;
        // Its threads have these signals blocked.
        let writers = Writers::start()?;
        let tasks = start(&writers)?;
        let raw = settings.terminal.then(Raw::begin).transpose();
        Ok(EventLoop {
            tasks,
            recipients: Recipients::All,
            writers,
            signals,
            input_open: settings.stdin,
            settings,
            raw: raw.explain(|| "could not take the terminal".into())?,
            interrupted: None,
            passed_on: None,
            kill_at: None,
            killed: None,
            printed: BTreeSet::new(),
        })
    }

    /// Waits for an event, and handles it. An error is about our own output.
    pub fn step(&mut self) -> io::Result<()> {
        let reader = match self.recipients {
            Recipients::All => self.tasks.input_task(),
            Recipients::One(task) => Some(task),
            Recipients::None => None,
        };
        let room =
            reader.filter(|_| self.input_open).and_then(|task| Some((task, self.tasks.input_room(task)?)));
        let room = room.filter(|_| may_read_input());
        // Signals and what has a time limit go on while nobody reads the output.
        let receives = !self.writers.full();
        let ready = self.wait(room.is_some_and(|(_, room)| room > 0), receives)?;
        self.writers.check()?;
        if ready.signals {
            while let Some(signal) = self.signals.next() {
                self.pass_on(signal);
            }
        }
        if let (true, Some((task, room))) = (ready.input, room) {
            self.input_open = self.read_input(task, room);
        }
        self.tasks.service(receives)?;
        if self.kill_at.is_some_and(|at| Instant::now() >= at) && self.killed.is_none() {
            self.kill();
        }
        self.give_up(receives)
    }

    /// Gives up machines that are stopped, once the user has interrupted or everything was killed; also those
    /// whose output nobody reads, once both have happened.
    fn give_up(&mut self, receives: bool) -> io::Result<()> {
        if let Some((_, signal)) = self.interrupted.take_if(|(at, _)| at.elapsed() >= GRACE) {
            self.tasks.give_up(GRACE, exit_code(signal), SILENT)?;
        }
        let timeout = self.settings.kill_timeout;
        if self.killed.is_none_or(|since| since.elapsed() < timeout) {
            return Ok(());
        }
        match self.asked_to_end() {
            Some(signal) if !receives => self.tasks.give_up(Duration::ZERO, exit_code(signal), UNREAD),
            _ => self.tasks.give_up(timeout, OUR_FAILURE, SILENT),
        }
    }

    /// Waits until the output is written, unless the user has no more time. The exit code, if a signal has
    /// ended that.
    pub fn finish(&mut self) -> io::Result<Option<u8>> {
        let killed = self.killed.map(|_| Instant::now() + LAST_OUTPUT_TIMEOUT);
        let until = killed.or(self.kill_at).filter(|_| self.passed_on.is_some());
        while self.writers.busy() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let mut entries =
                [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.writers, PollFlags::IN)];
            poll_for(&mut entries, left)?;
            self.writers.check()?;
            while let Some(signal) = self.signals.next() {
                if ASKS_TO_END.contains(&signal) && !self.is_repeated(signal) {
                    return Ok(Some(exit_code(signal)));
                }
            }
        }
        self.writers.check().map(|()| None)
    }

    /// The user has interrupted. Machines get some time before it is checked whether they answer.
    fn interrupt(&mut self, signal: i32) {
        self.interrupted.get_or_insert((Instant::now(), signal));
    }

    /// Prints an error once, even if it applies to several tasks.
    pub fn print_error(&mut self, text: String) {
        // A raw terminal does not return to the beginning of the line by itself.
        let end = if self.raw.is_some() { "\r\n" } else { "\n" };
        if self.printed.len() < MAX_ERRORS && !self.printed.contains(&text) {
            let line = format!("vshmem: {}{end}", text.replace('\n', end));
            // Without a reader there is nobody to tell.
            let _ = self.writers.stream(Stream::Err).write_all(line.as_bytes());
            self.printed.insert(text);
        }
    }

    fn read_input(&mut self, task: usize, room: usize) -> bool {
        let mut bytes = vec![0; room];
        // The standard library would buffer input, of which poll knows nothing.
        let len = rustix::io::retry_on_intr(|| rustix::io::read(stdin(), &mut bytes)).unwrap_or(0);
        self.tasks.input(task, &bytes[..len]);
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
                    self.tasks.resize();
                }
                return;
            }
            _ => (),
        }
        if self.is_repeated(signal) {
            return;
        }
        self.interrupt(signal);
        if self.kill_at.is_some() {
            // The second interrupt.
            self.kill();
            return;
        }
        let insists = self.settings.insist || signal != libc::SIGINT;
        let grace = if insists { GRACE } else { Duration::from_secs(3600) };
        self.kill_at = Some(Instant::now() + grace);
        match self.recipients {
            Recipients::All => self.tasks.signal(signal),
            Recipients::One(task) => self.tasks.signal_one(task, signal),
            Recipients::None => (),
        }
    }

    /// Whether it is the same interrupt as the last signal that was passed on.
    fn is_repeated(&mut self, signal: i32) -> bool {
        let last = self.passed_on.replace((Instant::now(), signal));
        last.is_some_and(|(at, of)| of == signal && at.elapsed() < SAME_INTERRUPT)
    }

    /// The last signal that asked commands to end, if one came.
    pub fn asked_to_end(&self) -> Option<i32> {
        self.passed_on.map(|(_, signal)| signal)
    }

    /// The time since commands are killed.
    pub fn killed_for(&self) -> Option<Duration> {
        self.killed.map(|since| since.elapsed())
    }

    /// Asks all commands to end, and kills those that don't in time.
    pub fn end(&mut self) {
        self.tasks.signal(libc::SIGTERM);
        self.kill_within(GRACE);
    }

    /// Kills commands that have not ended by themselves in this time.
    pub fn kill_within(&mut self, time: Duration) {
        self.kill_at.get_or_insert(Instant::now() + time);
    }

    /// Kills all commands.
    pub fn kill(&mut self) {
        self.killed.get_or_insert_with(Instant::now);
        self.tasks.signal(libc::SIGKILL);
    }

    fn wait(&self, wanted: bool, receives: bool) -> io::Result<Ready> {
        let input = stdin();
        let mut entries =
            vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.writers, PollFlags::IN)];
        entries.extend(wanted.then(|| PollFd::new(&input, PollFlags::IN)));
        entries.extend(self.tasks.descriptors(receives));
        let kill_at = self.kill_at.filter(|_| self.killed.is_none());
        let look_at = self.interrupted.map(|(at, _)| at + GRACE);
        let moments = kill_at.into_iter().chain(look_at);
        let times = moments.map(|at| at.saturating_duration_since(Instant::now()));
        let times = times.chain(self.tasks.poll_interval());
        poll_for(&mut entries, times.min())?;
        Ok(Ready {
            signals: !entries[0].revents().is_empty(),
            input: wanted && !entries[2].revents().is_empty(),
        })
    }
}

/// Waits for one of these, at most for so long, or for a signal.
fn poll_for(entries: &mut [PollFd], time: Option<Duration>) -> io::Result<()> {
    let timeout = time.and_then(|time| time.try_into().ok());
    match poll(entries, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The exit code of a command that a signal has ended, as a shell has it.
pub fn exit_code(signal: i32) -> u8 {
    Ended::Killed(signal as u8).code()
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
