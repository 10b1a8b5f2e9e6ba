//! A run of commands on several kernels at once. When one fails, all of them are ended.

use super::event_loop::{EventLoop, Settings};
use super::job::Job;
use super::local;
use super::location::Location;
use super::outcome::Outcome;
use super::output::Output;
use super::tasks::Tasks;
use super::writers::Writers;
use std::io;
use std::time::Duration;
use vshmem_base::error::{error, Result};

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// Each line of output is preceded by its command's label, if there are several commands.
    pub prefix: bool,
    /// The others go on when one command fails.
    pub keep_going: bool,
    /// A single ctrl-C ends commands, even if they ignore it.
    pub insist: bool,
    /// Their output is dropped.
    pub silent: bool,
}

/// Time that a machine may take to report the end of a command that was killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Exit code if nobody reads our output any more.
const PIPE_CLOSED: u8 = 128 + libc::SIGPIPE as u8;

/// Runs all jobs. Returns the exit code of the first that failed, or zero. A single job on this kernel is
/// executed in place of this process.
pub fn run(jobs: &[Job], options: RunOptions) -> Result<u8> {
    if let [only] = jobs {
        if matches!(only.location, Location::Local) && only.files.is_none() {
            return Err(local::become_command(only));
        }
    }
    let settings = Settings {
        insist: options.insist,
        stdin: jobs.iter().any(|job| job.request.stdin),
        terminal: jobs.iter().any(|job| job.request.terminal.is_some()),
        kill_timeout: KILL_TIMEOUT,
    };
    let started = EventLoop::start(settings, |writers| {
        Tasks::start(jobs, |job| output(job, options, jobs.len(), writers))
    })?;
    let mut run = Run { jobs, started, keep_going: options.keep_going, failed: None };
    let ran = run.run();
    finish_output(&mut run.started, ran).map(|code| code.or(run.failed).unwrap_or(0))
}

/// The destination of a job's output.
fn output(job: &Job, options: RunOptions, jobs: usize, writers: &Writers) -> Output {
    if let Some([out, err]) = &job.files {
        return Output::new(None, [Box::new(out.clone()), Box::new(err.clone())]);
    }
    match options.silent {
        true => Output::new(None, [Box::new(io::sink()), Box::new(io::sink())]),
        false => Output::new((options.prefix && jobs > 1).then_some(&job.label), writers.streams()),
    }
}

/// Waits until the output is passed on, and ends commands whose output can't be. The exit code, if nobody
/// reads it any more, or the user does not want to wait for that.
pub fn finish_output(started: &mut EventLoop, ran: io::Result<()>) -> Result<Option<u8>> {
    let why = match ran.and_then(|()| started.finish()) {
        Ok(code) => return Ok(code),
        Err(why) => why,
    };
    started.kill();
    match why.kind() {
        io::ErrorKind::BrokenPipe => Ok(Some(PIPE_CLOSED)),
        _ => Err(error!("could not pass on the commands' output: {why}")),
    }
}

struct Run<'a> {
    jobs: &'a [Job],
    started: EventLoop,
    keep_going: bool,
    failed: Option<u8>,
}

impl Run<'_> {
    fn run(&mut self) -> io::Result<()> {
        while self.started.tasks.runs() {
            self.started.step()?;
            for index in self.started.tasks.take_ended() {
                self.report_end(index);
            }
        }
        Ok(())
    }

    /// Prints why a task failed that has just ended, and ends the others.
    fn report_end(&mut self, index: usize) {
        let Some(outcome) = self.started.tasks.outcome(index) else {
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
            self.started.print_error(text);
        }
        if code != 0 && self.failed.is_none() {
            self.failed = Some(code);
            if !self.keep_going {
                self.started.end();
            }
        }
    }
}
