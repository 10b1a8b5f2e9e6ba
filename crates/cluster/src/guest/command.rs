//! Starts one command in the machine, as the user who asked for it, in a control group of its own so that
//! nothing it starts can outlive an order to kill it.

use super::poller::set_nonblocking;
use super::sys::HighPriority;
use super::terminal::Terminal;
use crate::error::OUR_FAILURE;
use crate::wire::start::Start;
use crate::{descriptors, signals, user};
use rustix::fs::{access, Access};
use rustix::process::{ioctl_tiocsctty, Rlimit};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{chown, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Exit code for a command that exists and can't be run, as in shells.
const CANNOT_RUN: u8 = 126;
/// Exit code for a command that doesn't exist, as in shells.
const NOT_FOUND: u8 = 127;

/// A command that was started.
pub struct RunningCommand {
    /// Its first process.
    pub pid: i32,
    /// Where its input goes; `None` once that has ended.
    pub input: Option<File>,
    /// Where its output comes from; `None` once that has ended.
    pub output: Option<File>,
    /// The same for its error stream.
    pub errors: Option<File>,
    /// Our end of its terminal, if it has one.
    pub terminal: Option<File>,
    group: Group,
}

/// Why a command could not be started.
pub struct Refusal {
    /// The exit code that stands for it.
    pub code: u8,
    /// A sentence.
    pub message: String,
}

/// What starts commands.
pub trait Starter {
    /// Commands are about to be started.
    fn prepare(&mut self);
    /// Starts one.
    fn start(&mut self, order: &Start) -> Result<RunningCommand, Refusal>;
}

impl RunningCommand {
    /// Sends a signal to the command's process group.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain values. The group's leader is our child and not reaped before `ended` is set, so
        // the number is not another's.
        unsafe { libc::kill(-self.pid, signal) };
    }

    /// Kills the command and all that it started.
    pub fn kill(&self) {
        if fs::write(self.group.path.join("cgroup.kill"), "1").is_err() {
            self.signal(libc::SIGKILL);
        }
    }
}

/// A control group; removed when its last process is gone.
struct Group {
    path: PathBuf,
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails while processes are left in the background, whose group is then swept by a later command.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Starts the commands of a machine.
pub struct Commands {
    started: u64,
    limit: Rlimit,
}

impl Commands {
    /// None was started yet. This process gets room for the descriptors of many.
    pub fn new() -> Commands {
        Commands {
            started: 0,
            limit: descriptors::raise(),
        }
    }
}

impl Starter for Commands {
    fn prepare(&mut self) {
        sweep();
        refresh();
    }

    fn start(&mut self, order: &Start) -> Result<RunningCommand, Refusal> {
        self.started += 1;
        // Without one, programs complain themselves.
        let _ = make_home(order);
        check_needs(&order.needs)?;
        let group = Group {
            path: format!("/sys/fs/cgroup/vshmem.{}", self.started).into(),
        };
        let procs = fs::create_dir(&group.path).and_then(|()| {
            File::options()
                .write(true)
                .open(group.path.join("cgroup.procs"))
        });
        let mut command = command(order)?;
        join_group(&mut command, procs.ok(), order.terminal.is_some());
        user::switch(&mut command, order.uid, order.gid, order.groups.clone());
        descriptors::restore(&mut command, &self.limit);
        // Hundreds of programs that were started before would share the processor with what is to become this one.
        let priority = HighPriority::take();
        priority.keep_from(&mut command);
        let program = command.get_program().to_os_string();
        spawn(command, order, group).map_err(|e| refusal(&program, &e))
    }
}

fn command(order: &Start) -> Result<Command, Refusal> {
    let [first, args @ ..] = &order.argv[..] else {
        return Err(Refusal {
            code: CANNOT_RUN,
            message: "no command was given".into(),
        });
    };
    let mut command;
    if order.login {
        let shell = order.argv.iter().find(|shell| can_run(shell));
        let shell = shell.unwrap_or(first);
        command = Command::new(shell);
        command.arg0(login_name(shell)).env_clear();
        command.envs(order.env.iter().map(|(key, value)| (key, value)));
        command.env("SHELL", shell);
    } else {
        command = Command::new(first);
        command.args(args).env_clear();
        command.envs(order.env.iter().map(|(key, value)| (key, value)));
    }
    command.current_dir(directory(order)?);
    Ok(command)
}

fn can_run(program: &OsStr) -> bool {
    Path::new(program).is_file() && access(program, Access::EXEC_OK).is_ok()
}

/// What a shell is called that is to behave as at a login.
fn login_name(shell: &OsStr) -> OsString {
    let mut name = OsString::from("-");
    name.push(Path::new(shell).file_name().unwrap_or(shell));
    name
}

fn spawn(mut command: Command, order: &Start, group: Group) -> io::Result<RunningCommand> {
    signals::unblock(&mut command);
    if let Some(size) = order.terminal {
        let terminal = Terminal::open(size, order.uid, order.gid)?;
        command.stdin(terminal.theirs.try_clone()?);
        command.stdout(terminal.theirs.try_clone()?);
        command.stderr(terminal.theirs);
        let ours = terminal.ours;
        let running = RunningCommand {
            pid: 0,
            input: Some(ours.try_clone()?),
            output: Some(ours.try_clone()?),
            errors: None,
            terminal: Some(ours),
            group,
        };
        running.set_nonblocking()?;
        let pid = command.spawn()?.id() as i32;
        return Ok(RunningCommand { pid, ..running });
    }
    command.stdin(match order.stdin {
        true => Stdio::piped(),
        false => Stdio::null(),
    });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = RunningCommand::from_child(command.spawn()?, group);
    running.set_nonblocking()?;
    Ok(running)
}

impl RunningCommand {
    fn from_child(child: Child, group: Group) -> RunningCommand {
        let file = |end: OwnedFd| File::from(end);
        RunningCommand {
            pid: child.id() as i32,
            input: child.stdin.map(|end| file(end.into())),
            output: child.stdout.map(|end| file(end.into())),
            errors: child.stderr.map(|end| file(end.into())),
            terminal: None,
            group,
        }
    }

    /// What to watch.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let ends = [&self.input, &self.output, &self.errors];
        ends.into_iter().flatten().map(AsRawFd::as_raw_fd).collect()
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        self.descriptors().into_iter().try_for_each(set_nonblocking)
    }
}

fn refusal(program: &OsString, error: &io::Error) -> Refusal {
    let code = if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_RUN
    };
    let why = match error.kind() {
        io::ErrorKind::NotFound => "there is no such command".into(),
        _ => error.to_string(),
    };
    Refusal {
        code,
        message: format!("could not run {}: {why}", program.to_string_lossy()),
    }
}

/// A library that can't be preloaded would be left out with no more than a warning.
fn check_needs(needs: &[OsString]) -> Result<(), Refusal> {
    for path in needs {
        if let Err(error) = File::open(path) {
            let path = path.to_string_lossy();
            let why = format!(
                "the machine can't see {path} ({error}): machines see what was shared with them when they were started (vshmem up --share)"
            );
            return Err(Refusal {
                code: OUR_FAILURE,
                message: why,
            });
        }
    }
    Ok(())
}

fn directory(order: &Start) -> Result<&Path, Refusal> {
    let cwd = Path::new(&order.cwd);
    if cwd.is_dir() {
        Ok(cwd)
    } else if order.cwd_optional {
        Ok(Path::new("/"))
    } else {
        let message = format!("the machine has no directory {}", cwd.display());
        Err(Refusal {
            code: CANNOT_RUN,
            message,
        })
    }
}

/// Has a command begin a session, in the control group whose processes these are; its standard input may be the terminal of that.
fn join_group(command: &mut Command, procs: Option<File>, terminal: bool) {
    let join = move || {
        if let Some(mut procs) = procs.as_ref() {
            procs.write_all(b"0")?;
        }
        // SAFETY: takes nothing; safe in a forked child.
        unsafe { libc::setsid() };
        if terminal {
            // SAFETY: standard input is open when this is called.
            ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(0) })?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it takes no lock and no memory.
    unsafe { command.pre_exec(join) };
}

/// Programs on the host may have been rebuilt since somebody ran commands: forget what was read of them.
fn refresh() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "2");
}

/// Removes control groups whose last process is gone.
fn sweep() {
    for entry in fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with("vshmem.") {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The machine has no home directories of the host's: whoever runs a command in it gets an empty one.
fn make_home(order: &Start) -> io::Result<()> {
    let home = order.env.iter().find(|(key, _)| key == "HOME");
    let Some(home) = home
        .map(|(_, home)| Path::new(home))
        .filter(|home| home.is_absolute())
    else {
        return Ok(());
    };
    if home.exists() {
        return Ok(());
    }
    fs::create_dir_all(home)?;
    fs::set_permissions(home, fs::Permissions::from_mode(0o700))?;
    chown(home, Some(order.uid), Some(order.gid))
}

#[cfg(any(test, feature = "fuzz"))]
pub mod doubles {
    //! What stands in for commands where there is no machine.

    use super::*;

    /// Starts commands as they are, on this kernel, as who calls.
    #[cfg(test)]
    pub struct Plain;

    #[cfg(test)]
    impl Starter for Plain {
        fn prepare(&mut self) {}

        fn start(&mut self, order: &Start) -> Result<RunningCommand, Refusal> {
            let mut command = command(order)?;
            join_group(&mut command, None, order.terminal.is_some());
            let program = command.get_program().to_os_string();
            spawn(command, order, Group::none()).map_err(|e| refusal(&program, &e))
        }
    }

    /// Starts nothing: commands take their input and say it again.
    pub struct Echoes;

    impl Starter for Echoes {
        fn prepare(&mut self) {}

        fn start(&mut self, order: &Start) -> Result<RunningCommand, Refusal> {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair()
                .map_err(|error| refusal(&order.argv[0], &error))?;
            let ours = File::from(OwnedFd::from(ours));
            let theirs = File::from(OwnedFd::from(theirs));
            let running = RunningCommand {
                // No process has this number.
                pid: i32::MAX,
                input: order.stdin.then_some(ours),
                output: Some(theirs),
                errors: None,
                terminal: None,
                group: Group::none(),
            };
            running.set_nonblocking().expect("sockets");
            Ok(running)
        }
    }

    impl Group {
        fn none() -> Group {
            Group {
                path: "/dev/null/none".into(),
            }
        }
    }
}
