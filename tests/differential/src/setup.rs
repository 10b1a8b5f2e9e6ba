//! What all runs of a test process share: the directory, the copies of programs in it, the back ends.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Who answers the workers' calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The kernel's own System V IPC, in a namespace of its own.
    Kernel,
    /// Vshmem: the same worker under the interposer, with a pool of its own.
    Vshmem,
    /// The kernel, but the workers drop `SEM_UNDO`: a deviation that must be found.
    Deviant,
}

/// A directory that every user may enter, with the worker and the library in it. Removed when dropped.
pub struct Setup {
    directory: PathBuf,
    pools: PathBuf,
    library: bool,
}

impl Setup {
    /// Makes the directory.
    ///
    /// # Errors
    /// What could not be done, as a sentence.
    pub fn new(worker: &Path, library: Option<&Path>) -> Result<Setup, String> {
        let name = format!("vshmem-differential-{}", std::process::id());
        let directory = std::env::temp_dir().join(&name);
        let memory = Path::new("/dev/shm");
        let pools = if memory.is_dir() { memory.join(&name) } else { directory.join("pools") };
        let setup = Setup { directory, pools, library: library.is_some() };
        setup
            .fill(worker, library)
            .map_err(|why| format!("cannot set up {}: {why}", setup.directory.display()))?;
        Ok(setup)
    }

    fn fill(&self, worker: &Path, library: Option<&Path>) -> io::Result<()> {
        for directory in [&self.directory, &self.pools] {
            fs::create_dir_all(directory)?;
            fs::set_permissions(directory, Permissions::from_mode(0o755))?;
        }
        // Copies, because a worker that has become another user must be able to read them.
        fs::copy(worker, self.worker())?;
        fs::set_permissions(self.worker(), Permissions::from_mode(0o755))?;
        if let Some(library) = library {
            fs::copy(library, self.library_path())?;
            fs::set_permissions(self.library_path(), Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// The program that performs commands.
    pub fn worker(&self) -> PathBuf {
        self.directory.join("worker")
    }

    /// The interposer, if there is one.
    pub fn library(&self) -> Option<PathBuf> {
        self.library.then(|| self.library_path())
    }

    fn library_path(&self) -> PathBuf {
        self.directory.join("libvshmem.so")
    }

    /// Where a new pool may be made.
    pub fn pool(&self, number: u64) -> PathBuf {
        self.pools.join(format!("pool-{number}"))
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's cleaning of temporary files.
        let _ = fs::remove_dir_all(&self.directory);
        let _ = fs::remove_dir_all(&self.pools);
    }
}

/// Prepares the calling process: its own IPC namespace and the care for orphaned workers. An
/// ordinary user gets a user namespace too, in which changes of identity fail on both sides alike.
///
/// # Errors
/// What the kernel refused, as a sentence.
pub fn prepare_process() -> Result<(), String> {
    // SAFETY: plain calls; the process has one thread when this is called.
    unsafe {
        let (uid, gid) = (libc::geteuid(), libc::getegid());
        if uid != 0 {
            if libc::unshare(libc::CLONE_NEWUSER) != 0 {
                return Err(format!(
                    "no user namespace can be had ({}): run the differential tests as root",
                    io::Error::last_os_error()
                ));
            }
            let write = |path: &str, text: String| {
                fs::write(path, text).map_err(|why| format!("cannot write {path}: {why}"))
            };
            write("/proc/self/setgroups", "deny".to_owned())?;
            write("/proc/self/uid_map", format!("0 {uid} 1"))?;
            write("/proc/self/gid_map", format!("0 {gid} 1"))?;
        }
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    }
    Ok(())
}
