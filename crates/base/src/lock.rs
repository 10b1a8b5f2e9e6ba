//! Locks of files: two commands change no cluster, and use no channel, at the same time.

use crate::directories::{check_name, runtime_directory};
use crate::error::{error, Error, Explain, Result};
use crate::interrupt;
use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The lock's file for machines' claims to memory and cores of this host.
pub const CLAIMS: &str = "host.claims";
/// The lock's file for the devices of this host.
pub const DEVICES: &str = "host.devices";
/// The extension of the files of clusters' locks.
pub const OF_CLUSTER: &str = "lock";

/// The longest wait for a lock that another command holds.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Keeps other `vshmem` commands from changing the same cluster; released when it is dropped.
pub struct Lock(#[allow(dead_code)] File);

/// Takes a file's lock; `None` if another holds it and `wait` is false.
pub fn lock_file(path: &Path, wait: bool) -> Result<Option<File>> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .explain(|| format!("could not open {}", path.display()))?;
    let how = match wait {
        true => FlockOperation::LockExclusive,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    match flock(&file, how) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).explain(|| format!("could not lock {}", path.display())),
    }
}

/// Takes a cluster's lock, to start or stop it.
pub fn lock_cluster(name: &str) -> Result<Lock> {
    try_lock_cluster(name)?.ok_or_else(|| busy(&format!("the cluster {name}")))
}

/// Waits for the lock of a cluster or machine, which another command may hold. After an interrupt, who tidies
/// up still gets one that is free.
pub fn wait_for_lock(name: &str, mut lock: impl FnMut() -> Result<Option<Lock>>) -> Result<Lock> {
    if let Some(free) = lock()? {
        return Ok(free);
    }
    interrupt::wait_for(TIMEOUT, lock)?.ok_or_else(|| busy(name))
}

/// The error for a cluster or machine whose lock another command holds.
pub fn busy(name: &str) -> Error {
    error!("another vshmem command is at work on {name}").hint("Wait until it is done, or end it.")
}

/// Takes a cluster's lock; `None` if another command holds it.
pub fn try_lock_cluster(name: &str) -> Result<Option<Lock>> {
    check_name(name)?;
    lock_at(&runtime_directory()?.join(name).with_extension(OF_CLUSTER))
}

/// Takes the lock whose file is at this path. Its holder may remove the file.
pub fn lock_at(path: &Path) -> Result<Option<Lock>> {
    loop {
        let Some(file) = lock_file(path, false)? else {
            return Ok(None);
        };
        // The holder before may have removed the file since it was opened here.
        if is_at(&file, path) {
            return Ok(Some(Lock(file)));
        }
        runtime_directory()?;
    }
}

/// Whether an open file is the one at this path.
pub fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
        _ => false,
    }
}

/// Removes the files of locks that killed commands have left: those that nobody holds, unless their cluster
/// is there. And the user's directory, if nothing else is in it.
pub fn remove_left_locks() -> Result<()> {
    let runtime = runtime_directory()?;
    let entries = fs::read_dir(&runtime).explain(|| format!("reading {}", runtime.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_left = match path.extension().is_some_and(|ending| ending == OF_CLUSTER) {
            true => !path.with_extension("").exists(),
            false => path.file_name().is_some_and(|name| name == CLAIMS || name == DEVICES),
        };
        if is_left {
            if let Ok(Some(lock)) = lock_at(&path) {
                let _ = fs::remove_file(&path);
                drop(lock);
            }
        }
    }
    let _ = fs::remove_dir(&runtime);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread has a signal that ends commands, until it is taken.
    fn interrupted() -> impl FnOnce() {
        let hang_up = || {
            // SAFETY: sigemptyset initialises the set that the other calls read.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGHUP);
                set
            }
        };
        // SAFETY: the set is initialised; a blocked signal that this thread sends itself stays pending.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &hang_up(), std::ptr::null_mut());
            libc::raise(libc::SIGHUP);
        }
        move || {
            let mut taken = 0;
            // SAFETY: the set is initialised, and the signal is pending in this thread.
            unsafe { libc::sigwait(&hang_up(), &mut taken) };
            assert_eq!(taken, libc::SIGHUP);
        }
    }

    #[test]
    fn a_free_lock_is_had_after_an_interrupt() {
        let path = std::env::temp_dir().join(format!("vshmem-free-lock-{}", std::process::id()));
        let lock = || Ok(lock_file(&path, false)?.map(Lock));
        let take = interrupted();
        let free = wait_for_lock("it", lock);
        let held = wait_for_lock("it", lock);
        let asked = interrupt::check();
        take();
        assert!(asked.is_err(), "the user asks to stop");
        assert!(free.is_ok(), "a free lock is had");
        assert!(
            held.is_err_and(|why| why.to_string().contains("interrupted")),
            "a held one is not waited for"
        );
        let _ = fs::remove_file(&path);
    }

    #[test]
    fn a_lock_is_exclusive() {
        let path = std::env::temp_dir().join(format!("vshmem-lock-{}", std::process::id()));
        let held = lock_file(&path, false).unwrap();
        assert!(held.is_some());
        assert!(lock_file(&path, false).unwrap().is_none());
        drop(held);
        assert!(lock_file(&path, false).unwrap().is_some());
        fs::remove_file(&path).unwrap();
    }
}
