//! The files by which a kernel shows its devices, and by which it is told what to do with them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A root directory with `sys`, `proc` and `dev` in it. Paths begin with one of these.
pub trait Tree {
    /// A file's bytes.
    ///
    /// # Errors
    /// It can't be read.
    fn bytes(&self, path: &str) -> io::Result<Vec<u8>>;

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// It can't be read.
    fn names(&self, directory: &str) -> io::Result<Vec<String>>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// It is none.
    fn target(&self, path: &str) -> io::Result<String>;

    /// Writes a value.
    ///
    /// # Errors
    /// The kernel refuses it.
    fn write(&self, path: &str, value: &str) -> io::Result<()>;

    /// Opens a device to read and write, and closes it: whether that can be done.
    ///
    /// # Errors
    /// It can't.
    fn try_open(&self, path: &str) -> io::Result<()>;

    /// Loads a module of the kernel, with those that it needs.
    ///
    /// # Errors
    /// It can't be loaded.
    fn load(&self, module: &str) -> io::Result<()>;

    /// A file's text without white space around it, if it can be read.
    fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().into())
    }

    /// The last part of a symbolic link's target, if it is one.
    fn link(&self, path: &str) -> Option<String> {
        let target = self.target(path).ok()?;
        Some(target.rsplit('/').next()?.into())
    }

    /// The names in a directory; none if it can't be read.
    fn names_or_none(&self, directory: &str) -> Vec<String> {
        self.names(directory).unwrap_or_default()
    }
}

/// A directory: the root of this host, or a copy of another one's files.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// The files of this host.
    pub fn live() -> Directory {
        Directory::below("/")
    }

    /// A tree that was recorded, perhaps on another host.
    pub fn below(root: impl Into<PathBuf>) -> Directory {
        Directory { root: root.into() }
    }

    /// True for the files of this host.
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }
}

impl Tree for Directory {
    fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(self.root.join(path))
    }

    fn names(&self, directory: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.root.join(directory))?;
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    fn target(&self, path: &str) -> io::Result<String> {
        let target = fs::read_link(self.root.join(path))?;
        target.into_os_string().into_string().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        // The kernel takes no write of nothing.
        fs::write(self.root.join(path), format!("{value}\n"))
    }

    fn try_open(&self, path: &str) -> io::Result<()> {
        fs::File::options().read(true).write(true).open(self.root.join(path)).map(drop)
    }

    fn load(&self, module: &str) -> io::Result<()> {
        if !self.is_live() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut command = Command::new("modprobe");
        command.arg(module).stdin(Stdio::null()).stdout(Stdio::null());
        let output = command.stderr(Stdio::piped()).output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }
}
