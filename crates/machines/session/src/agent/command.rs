//! Commands that an agent starts, as the user who asked for it.

use super::scratch::Scratch;
use super::terminal::Terminal;
use crate::wire::start::Start;
use rustix::fs::{access, Access};
use rustix::io::ioctl_fionbio;
use rustix::process::{ioctl_tiocsctty, setsid};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vshmem_base::error::{error, Error, Result};
use vshmem_base::signal_mask;

/// Exit code for a command that exists and can't be run, as in shells.
pub const CANNOT_RUN: u8 = 126;
/// Exit code for a command that doesn't exist, as in shells.
const NOT_FOUND: u8 = 127;

/// A command that was started.
pub struct RunningCommand {
    /// Its first process.
    pub pid: i32,
    /// Its standard input; `None` once it was closed.
    pub input: Option<File>,
    /// Its standard output; `None` once it has ended.
    pub output: Option<File>,
    /// Its standard error; `None` once it has ended.
    pub errors: Option<File>,
    /// Our end of its terminal, if it has one.
    pub terminal: Option<File>,
    group: Option<Cgroup>,
    /// Its directory for temporary files, as long as it is kept.
    #[allow(dead_code)]
    scratch: Option<Scratch>,
}

/// A way to start commands, which an agent is given.
pub trait Starter {
    /// Prepares for the first command of a session. Returns a notice for its user, if there is one.
    fn prepare(&mut self) -> Option<String> {
        None
    }
    /// Starts a command.
    fn start(&mut self, request: &Start) -> Result<RunningCommand>;
    /// Notes that commands have ended; called before the host is told. Returns a notice for the user of the
    /// last one, if there is one.
    fn ended(&mut self) -> Option<String> {
        None
    }
    /// Removes leftovers of commands; called now and then, and after commands have ended.
    fn clean(&mut self) {}
}

impl RunningCommand {
    /// Sends a signal to the command's process group.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain values. The group's leader is our child and not reaped before `ended` is set, so its
        // pid was not reused.
        unsafe { libc::kill(-self.pid, signal) };
    }

    /// Kills the command and its descendants; without a cgroup, its process group as long as it runs.
    pub fn kill(&self, runs: bool) {
        if !self.group.as_ref().is_some_and(Cgroup::kill) && runs {
            self.signal(libc::SIGKILL);
        }
    }

    /// The command with this directory for temporary files.
    pub fn with(self, scratch: Option<Scratch>) -> RunningCommand {
        RunningCommand { scratch, ..self }
    }

    /// The cgroup of the processes that it has left in the background, if they end with the session.
    pub fn into_background(self) -> Option<Cgroup> {
        self.group.filter(|group| group.ends_with_session && !group.remove())
    }
}

/// The cgroup of a command; removed when it is empty.
pub struct Cgroup {
    path: PathBuf,
    /// Processes that are in it when its command has ended end with the session.
    ends_with_session: bool,
}

impl Cgroup {
    /// Kills the processes in it. False if that fails.
    pub fn kill(&self) -> bool {
        fs::write(self.path.join("cgroup.kill"), "1").is_ok()
    }

    /// Removes the cgroup if it is empty.
    pub fn remove(&self) -> bool {
        fs::remove_dir(&self.path).is_ok()
    }
}

impl Cgroup {
    /// Makes a cgroup. A process joins it by a write to the file that is returned.
    pub fn create(path: PathBuf, ends_with_session: bool) -> (Cgroup, io::Result<File>) {
        let procs =
            fs::create_dir(&path).and_then(|()| File::options().write(true).open(path.join("cgroup.procs")));
        (Cgroup { path, ends_with_session }, procs)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Fails while processes run in the background; a later command removes the group then.
        self.remove();
    }
}

/// The program of a request, with its arguments and environment.
pub fn command(request: &Start) -> Result<Command> {
    let [first, args @ ..] = &request.argv[..] else {
        return Err(Error::new("no command was given").code(CANNOT_RUN));
    };
    let mut command;
    if request.login {
        let shell = request.argv.iter().find(|shell| can_run(shell));
        let shell = shell.unwrap_or(first);
        command = Command::new(shell);
        command.arg0(login_name(shell));
        set_environment(&mut command, request);
        command.env("SHELL", shell);
    } else {
        command = Command::new(first);
        command.args(args);
        set_environment(&mut command, request);
    }
    signal_mask::unblock(&mut command);
    Ok(command)
}

fn set_environment(command: &mut Command, request: &Start) {
    if !request.inherits {
        command.env_clear();
    }
    command.envs(request.env.iter().map(|(key, value)| (key, value)));
}

fn can_run(program: &OsStr) -> bool {
    Path::new(program).is_file() && access(program, Access::EXEC_OK).is_ok()
}

/// The name by which a shell knows that it is a login shell.
fn login_name(shell: &OsStr) -> OsString {
    let mut name = OsString::from("-");
    name.push(Path::new(shell).file_name().unwrap_or(shell));
    name
}

/// Starts a command of a request, with the inputs and outputs that it asks for.
pub fn spawn(mut command: Command, request: &Start, group: Option<Cgroup>) -> Result<RunningCommand> {
    let program = command.get_program().to_os_string();
    try_spawn(&mut command, request, group).map_err(|error| cannot_run(&program, &error))
}

fn try_spawn(command: &mut Command, request: &Start, group: Option<Cgroup>) -> io::Result<RunningCommand> {
    let mut ours = None;
    if let Some(size) = request.terminal {
        let terminal = Terminal::open(size, request.uid, request.gid)?;
        command.stdin(terminal.theirs.try_clone()?);
        command.stdout(terminal.theirs.try_clone()?);
        command.stderr(terminal.theirs);
        ours = Some(terminal.ours);
    } else {
        command.stdin(if request.stdin { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let child = command.spawn()?;
    let copy = || ours.as_ref().map(File::try_clone).transpose();
    let file = |end: OwnedFd| File::from(end);
    let running = RunningCommand {
        pid: child.id() as i32,
        input: child.stdin.map(|end| file(end.into())).or(copy()?),
        output: child.stdout.map(|end| file(end.into())).or(copy()?),
        errors: child.stderr.map(|end| file(end.into())),
        terminal: ours,
        group,
        scratch: None,
    };
    running.set_nonblocking()?;
    Ok(running)
}

impl RunningCommand {
    /// The descriptors to watch: those of its input and output that are open.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let ends = [&self.input, &self.output, &self.errors];
        ends.into_iter().flatten().map(AsFd::as_fd).collect()
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        let mut all = self.descriptors().into_iter();
        Ok(all.try_for_each(|fd| ioctl_fionbio(fd, true))?)
    }
}

/// The error for a program that the kernel does not execute.
pub fn cannot_run(program: &OsStr, error: &io::Error) -> Error {
    let missing = error.kind() == io::ErrorKind::NotFound;
    let why = if missing && Path::new(program).exists() {
        "its interpreter or loader is not there".into()
    } else if missing {
        "there is no such command".into()
    } else {
        error.to_string()
    };
    let code = if missing { NOT_FOUND } else { CANNOT_RUN };
    error!("could not run {}: {why}", program.to_string_lossy()).code(code)
}

/// The directory that a command of this request starts in.
pub fn directory(request: &Start) -> Result<&Path> {
    let cwd = Path::new(&request.cwd);
    if cwd.is_dir() {
        Ok(cwd)
    } else if request.cwd_optional {
        Ok(Path::new("/"))
    } else {
        Err(error!("the machine has no directory {}", cwd.display()).code(CANNOT_RUN))
    }
}

/// Has a command start in a new session and in the cgroup with this `cgroup.procs`. With `terminal`, its
/// standard input becomes the controlling terminal.
pub fn join_group(command: &mut Command, procs: Option<File>, terminal: bool) {
    let join = move || {
        if let Some(mut procs) = procs.as_ref() {
            procs.write_all(b"0")?;
        }
        let _ = setsid();
        if terminal {
            // SAFETY: standard input is open when this is called.
            ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(0) })?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(join) };
}

#[cfg(any(test, feature = "fuzz"))]
pub mod testing;
