//! The back end's directory: its sockets, its lock and its log, which only its owner can reach.

use crate::error::{Error, Explain, Result};
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory that only its owner can enter.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

impl Directory {
    /// Makes the directory, or checks that an existing one is private.
    pub fn at(path: &Path) -> Result<Directory> {
        private(path)?;
        private(&path.join("pools"))?;
        Ok(Directory(path.into()))
    }

    /// The directory, whether or not it exists.
    pub fn named(path: &Path) -> Directory {
        Directory(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The control socket.
    pub fn control(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    /// The socket at which metrics are told, if no other address was given.
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

    /// Which process the back end is.
    pub(crate) fn process(&self) -> PathBuf {
        self.0.join("pid")
    }

    /// Which pools the next back end is to begin without, a line each.
    pub(crate) fn without(&self) -> PathBuf {
        self.0.join("without")
    }

    /// What a back end without a terminal says.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Removes all of it, and the directory above if nothing else is in it.
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
            return Err(Error::new(format!(
                "could not make {}: {e}",
                path.display()
            )))
        }
        _ => (),
    }
    let meta =
        fs::symlink_metadata(path).explain(|| format!("could not look at {}", path.display()))?;
    // SAFETY: takes nothing and always succeeds.
    let ours = meta.uid() == unsafe { libc::geteuid() };
    if meta.is_dir() && ours && meta.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::new(format!(
        "{} is not a directory that only you can enter; remove it or choose another",
        path.display()
    )))
}
