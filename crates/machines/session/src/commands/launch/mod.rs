//! The launch of an MPI job: its launcher runs in the first host, and the commands that the launcher asks for
//! are started in the job's hosts.
//!
//! In the first host runs a relay beside the launcher (`remote_shell`). The launcher's remote shell asks the
//! relay, which asks this process. A request is judged ([`Launch::admit`]), and its command, if admitted,
//! is started as one more task. So a guest can have the user's programs started only while this runs,
//! only in hosts of the job, and only those that are admitted.
//!
//! The loss of any host ends the job.

pub mod requests;
mod waiting;
pub mod words;

use super::event_loop::{exit_code, EventLoop, Recipients, Settings, GRACE};
use super::job::Job;
use super::location::Location;
use super::outcome::Outcome;
use super::output::{Output, Stream};
use super::run::finish_output;
use super::tasks::Tasks;
use crate::wire::ended::Ended;
use requests::{Request, Requests};
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use vshmem_base::error::{Error, Explain, Result, OUR_FAILURE};
use waiting::Waiting;

/// Time that a machine may take to report the end of a command that was killed: a job whose host was lost is
/// over within five seconds.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);
/// Refused requests after which the job is ended.
const MAX_REFUSALS: u32 = 64;

/// A host of a job.
#[derive(Debug, Clone)]
pub struct JobHost {
    /// Its name, by which a launcher asks for it.
    pub name: String,
    /// The job of a command in it; the command itself is filled in.
    pub job: Job,
}

/// A judge of commands that a launcher wants to run in another host: the words to run, or why not.
pub type Admit = dyn Fn(&[OsString]) -> Result<Vec<OsString>>;

/// An MPI job to be launched.
pub struct Launch<'a> {
    /// Its hosts. The launcher runs in the first.
    pub hosts: Vec<JobHost>,
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
    /// Standard error is a terminal, and shows what is waited for.
    pub progress: bool,
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
    let relay_output = RelayOutput::default();
    let relay = relay_job(first, launch.program);
    let mut progress = None;
    let mut event_loop = EventLoop::start(settings, |writers| {
        let waiting = Waiting::begin(writers, launch.progress);
        let waiting = waiting.explain(|| "could not start a thread".into())?;
        let opened = open(launch, &relay, &relay_output, &waiting);
        // The caller prints the error.
        let opened = opened.inspect_err(|_| waiting.end_at_once());
        progress = Some(waiting);
        opened
    })?;
    let waiting = progress.expect("it was begun");
    event_loop.recipients = Recipients::None;
    let mut launched = Launched {
        launch,
        event_loop,
        relay_output,
        requests: Requests::default(),
        launcher: None,
        errors_noted: Rc::default(),
        waiting,
        unused: launch.hosts.iter().skip(1).map(|host| host.name.as_str()).collect(),
        code: None,
        refusals: 0,
        hung_up: Vec::new(),
        failure: None,
    };
    let ran = launched.run();
    launched.waiting.end();
    finish_output(&mut launched.event_loop, ran).map(|code| code.or(launched.code).unwrap_or(OUR_FAILURE))
}

/// Opens a channel to each host, and starts the relay.
fn open(launch: &Launch, relay: &Job, relay_output: &RelayOutput, waiting: &Waiting) -> Result<Tasks> {
    let mut tasks = Tasks::default();
    for host in &launch.hosts {
        waiting.says(format!("vshmem: waiting for {} to answer", host.name));
        tasks.open_channel(&host.job.location)?;
    }
    waiting.says(waiting::said(&[], &[&launch.hosts[0].name]));
    // The relay is task 0.
    let output = Output::new(None, [Box::new(relay_output.clone()), waiting.stream(Stream::Err)]);
    tasks.add(relay, output)?;
    Ok(tasks)
}

/// The relay's task.
const RELAY: usize = 0;

/// The relay's command in the first host.
fn relay_job(first: &JobHost, program: &Path) -> Job {
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

/// The output of the relay that was not read yet.
#[derive(Clone, Default)]
struct RelayOutput(Rc<RefCell<Vec<u8>>>);

impl RelayOutput {
    fn take(&self) -> Vec<u8> {
        self.0.take()
    }
}

impl Write for RelayOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard error, with a note whether anything was written to it.
struct NotedErrors {
    to: Box<dyn Write>,
    any: Rc<Cell<bool>>,
}

impl Write for NotedErrors {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.any.set(true);
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// An event after which the launcher should end.
struct Failure {
    since: Instant,
    why: String,
    /// The launcher itself may have caused it: it ends its remote shells where it ends a job.
    by_launcher: bool,
}

/// A job that was launched.
struct Launched<'a> {
    launch: &'a Launch<'a>,
    event_loop: EventLoop,
    relay_output: RelayOutput,
    requests: Requests,
    /// The launcher's task.
    launcher: Option<usize>,
    /// Whether the launcher, or a rank, has written to standard error.
    errors_noted: Rc<Cell<bool>>,
    /// What the user is told to wait for.
    waiting: Waiting,
    /// Names of the other hosts in which no command was started.
    unused: Vec<&'a str>,
    /// The exit code of the job, once it is known.
    code: Option<u8>,
    refusals: u32,
    /// Tasks whose remote shells have ended, and since when they are asked to end.
    hung_up: Vec<(Instant, usize)>,
    /// The event after which the launcher should end, if there was one.
    failure: Option<Failure>,
}

impl Launched<'_> {
    fn run(&mut self) -> io::Result<()> {
        while self.event_loop.tasks.runs() {
            self.event_loop.step()?;
            self.look_for_lost();
            for task in self.event_loop.tasks.take_ended() {
                self.ended(task);
            }
            let relay_output = self.relay_output.take();
            match self.requests.receive(&relay_output) {
                Ok(requests) => requests.into_iter().for_each(|request| self.serve(request)),
                Err(why) => self.relay_failed(why),
            }
            self.send_answers();
            self.kill_hung_up();
            self.end_failed();
            self.dismiss_relay();
            if let (None, Some(code)) = (self.launcher, self.interrupted()) {
                self.end(code);
            }
            // What can't be killed, or is said to run on, ends with its channel.
            if self.event_loop.killed_for().is_some_and(|time| time >= KILL_TIMEOUT) {
                break;
            }
        }
        Ok(())
    }

    fn print_error(&mut self, why: String) {
        self.waiting.end();
        self.event_loop.print_error(why);
    }

    /// Says what is waited for, now that one more host has begun.
    fn tell_begun(&self) {
        let is_unused = |name: &&str| self.unused.contains(name);
        let (unused, begun): (Vec<_>, Vec<_>) =
            self.launch.hosts.iter().map(|host| host.name.as_str()).partition(is_unused);
        self.waiting.says(waiting::said(&begun, &unused));
    }

    /// Kills everything. The exit code is this one, unless another is known already: launchers may say 0
    /// before the loss is noticed that ended them, as Open MPI 5's does.
    fn end(&mut self, code: u8) {
        self.code = self.code.filter(|code| *code != 0).or(Some(code));
        if self.event_loop.killed_for().is_none() {
            self.event_loop.kill();
        }
    }

    /// Ends the job, and prints why.
    fn fail(&mut self, why: String) {
        self.print_error(why);
        self.end(self.interrupted().unwrap_or(OUR_FAILURE));
    }

    /// The exit code of a job that a signal has asked to end, as a shell has it.
    fn interrupted(&self) -> Option<u8> {
        self.event_loop.asked_to_end().map(exit_code)
    }

    fn relay_failed(&mut self, why: &str) {
        let name = &self.launch.hosts[0].name;
        self.fail(format!("{name}: the relay of remote commands violates its protocol: {why}"));
    }

    fn ended(&mut self, task: usize) {
        let Some(outcome) = self.event_loop.tasks.outcome(task).cloned() else {
            return;
        };
        let code = outcome.code();
        let name = self.event_loop.tasks.location(task).map(|it| self.name_of(it)).unwrap_or_default();
        if let Outcome::Failed(_, why) = &outcome {
            self.print_error(format!("{name}: {why}"));
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
                self.note_failure(why, false);
            }
            self.requests.ended(task, code);
            self.hung_up.retain(|(_, other)| *other != task);
            self.event_loop.tasks.forget(task);
        }
    }

    /// Says what has ended the launcher, or may have ended a rank where it does not: MPICH's never says so,
    /// and Open MPI 5's not of a rank that was killed while it connected.
    fn explain_end(&mut self, launcher: &Outcome, host: &str) {
        // Of what ends the launcher too, the reason is said in its place.
        let known = self.failure.as_ref().is_some_and(|failure| !failure.by_launcher);
        let explained = known || self.errors_noted.get() || self.interrupted().is_some();
        let why = match launcher {
            Outcome::Ended(Ended::Killed(signal)) => format!("signal {signal} has ended the launcher"),
            Outcome::Ended(Ended::Exited(code @ 1..)) if !explained => {
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
        self.print_error(format!("{host}: {why}"));
    }

    /// Gives the launcher's daemons and ranks some time to end by themselves. Hydra ends with 0 when it was
    /// interrupted, and Open MPI 5's without a daemon or its remote shell.
    fn launcher_ended(&mut self, code: u8) {
        let interrupted = self.interrupted();
        let mut code = interrupted.unwrap_or(code);
        let failure = self.failure.take().filter(|_| interrupted.is_none());
        if let Some(failure) = failure.filter(|failure| code == 0 || !failure.by_launcher) {
            self.print_error(failure.why);
            code = if code == 0 { OUR_FAILURE } else { code };
        }
        if code == 0 && !self.unused.is_empty() {
            let (first, unused) = (&self.launch.hosts[0].name, self.unused.join(", "));
            self.print_error(format!(
                "the launcher in {first} started no ranks in {unused}: it took them for {first} itself, where their \
                 ranks ran. Each host's name must lead to an address of its own"
            ));
        }
        self.code.get_or_insert(code);
        self.event_loop.kill_within(GRACE);
    }

    /// The relay ends when the launcher and all that it has started have ended.
    fn dismiss_relay(&mut self) {
        let ended = self.launcher.is_some_and(|task| self.event_loop.tasks.outcome(task).is_some());
        if ended && !self.requests.any() && self.event_loop.tasks.input_room(RELAY).is_some() {
            self.event_loop.tasks.input(RELAY, &[]);
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
            let host = self.event_loop.tasks.location(task).map(|it| self.name_of(it)).unwrap_or_default();
            let first = &self.launch.hosts[0].name;
            let why = format!("{first}: the launcher's remote shell for {host} has ended before its command");
            // The launcher may have noticed that first.
            if self.code == Some(0) && self.event_loop.killed_for().is_none() {
                self.code = Some(OUR_FAILURE);
                self.print_error(why);
            } else {
                self.note_failure(why, true);
            }
            self.hung_up.push((Instant::now(), task));
            self.event_loop.tasks.signal_one(task, libc::SIGTERM);
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
        let [out, err] = [Stream::Out, Stream::Err].map(|stream| self.waiting.stream(stream));
        let errors = NotedErrors { to: err, any: self.errors_noted.clone() };
        match self.event_loop.tasks.add(&job, Output::new(None, [out, Box::new(errors)])) {
            Ok(task) => {
                self.launcher = Some(task);
                self.event_loop.recipients = Recipients::One(task);
                self.tell_begun();
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
        let streams = [Stream::Out, Stream::Err].map(|stream| self.waiting.stream(stream));
        let task = self.event_loop.tasks.add(&job, Output::new(None, streams))?;
        self.requests.started(id, task);
        self.unused.retain(|name| *name != host.name);
        self.tell_begun();
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
        self.print_error(format!(
            "{first} asked for a command in {}, which was refused: {why}\n  {what}",
            shortened(host)
        ));
        self.refusals += 1;
        if self.refusals >= MAX_REFUSALS {
            self.fail(format!("{first} asks again and again for what is refused"));
        }
    }

    fn send_answers(&mut self) {
        let room = self.event_loop.tasks.input_room(RELAY);
        match self.requests.answers(room.unwrap_or(0)) {
            Ok(answers) if answers.is_empty() => (),
            Ok(answers) => self.event_loop.tasks.input(RELAY, &answers),
            Err(why) => self.relay_failed(why),
        }
    }

    fn look_for_lost(&mut self) {
        let lost = self.event_loop.tasks.lost();
        let lost: Vec<_> = lost.map(|(location, why)| format!("{}: {why}", self.name_of(location))).collect();
        for why in lost {
            self.fail(why);
        }
    }

    fn note_failure(&mut self, why: String, by_launcher: bool) {
        self.failure.get_or_insert(Failure { since: Instant::now(), why, by_launcher });
    }

    /// A launcher that goes on without a daemon, or its remote shell, may wait for ever: MPICH's does.
    fn end_failed(&mut self) {
        let failure = self.failure.take_if(|failure| failure.since.elapsed() >= GRACE);
        if let (Some(failure), None) = (failure, self.code) {
            self.fail(failure.why);
        }
    }

    /// Kills commands whose remote shells have ended, and that did not end when they were asked to.
    fn kill_hung_up(&mut self) {
        let (due, rest): (Vec<_>, _) =
            self.hung_up.drain(..).partition(|(since, _)| since.elapsed() >= GRACE);
        self.hung_up = rest;
        for (_, task) in due {
            self.event_loop.tasks.signal_one(task, libc::SIGKILL);
        }
    }
}

/// A text of a guest's, shortened and made fit for a terminal.
fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 160;
    let text = vshmem_base::printable(text);
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
