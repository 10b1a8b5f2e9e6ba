//! Starts one command in the machine, as the user who asked for it, in a control group of its own so that
//! nothing it starts can outlive an order to kill it.

use super::poller::set_nonblocking;
use crate::error::OUR_FAILURE;
use crate::wire::start::Start;
use crate::{signals, user};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{chown, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

/// Exit code for a command that exists and can't be run, as in shells.
const CANNOT_RUN: u8 = 126;
/// Exit code for a command that doesn't exist, as in shells.
const NOT_FOUND: u8 = 127;

/// A command that was started.
pub struct Running {
    /// Its first process.
    pub pid: i32,
    /// Where its input goes; `None` once that has ended.
    pub stdin: Option<ChildStdin>,
    /// Where its output comes from; `None` once that has ended.
    pub stdout: Option<ChildStdout>,
    /// The same for its error stream.
    pub stderr: Option<ChildStderr>,
    group: Group,
}

/// Why a command could not be started.
pub struct Refusal {
    /// The exit code that stands for it.
    pub code: u8,
    /// A sentence.
    pub message: String,
}

impl Running {
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

/// Starts a command; `number` names its control group.
pub fn start(order: &Start, number: u64) -> Result<Running, Refusal> {
    sweep();
    refresh();
    let [program, args @ ..] = &order.argv[..] else {
        return Err(Refusal {
            code: CANNOT_RUN,
            message: "no command was given".into(),
        });
    };
    // Without one, programs complain themselves.
    let _ = make_home(order);
    check_needs(&order.needs)?;
    let mut command = Command::new(program);
    command.args(args).env_clear();
    command.envs(order.env.iter().map(|(key, value)| (key, value)));
    command.current_dir(directory(order)?);
    command.stdin(if order.stdin {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let group = Group {
        path: format!("/sys/fs/cgroup/vshmem.{number}").into(),
    };
    let procs = fs::create_dir(&group.path).and_then(|()| {
        File::options()
            .write(true)
            .open(group.path.join("cgroup.procs"))
    });
    join_group(&mut command, procs.ok());
    user::switch(&mut command, order.uid, order.gid, order.groups.clone());
    signals::unblock(&mut command);
    let mut child = command.spawn().map_err(|e| refusal(program, &e))?;
    let running = Running {
        pid: child.id() as i32,
        stdin: child.stdin.take(),
        stdout: child.stdout.take(),
        stderr: child.stderr.take(),
        group,
    };
    let ends = [
        running.stdin.as_ref().map(AsRawFd::as_raw_fd),
        running.stdout.as_ref().map(AsRawFd::as_raw_fd),
        running.stderr.as_ref().map(AsRawFd::as_raw_fd),
    ];
    for end in ends.into_iter().flatten() {
        set_nonblocking(end).map_err(|e| refusal(program, &e))?;
    }
    Ok(running)
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

/// Has a command begin a session, in the control group whose processes these are.
fn join_group(command: &mut Command, procs: Option<File>) {
    let join = move || {
        if let Some(mut procs) = procs.as_ref() {
            procs.write_all(b"0")?;
        }
        // SAFETY: takes nothing; safe in a forked child.
        unsafe { libc::setsid() };
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it takes no lock and no memory.
    unsafe { command.pre_exec(join) };
}

/// Programs on the host may have been rebuilt since the last command: forget what was read of them.
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
