//! Runs commands in several places at once: passes on output, input and signals, and ends all when one fails.

use super::command::Job;
use super::task::{Outcome, Task};
use crate::error::{Error, Explain, Result};
use std::io::{self, IsTerminal, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How to run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The label of its place stands before each line of a command's output.
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
/// Exit code when nobody reads our output any more.
const PIPE_CLOSED: u8 = 128 + libc::SIGPIPE as u8;

/// Runs all jobs. Returns the exit code of the first that failed, or zero.
pub fn run(jobs: &[Job], options: Options) -> Result<u8> {
    let signals = Signals::new().explain(|| "could not watch for signals".into())?;
    let mut tasks = Vec::new();
    for job in jobs {
        // On an error those that were started end with their channels.
        tasks.push(Task::start(job, options.prefix)?);
    }
    let mut group = Group {
        jobs,
        tasks,
        options,
        failed: None,
        kill_at: None,
        killed: None,
    };
    match group.run(&signals) {
        Ok(()) => Ok(group.failed.unwrap_or(0)),
        Err(e) => {
            group.signal(libc::SIGKILL);
            if e.kind() == io::ErrorKind::BrokenPipe {
                return Ok(PIPE_CLOSED);
            }
            Err(Error::new(format!(
                "could not pass on the commands' output: {e}"
            )))
        }
    }
}

struct Group<'a> {
    jobs: &'a [Job],
    tasks: Vec<Task>,
    options: Options,
    failed: Option<u8>,
    /// When those that have not ended are killed.
    kill_at: Option<Instant>,
    /// Since when they are.
    killed: Option<Instant>,
}

impl Group<'_> {
    fn run(&mut self, signals: &Signals) -> io::Result<()> {
        let mut input_open = self.jobs.iter().any(|job| job.stdin);
        while self.tasks.iter().any(|task| task.outcome().is_none()) {
            let room = self.input_room().filter(|_| input_open && may_read_input());
            let ready = self.wait(signals, room)?;
            if ready.signals {
                for signal in signals.take() {
                    self.pass_on(signal);
                }
            }
            if let (true, Some(room)) = (ready.input, room) {
                input_open = self.read_input(room);
            }
            for place in 0..self.tasks.len() {
                self.service(place)?;
            }
            if self.kill_at.is_some_and(|at| Instant::now() >= at) && self.killed.is_none() {
                self.signal(libc::SIGKILL);
            }
            if self
                .killed
                .is_some_and(|since| since.elapsed() >= LAST_WORD)
            {
                for place in 0..self.tasks.len() {
                    if self.tasks[place].give_up(LAST_WORD) {
                        self.note(place);
                    }
                }
            }
        }
        Ok(())
    }

    fn service(&mut self, place: usize) -> io::Result<()> {
        let task = &mut self.tasks[place];
        if task.outcome().is_some() {
            return Ok(());
        }
        task.service()?;
        self.note(place);
        Ok(())
    }

    /// Says why a task failed that has just ended, and has the others end.
    fn note(&mut self, place: usize) {
        let Some(outcome) = self.tasks[place].outcome() else {
            return;
        };
        let code = outcome.code();
        let job = &self.jobs[place];
        if let Outcome::Failed(_, why) = outcome {
            eprintln!("vshmem: {}: {why}", job.label);
        }
        if let Some(file) = job.unseen().filter(|_| code != 0) {
            eprintln!(
                "vshmem: {}: the machine does not see {}. Machines see what is shared with them when they are started: vshmem up --share DIR",
                job.label,
                file.display()
            );
        }
        if code != 0 && self.failed.is_none() {
            self.failed = Some(code);
            if !self.options.keep_going {
                self.signal(libc::SIGTERM);
                self.kill_at.get_or_insert(Instant::now() + GRACE);
            }
        }
    }

    fn input_room(&self) -> Option<usize> {
        self.tasks.iter().find_map(Task::input_room)
    }

    fn read_input(&mut self, room: usize) -> bool {
        let mut bytes = vec![0; room];
        let len = io::stdin().lock().read(&mut bytes).unwrap_or(0);
        let reader = self
            .tasks
            .iter_mut()
            .find(|task| task.input_room().is_some());
        if let Some(task) = reader {
            task.input(&bytes[..len]);
        }
        len > 0
    }

    fn pass_on(&mut self, signal: i32) {
        if signal == libc::SIGCHLD {
            return;
        }
        if self.kill_at.is_some() {
            // Asked a second time.
            self.signal(libc::SIGKILL);
            return;
        }
        let patience = if self.options.insist || signal != libc::SIGINT {
            GRACE
        } else {
            Duration::from_secs(3600)
        };
        self.kill_at = Some(Instant::now() + patience);
        self.signal(signal);
    }

    fn signal(&mut self, signal: i32) {
        if signal == libc::SIGKILL {
            self.killed.get_or_insert_with(Instant::now);
        }
        for task in &mut self.tasks {
            task.signal(signal);
        }
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
        for task in &self.tasks {
            entries.extend(
                task.descriptors()
                    .into_iter()
                    .map(|(fd, events)| entry(fd, events)),
            );
        }
        let kill_at = self.kill_at.filter(|_| self.killed.is_none());
        let kill_in = kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        let times = self.tasks.iter().filter_map(Task::patience).chain(kill_in);
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

/// Signals that ask us to end, and those that tell of children, as something to poll.
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
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
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
                let place: *mut libc::signalfd_siginfo = &mut info;
                (libc::read(self.fd.as_raw_fd(), place.cast(), size), info)
            };
            if len <= 0 {
                return out;
            }
            out.push(info.ssi_signo as i32);
        }
    }
}
