//! Runs an MPI's launcher in the first host of a job, and starts in the job's hosts what it asks for.
//!
//! In the first host runs a relay beside the launcher (`remote_shell`). The launcher's remote shell asks the
//! relay, which asks this process. A request is judged ([`Launch::admit`]), and what is admitted is started
//! as one more command of the group. So a guest can have the user's programs started only while this runs,
//! only in hosts of the job, and only those that are admitted.
//!
//! The loss of any host ends the job.

pub mod requests;
pub mod words;

use super::event_loop::{exit_code, Audience, EventLoop, Settings, GRACE};
use super::group::Group;
use super::job::Job;
use super::location::Location;
use super::outcome::Outcome;
use super::output::{Output, Stream};
use super::run::written;
use crate::wire::ended::Ended;
use requests::{Request, Requests};
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use vshmem_base::error::{Error, Result, OUR_FAILURE};

/// How long a machine may take to report the end of a command that was killed: a job whose host was lost is
/// over within five seconds.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);
/// Refused requests after which the job is ended.
const MOST_REFUSALS: u32 = 64;

/// A host of a job.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its name, by which a launcher asks for it.
    pub name: String,
    /// Where and how commands run in it; the command itself is filled in.
    pub job: Job,
}

/// Judges the words that a launcher wants to run in another host.
pub type Admit = dyn Fn(&[OsString]) -> Result<Vec<OsString>>;

/// An MPI job to be launched.
pub struct Launch<'a> {
    /// Its hosts. The launcher runs in the first.
    pub hosts: Vec<Host>,
    /// The words of the launcher, which is to use the program at this path as its remote shell. The path is
    /// one in the first host.
    pub command: &'a dyn Fn(&Path) -> Vec<OsString>,
    /// Judges the words that the launcher wants to run in another host: the words to run, or why not. The
    /// words are those of a shell's command line; `;`, `$` and the like are words, or parts of words, since
    /// no shell sees them.
    pub admit: &'a Admit,
    /// The path of `vshmem` in the first host, unless that is reached: then its location says that.
    pub program: &'a Path,
    /// The launcher and its daemons get directories for temporary files, which are removed when they end.
    pub scratch: bool,
    /// The launcher gets standard input.
    pub stdin: bool,
}

/// Launches a job, and returns the launcher's exit code, or 128 and the number of the signal that has asked
/// the job to end. Ctrl-C and signals that ask to end go to the launcher; everything that has not ended three
/// seconds later, or at a second ctrl-C, is killed.
///
/// # Errors
/// A host can't be reached, or the first can't run the relay.
pub fn launch(launch: &Launch) -> Result<u8> {
    let first = launch.hosts.first().ok_or_else(|| Error::new("the job has no host"))?;
    let settings =
        Settings { insist: true, stdin: launch.stdin, terminal: false, kill_timeout: KILL_TIMEOUT };
    let said = Said::default();
    let relay = relay_job(first, launch.program);
    let mut tasks = EventLoop::start(settings, |writers| {
        let mut group = Group::default();
        for host in &launch.hosts {
            group.keep(&host.job.location)?;
        }
        // The relay is task 0.
        let output = Output::new(None, [Box::new(said.clone()), writers.stream(Stream::Err)]);
        group.add(&relay, output)?;
        Ok(group)
    })?;
    tasks.audience = Audience::Nobody;
    let mut launched = Launched {
        launch,
        tasks,
        said,
        requests: Requests::default(),
        launcher: None,
        complained: Rc::default(),
        unused: launch.hosts.iter().skip(1).map(|host| host.name.as_str()).collect(),
        code: None,
        refusals: 0,
        hung_up: Vec::new(),
        broken: None,
    };
    let ran = launched.run();
    written(&mut launched.tasks, ran).map(|code| code.or(launched.code).unwrap_or(OUR_FAILURE))
}

/// The relay's task.
const RELAY: usize = 0;

/// The relay's command in the first host.
fn relay_job(first: &Host, program: &Path) -> Job {
    let mut job = first.job.clone();
    let program = match &job.location {
        Location::Reached(reached) => &reached.program,
        _ => program,
    };
    if matches!(job.location, Location::Machine(..)) {
        job.request.needs.push(program.into());
    }
    job.request.argv = vec![program.into(), "rsh".into(), "--relay".into()];
    job.request.stdin = true;
    job.request.ends_with_session = true;
    job
}

/// What the relay has said and was not read yet.
#[derive(Clone, Default)]
struct Said(Rc<RefCell<Vec<u8>>>);

impl Said {
    fn take(&self) -> Vec<u8> {
        self.0.take()
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard error, and whether anything was written to it.
struct Complaints {
    to: Box<dyn Write>,
    any: Rc<Cell<bool>>,
}

impl Write for Complaints {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.any.set(true);
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Something has happened after which the launcher should end.
struct Broken {
    since: Instant,
    why: String,
    /// It may be the launcher's own deed, which has its remote shells end where it ends a job.
    by_launcher: bool,
}

/// A job that was launched.
struct Launched<'a> {
    launch: &'a Launch<'a>,
    tasks: EventLoop,
    said: Said,
    requests: Requests,
    /// The launcher's task.
    launcher: Option<usize>,
    /// Whether the launcher, or a rank, has written to standard error.
    complained: Rc<Cell<bool>>,
    /// Names of other hosts in which it has not had anything started.
    unused: Vec<&'a str>,
    /// The exit code, once it is known.
    code: Option<u8>,
    refusals: u32,
    /// Tasks whose remote shells have ended, and since when they are asked to end.
    hung_up: Vec<(Instant, usize)>,
    /// Why the launcher should be about to end.
    broken: Option<Broken>,
}

impl Launched<'_> {
    fn run(&mut self) -> io::Result<()> {
        while self.tasks.group.runs() {
            self.tasks.step()?;
            self.look_for_lost();
            for task in self.tasks.group.take_ended() {
                self.ended(task);
            }
            let said = self.said.take();
            match self.requests.hear(&said) {
                Ok(requests) => requests.into_iter().for_each(|request| self.serve(request)),
                Err(why) => self.relay_failed(why),
            }
            self.send_answers();
            self.kill_hung_up();
            self.end_broken();
            self.dismiss_relay();
            if let (None, Some(code)) = (self.launcher, self.interrupted()) {
                self.end(code);
            }
            // What can't be killed, or is said to run on, ends with its channel.
            if self.tasks.killed_for().is_some_and(|time| time >= KILL_TIMEOUT) {
                break;
            }
        }
        Ok(())
    }

    /// Kills everything. The exit code is this one, unless another is known already: launchers may say 0
    /// before the loss is noticed that ended them, as Open MPI 5's does.
    fn end(&mut self, code: u8) {
        self.code = self.code.filter(|code| *code != 0).or(Some(code));
        if self.tasks.killed_for().is_none() {
            self.tasks.kill();
        }
    }

    /// Prints why the job is ended, and ends it.
    fn fail(&mut self, why: String) {
        self.tasks.print_error(why);
        self.end(self.interrupted().unwrap_or(OUR_FAILURE));
    }

    /// The exit code of a job that a signal has asked to end, as a shell has it.
    fn interrupted(&self) -> Option<u8> {
        self.tasks.asked_to_end().map(exit_code)
    }

    fn relay_failed(&mut self, why: &str) {
        let name = &self.launch.hosts[0].name;
        self.fail(format!("{name}: the relay of remote commands violates its protocol: {why}"));
    }

    fn ended(&mut self, task: usize) {
        let Some(outcome) = self.tasks.group.outcome(task).cloned() else {
            return;
        };
        let code = outcome.code();
        let name = self.tasks.group.location(task).map(|it| self.name_of(it)).unwrap_or_default();
        if let Outcome::Failed(_, why) = &outcome {
            self.tasks.print_error(format!("{name}: {why}"));
        }
        if Some(task) == self.launcher {
            if self.code.is_none() {
                self.explain_end(&outcome, &name);
            }
            self.launcher_ended(code);
        } else if task == RELAY {
            if self.code.is_none() {
                self.fail(format!("{name}: the relay of remote commands has ended"));
            }
        } else {
            if let Outcome::Ended(Ended::Killed(signal)) = outcome {
                let why = format!("{name}: signal {signal} has ended what the launcher had started there");
                self.breaks(why, false);
            }
            self.requests.ended(task, code);
            self.hung_up.retain(|(_, other)| *other != task);
            self.tasks.group.forget(task);
        }
    }

    /// Says what has ended the launcher, or may have ended a rank where it does not: MPICH's never says so,
    /// and Open MPI 5's not of a rank that was killed while it connected.
    fn explain_end(&mut self, launcher: &Outcome, host: &str) {
        // Of what ends the launcher too, the reason is said in its place.
        let known = self.broken.as_ref().is_some_and(|broken| !broken.by_launcher);
        let said = known || self.complained.get() || self.interrupted().is_some();
        let why = match launcher {
            Outcome::Ended(Ended::Killed(signal)) => format!("signal {signal} has ended the launcher"),
            Outcome::Ended(Ended::Exited(code @ 1..)) if !said => {
                let signal = match code % 128 {
                    signal @ 1..=64 => format!(", or signal {signal} may have ended it"),
                    _ => String::new(),
                };
                format!(
                    "the launcher has ended with {code} and without a word: a rank may have done so{signal}"
                )
            }
            _ => return,
        };
        self.tasks.print_error(format!("{host}: {why}"));
    }

    /// What it has started gets some time to end by itself. Hydra ends with 0 when it was interrupted, and
    /// Open MPI 5's without a daemon or its remote shell.
    fn launcher_ended(&mut self, code: u8) {
        let interrupted = self.interrupted();
        let mut code = interrupted.unwrap_or(code);
        let broken = self.broken.take().filter(|_| interrupted.is_none());
        if let Some(broken) = broken.filter(|broken| code == 0 || !broken.by_launcher) {
            self.tasks.print_error(broken.why);
            code = if code == 0 { OUR_FAILURE } else { code };
        }
        if code == 0 && !self.unused.is_empty() {
            let (first, unused) = (&self.launch.hosts[0].name, self.unused.join(", "));
            self.tasks.print_error(format!(
                "the launcher in {first} started no ranks in {unused}: it took them for {first} itself, where their \
                 ranks ran. Each host's name must lead to an address of its own"
            ));
        }
        self.code.get_or_insert(code);
        self.tasks.kill_within(GRACE);
    }

    /// The relay ends when the launcher and all that it has started have ended.
    fn dismiss_relay(&mut self) {
        let ended = self.launcher.is_some_and(|task| self.tasks.group.outcome(task).is_some());
        if ended && !self.requests.any() && self.tasks.group.input_room(RELAY).is_some() {
            self.tasks.group.input(RELAY, &[]);
        }
    }

    /// A host's name.
    fn name_of(&self, location: &Location) -> String {
        let host = self.launch.hosts.iter().find(|host| host.job.location.place() == location.place());
        host.map_or(String::new(), |host| host.name.clone())
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::Begin(shell) => self.start_launcher(&shell),
            Request::Start { id, host, command } => {
                if let Err(why) = self.start_remote(id, &host, &command) {
                    self.refuse(id, &host, &command, &why);
                }
            }
            Request::End(id) => {
                if let Some(task) = self.requests.task(id) {
                    self.hang_up(task);
                }
            }
        }
    }

    /// The remote shell of this task has ended: its command is to end, too.
    fn hang_up(&mut self, task: usize) {
        if self.hung_up.iter().all(|(_, other)| *other != task) {
            let host = self.tasks.group.location(task).map(|it| self.name_of(it)).unwrap_or_default();
            let first = &self.launch.hosts[0].name;
            let why = format!("{first}: the launcher's remote shell for {host} has ended before its command");
            // The launcher may have noticed that first.
            if self.code == Some(0) && self.tasks.killed_for().is_none() {
                self.code = Some(OUR_FAILURE);
                self.tasks.print_error(why);
            } else {
                self.breaks(why, true);
            }
            self.hung_up.push((Instant::now(), task));
            self.tasks.group.signal_one(task, libc::SIGTERM);
        }
    }

    fn start_launcher(&mut self, shell: &Path) {
        if self.code.is_some() {
            return;
        }
        let mut job = self.launch.hosts[0].job.clone();
        job.request.argv = (self.launch.command)(shell);
        job.request.stdin = self.launch.stdin;
        job.request.ends_with_session = true;
        job.request.scratch = self.launch.scratch;
        let [out, err] = self.tasks.writers.streams();
        let errors = Complaints { to: err, any: self.complained.clone() };
        match self.tasks.group.add(&job, Output::new(None, [out, Box::new(errors)])) {
            Ok(task) => {
                self.launcher = Some(task);
                self.tasks.audience = Audience::One(task);
            }
            Err(why) => self.fail(format!("{}: {why}", self.launch.hosts[0].name)),
        }
    }

    fn start_remote(&mut self, id: u64, host: &str, command: &str) -> Result<()> {
        if self.code.is_some() {
            return Err(Error::new("the job ends"));
        }
        let host = self.launch.hosts.iter().find(|it| it.name == host);
        let host = host.ok_or_else(|| Error::new("the job has no such host"))?;
        let words = words::split(command).ok_or_else(|| Error::new("a quote does not end"))?;
        let mut job = host.job.clone();
        job.request.argv = (self.launch.admit)(&words)?;
        job.request.stdin = false;
        job.request.ends_with_session = true;
        job.request.scratch = self.launch.scratch;
        let task = self.tasks.group.add(&job, Output::new(None, self.tasks.writers.streams()))?;
        self.requests.started(id, task);
        self.unused.retain(|name| *name != host.name);
        Ok(())
    }

    fn refuse(&mut self, id: u64, host: &str, command: &str, why: &Error) {
        self.requests.refuse(id, &why.to_string());
        // A job that ends refuses all, which is no news.
        if self.code.is_some() {
            return;
        }
        let first = &self.launch.hosts[0].name;
        let what = shortened(command);
        self.tasks.print_error(format!(
            "{first} asked for a command in {}, which was refused: {why}\n  {what}",
            shortened(host)
        ));
        self.refusals += 1;
        if self.refusals >= MOST_REFUSALS {
            self.fail(format!("{first} asks again and again for what is refused"));
        }
    }

    fn send_answers(&mut self) {
        let room = self.tasks.group.input_room(RELAY);
        match self.requests.answers(room.unwrap_or(0)) {
            Ok(answers) if answers.is_empty() => (),
            Ok(answers) => self.tasks.group.input(RELAY, &answers),
            Err(why) => self.relay_failed(why),
        }
    }

    fn look_for_lost(&mut self) {
        let lost = self.tasks.group.lost();
        let lost: Vec<_> = lost.map(|(location, why)| format!("{}: {why}", self.name_of(location))).collect();
        for why in lost {
            self.fail(why);
        }
    }

    fn breaks(&mut self, why: String, by_launcher: bool) {
        self.broken.get_or_insert(Broken { since: Instant::now(), why, by_launcher });
    }

    /// A launcher that goes on without a daemon, or its remote shell, may wait for ever: MPICH's does.
    fn end_broken(&mut self) {
        let broken = self.broken.take_if(|broken| broken.since.elapsed() >= GRACE);
        if let (Some(broken), None) = (broken, self.code) {
            self.fail(broken.why);
        }
    }

    /// Kills commands whose remote shells have ended, and that did not end when they were asked to.
    fn kill_hung_up(&mut self) {
        let (due, rest): (Vec<_>, _) =
            self.hung_up.drain(..).partition(|(since, _)| since.elapsed() >= GRACE);
        self.hung_up = rest;
        for (_, task) in due {
            self.tasks.group.signal_one(task, libc::SIGKILL);
        }
    }
}

/// A guest's text for a terminal.
fn shortened(text: &str) -> String {
    const MOST: usize = 160;
    let text = vshmem_base::printable(text);
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
