//! Starting the parts of the agent: each is the same program with other arguments.

use crate::error::{Explain, Result};
use crate::ivshmem::directory::Directory;
use crate::ivshmem::link::Link;
use crate::ivshmem::{keeper, server};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// How the agent's parts are started.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program's file. After an upgrade the new one is found there.
    pub path: PathBuf,
    /// Arguments before those of the part.
    pub words: Vec<OsString>,
    /// The back end's directory.
    pub directory: Directory,
    /// It ends when it serves no pool any more.
    pub transient: bool,
}

/// A part of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Serves.
    BackEnd,
    /// Keeps descriptors.
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

/// Carries out a part that was started with `--part PART --link FD`.
///
/// # Errors
/// What keeps the part from its work.
pub fn run_part(program: &Program, part: Part, link: RawFd) -> Result<()> {
    // SAFETY: whoever started this part has left the descriptor open for it, and nothing else here knows it.
    let link = Link(unsafe { OwnedFd::from_raw_fd(link) });
    rustix::io::fcntl_setfd(&link.0, rustix::io::FdFlags::CLOEXEC)
        .explain(|| "the descriptor given with --link can't be used".into())?;
    match part {
        Part::BackEnd => server::serve(program, link),
        Part::Keeper => keeper::keep(program, link).explain(|| "the keeper can't go on".into()),
    }
}

impl Program {
    fn command(&self, part: Part, link: &Link) -> Command {
        let fd = link.0.as_raw_fd();
        let mut command = Command::new(&self.path);
        command.args(&self.words).args(["--part", part.name()]);
        command.args(["--link", &fd.to_string(), "--directory"]);
        command.arg(self.directory.path());
        if self.transient {
            command.arg("--transient");
        }
        command
    }

    /// Starts a part as nobody's child, in a session of its own.
    pub(crate) fn start(&self, part: Part, link: &Link) -> io::Result<()> {
        let fd = link.0.as_raw_fd();
        let prepare = move || {
            // SAFETY: system calls with plain values, which a forked child may make. The middle process ends at once.
            unsafe {
                libc::setsid();
                match libc::fork() {
                    -1 => return Err(io::Error::last_os_error()),
                    0 => (),
                    _ => libc::_exit(0),
                }
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        let mut log = File::options();
        let log = log.create(true).append(true).open(self.directory.log())?;
        let mut command = self.command(part, link);
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        // SAFETY: the closure makes system calls only; it takes no lock and no memory.
        unsafe { command.pre_exec(prepare) };
        command.spawn()?.wait()?;
        Ok(())
    }

    /// Becomes a new back end, in the same process. Returns only if that fails.
    pub(crate) fn become_anew(&self, link: &Link) -> io::Error {
        let flags = rustix::io::FdFlags::empty();
        if let Err(error) = rustix::io::fcntl_setfd(&link.0, flags) {
            return error.into();
        }
        let error = self.command(Part::BackEnd, link).exec();
        let _ = rustix::io::fcntl_setfd(&link.0, rustix::io::FdFlags::CLOEXEC);
        error
    }
}
