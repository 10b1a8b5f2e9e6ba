//! The back end's directory, with its sockets, its lock and its log.

use rustix::fs::{flock, FlockOperation};
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Explain, Result};

/// The directory of a back end, which only its owner can enter.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

impl Directory {
    /// Creates the directory, or checks that an existing one is private.
    pub fn at(path: &Path) -> Result<Directory> {
        private(path)?;
        private(&path.join("pools"))?;
        Ok(Directory(path.into()))
    }

    /// The directory, whether or not it exists.
    pub fn named(path: &Path) -> Directory {
        Directory(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The control socket.
    pub fn control(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    /// The default socket for metrics.
    pub(crate) fn metrics(&self) -> PathBuf {
        self.0.join("metrics.sock")
    }

    /// The socket that machines with this pool connect to.
    pub fn pool(&self, name: &str) -> PathBuf {
        self.0.join("pools").join(name)
    }

    /// The file whose lock the back end and its keeper hold.
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Takes that lock; `None` if a back end or its keeper has it.
    pub(crate) fn try_lock(&self) -> Result<Option<OwnedFd>> {
        let path = self.lock();
        let failed = || format!("could not lock {}", path.display());
        let file = File::options().create(true).truncate(false).write(true).open(&path).explain(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(e) => return Err(e).explain(failed),
        }
        // A previous back end may have removed the file since it was opened.
        let ours = file.metadata().map(|meta| meta.ino()).ok();
        let there = fs::metadata(&path).map(|meta| meta.ino()).ok();
        Ok((ours == there).then(|| file.into()))
    }

    /// The file with the back end's pid.
    pub(crate) fn pid_file(&self) -> PathBuf {
        self.0.join("pid")
    }

    /// The list of pools that the next back end is not to open, a line each.
    pub(crate) fn excluded(&self) -> PathBuf {
        self.0.join("without")
    }

    /// The log of the back end and the keeper.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Removes the directory, and its parent if that is empty then.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
        if let Some(above) = self.0.parent() {
            let _ = fs::remove_dir(above);
        }
    }
}

fn private(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).recursive(true).create(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            return Err(error!("could not make {}: {e}", path.display()))
        }
        _ => (),
    }
    let meta = fs::symlink_metadata(path).explain(|| format!("could not look at {}", path.display()))?;
    let ours = meta.uid() == rustix::process::geteuid().as_raw();
    if meta.is_dir() && ours && meta.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(error!("{} is not a directory that only you can enter; remove it or choose another", path.display()))
}
