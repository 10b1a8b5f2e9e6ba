//! Directories for the temporary files of commands, one for each. It is removed when its command has ended.
//! If its agent is killed, the next one removes it: a directory whose agent lives is locked.

use crate::wire::start::Start;
use rustix::fs::{flock, open, FlockOperation, Mode, OFlags};
use rustix::process::geteuid;
use std::cell::RefCell;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{chown, DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use vshmem_base::random;

/// The beginning of the directories' names.
const PREFIX: &str = "vshmem-job.";

/// The directories of an agent's commands.
#[derive(Default)]
pub struct Scratches {
    /// The directories whose commands have ended.
    done: Rc<RefCell<Vec<PathBuf>>>,
}

/// The directory of a command that has not ended.
pub struct Scratch {
    path: PathBuf,
    done: Rc<RefCell<Vec<PathBuf>>>,
    _lock: File,
}

impl Scratches {
    /// Makes the directory that a request asks for, and names it in the command's TMPDIR. If that fails, the
    /// command keeps the TMPDIR that it has.
    pub fn create(&self, request: &Start, command: &mut Command) -> Option<Scratch> {
        let scratch = request.scratch.then(|| self.make(request)).and_then(io::Result::ok)?;
        command.env("TMPDIR", &scratch.path);
        Some(scratch)
    }

    fn make(&self, request: &Start) -> io::Result<Scratch> {
        let name = random::hex::<6>().map_err(io::Error::other)?;
        let path = std::env::temp_dir().join(format!("{PREFIX}{name}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        let made = lock(&path).and_then(|lock| {
            if !request.inherits {
                chown(&path, Some(request.uid), Some(request.gid))?;
            }
            // Another agent may have swept it away before it was locked.
            fs::metadata(&path)?;
            lock.ok_or(ErrorKind::ResourceBusy.into())
        });
        let lock = made.inspect_err(|_| drop(fs::remove_dir(&path)))?;
        Ok(Scratch { path, done: self.done.clone(), _lock: lock })
    }

    /// Removes the directories of commands that have ended. A process that is still dying may write to one
    /// meanwhile; then the next call tries again.
    pub fn clean(&self) {
        self.done.borrow_mut().retain(|path| fs::remove_dir_all(path).is_err() && path.exists());
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.done.borrow_mut().push(std::mem::take(&mut self.path));
    }
}

/// Removes the directories of this user's agents that were killed.
pub fn sweep() {
    let all = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in all.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let is_ours = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == geteuid().as_raw());
        if let (true, Ok(Some(_lock))) = (is_ours, lock(&entry.path())) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The lock of a directory; `None`: a living agent has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty())?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(directory.into())),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(why) => Err(why.into()),
    }
}
