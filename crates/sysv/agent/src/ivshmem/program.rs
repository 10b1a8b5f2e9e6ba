//! The program of back end and keeper: one program, started with different arguments.

use crate::ivshmem::directory::Directory;
use crate::ivshmem::fd_store::Connection;
use rustix::io::{fcntl_setfd, FdFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The program of the agent's processes, and its arguments.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program's file. After an upgrade it is the new version.
    pub path: PathBuf,
    /// Arguments before those of the part.
    pub args: Vec<OsString>,
    /// The back end's directory.
    pub directory: Directory,
    /// The back end ends with its last pool.
    pub transient: bool,
}

/// A part of the agent, which is a process of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Serves the pools.
    BackEnd,
    /// Restarts the back end, and stores its descriptors.
    Keeper,
}

impl Part {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Part::BackEnd => "back-end",
            Part::Keeper => "keeper",
        }
    }
}

impl Program {
    fn command(&self, part: Part, connection: &Connection) -> Command {
        let fd = connection.0.as_raw_fd();
        let mut command = Command::new(&self.path);
        command.args(&self.args).args(["--part", part.name()]);
        command.args(["--link", &fd.to_string(), "--directory"]);
        command.arg(self.directory.path());
        if self.transient {
            command.arg("--transient");
        }
        command
    }

    /// Starts a part as a daemon, in a session of its own.
    pub(crate) fn start(&self, part: Part, connection: &Connection) -> io::Result<()> {
        let fd = connection.0.as_raw_fd();
        let prepare = move || {
            // SAFETY: system calls with plain values, which a forked child may make. The intermediate process
            // ends at once.
            unsafe {
                libc::setsid();
                match libc::fork() {
                    -1 => return Err(io::Error::last_os_error()),
                    0 => (),
                    _ => libc::_exit(0),
                }
            }
            // SAFETY: the caller has it open until the child was started.
            let inherited = unsafe { BorrowedFd::borrow_raw(fd) };
            Ok(fcntl_setfd(inherited, FdFlags::empty())?)
        };
        let mut log = File::options();
        let log = log.create(true).append(true).open(self.directory.log())?;
        let mut command = self.command(part, connection);
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        // SAFETY: the closure makes system calls only; it takes no lock and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        command.spawn()?.wait()?;
        Ok(())
    }

    /// Executes the back end's program again, in the same process. Returns only if that fails.
    pub(crate) fn reexec(&self, keeper: &Connection) -> io::Error {
        if let Err(error) = fcntl_setfd(&keeper.0, FdFlags::empty()) {
            return error.into();
        }
        let error = self.command(Part::BackEnd, keeper).exec();
        let _ = fcntl_setfd(&keeper.0, FdFlags::CLOEXEC);
        error
    }
}
