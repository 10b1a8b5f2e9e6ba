//! A command on this kernel: a child of this process or, if it is the only one, in place of it.

use super::job::Job;
use super::outcome::Outcome;
use super::output::{Output, Stream};
use crate::error::{error, Error, Result};
use crate::user::{self, Identity};
use crate::wire::ended::Ended;
use crate::wire::frame::MAX_DATA;
use crate::{descriptors, signals};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{accessat, Access, AtFlags, CWD};
use rustix::io::{ioctl_fionbio, Errno};
use rustix::process::{set_parent_process_death_signal, Rlimit, Signal};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

/// Exit codes for a command that can't be run, and for one that does not exist, as in shells.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Executes the command in place of this process. Returns only if that fails.
pub fn become_command(job: &Job) -> Error {
    match prepare(job) {
        Ok(mut command) => cannot_run(job, &command.exec()),
        Err(error) => error,
    }
}

fn prepare(job: &Job) -> Result<Command> {
    if let Some(cwd) = &job.cwd {
        check_directory(cwd)?;
    }
    let mut command = Command::new(&job.argv[0]);
    command.args(&job.argv[1..]).env_clear();
    command.envs(job.env.iter().map(|(key, value)| (key, value)));
    if let Some(cwd) = &job.cwd {
        command.current_dir(cwd);
    }
    if let Some(Identity { uid, gid, groups }) = other_user(job) {
        user::switch(&mut command, *uid, *gid, groups.clone());
    }
    signals::unblock(&mut command);
    Ok(command)
}

/// A child process.
pub struct Local {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    input: Vec<u8>,
    input_ended: bool,
}

impl Local {
    /// Starts it with this limit of open files.
    pub fn start(job: &Job, limit: &Rlimit) -> Result<Local> {
        let mut command = prepare(job)?;
        descriptors::restore(&mut command, limit);
        Local::spawn(command, job).map_err(|error| cannot_run(job, &error))
    }

    fn spawn(mut command: Command, job: &Job) -> io::Result<Local> {
        command.stdin(if job.stdin { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let die_with_us = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: the closure makes one system call; it takes no lock and allocates nothing.
        unsafe { command.pre_exec(die_with_us) };
        let mut child = command.spawn()?;
        let local = Local {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child,
            input: Vec::new(),
            input_ended: false,
        };
        for end in local.descriptors() {
            ioctl_fionbio(end, true)?;
        }
        if let Some(stdin) = &local.stdin {
            ioctl_fionbio(stdin, true)?;
        }
        Ok(local)
    }

    /// Descriptors and events to poll.
    pub fn descriptors(&self) -> Vec<PollFd<'_>> {
        let out = self.stdout.as_ref().map(|s| PollFd::new(s, PollFlags::IN));
        let err = self.stderr.as_ref().map(|s| PollFd::new(s, PollFlags::IN));
        let full = self.stdin.as_ref().filter(|_| !self.input.is_empty());
        let input = full.map(|s| PollFd::new(s, PollFlags::OUT));
        [out, err, input].into_iter().flatten().collect()
    }

    /// Does what can be done without waiting. An error is about our own output.
    pub fn service(&mut self, output: &mut Output) -> io::Result<Option<Outcome>> {
        self.feed();
        // Before the pipes are emptied, so that all of its output is in them.
        let status = self.child.try_wait()?;
        empty(&mut self.stdout, Stream::Out, output)?;
        empty(&mut self.stderr, Stream::Err, output)?;
        Ok(status.map(|status| Outcome::Ended(Ended::from_wait(status.into_raw()))))
    }

    /// Bytes of input that it takes now; `None` if it takes none any more.
    pub fn input_room(&self) -> Option<usize> {
        self.stdin.as_ref()?;
        Some(if self.input.is_empty() { MAX_DATA } else { 0 })
    }

    /// Passes it input; empty input ends it.
    pub fn input(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.input_ended |= bytes.is_empty();
        self.feed();
    }

    /// Sends a signal to its process group.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain values; the child is not signalled after it was reaped, so the group is its.
        unsafe { libc::kill(-(self.child.id() as i32), signal) };
    }

    fn feed(&mut self) {
        while let (Some(stdin), false) = (&mut self.stdin, self.input.is_empty()) {
            match stdin.write(&self.input) {
                Ok(len) => drop(self.input.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // It does not read any more.
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
            Ok(len) => output.write(stream, &bytes[..len])?,
            Err(e) if e.kind() == ErrorKind::Interrupted => (),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(_) => *source = None,
        }
    }
    Ok(())
}

fn cannot_run(job: &Job, error: &io::Error) -> Error {
    let missing = error.kind() == ErrorKind::NotFound;
    let why = if missing && Path::new(&job.argv[0]).exists() {
        "its interpreter or loader is not there".into()
    } else if missing {
        "there is no such command".into()
    } else {
        error.to_string()
    };
    let code = if missing { NOT_FOUND } else { CANNOT_RUN };
    let program = job.argv[0].to_string_lossy();
    let Some(Identity { uid, gid, .. }) = other_user(job) else {
        return error!("could not run {program}: {why}").code(code);
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

/// The user that a local job runs as, if not the caller.
fn other_user(job: &Job) -> Option<&Identity> {
    let ids = |identity: &Identity| (identity.uid, identity.gid);
    Some(&job.identity).filter(|identity| ids(identity) != ids(&Identity::current()))
}

/// An error unless a program can start there; otherwise the program would be blamed.
fn check_directory(cwd: &Path) -> Result<()> {
    let inside = cwd.join(".");
    let why = match accessat(CWD, &inside, Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => return Ok(()),
        Err(Errno::NOENT) => format!("there is no directory {}", cwd.display()),
        Err(why) => format!("could not enter {}: {}", cwd.display(), io::Error::from(why)),
    };
    Err(Error::new(why).code(CANNOT_RUN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::job::Location;
    use crate::descriptors::raise;
    use std::time::{Duration, Instant};

    /// A shell command on this kernel.
    fn job(script: &str) -> Job {
        Job {
            location: Location::Local,
            label: "p0".into(),
            argv: ["sh", "-c", script].map(Into::into).to_vec(),
            env: std::env::vars_os().collect(),
            cwd: None,
            stdin: false,
            terminal: false,
            login: false,
            identity: Identity::current(),
            needs: vec![],
        }
    }

    fn succeeds(job: &Job) -> bool {
        let mut local = Local::start(job, &raise()).expect("it starts");
        local.child.wait().unwrap().success()
    }

    #[test]
    fn a_local_program_runs_as_the_requested_user() {
        let other = Identity { uid: 65534, gid: 65533, groups: vec![65532] };
        let test = r#"[ "$(id -u):$(id -g):$(id -G)" = "65534:65533:65533 65532" ]"#;
        let other_job = Job { identity: other, ..job(test) };
        if Identity::current().uid == 0 {
            assert!(succeeds(&other_job) && !succeeds(&job(test)));
            return;
        }
        let why = Local::start(&other_job, &raise()).map(|_| ()).unwrap_err();
        assert_eq!(why.exit_code(), CANNOT_RUN);
        assert!(why.to_string().contains("Only root"), "{why}");
    }

    #[test]
    fn a_local_program_ends_with_its_parent_whatever_its_user() {
        let mut other_job = job("sleep 60");
        if other_job.identity.uid == 0 {
            (other_job.identity.uid, other_job.identity.gid) = (65534, 65534);
        }
        // The thread that starts it ends.
        let started = std::thread::spawn(move || Local::start(&other_job, &raise()).unwrap().child);
        let mut child = started.join().unwrap();
        let begun = Instant::now();
        child.wait().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_missing_directory_is_named() {
        for (cwd, why) in [
            ("/no/such", "there is no directory /no/such"),
            ("/dev/null", "could not enter /dev/null: Not a directory"),
        ] {
            let other_job = Job { cwd: Some(cwd.into()), ..job("true") };
            let error = Local::start(&other_job, &raise()).map(|_| ()).unwrap_err();
            assert_eq!(error.exit_code(), CANNOT_RUN);
            assert!(error.to_string().starts_with(why), "{error}");
        }
    }
}
