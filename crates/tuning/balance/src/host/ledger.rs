//! The ledger: each change of this host, written down before it is made. If `vshmem balance` is killed, the
//! next one undoes what is in it.

use super::kernel;
use super::threads;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use vshmem_base::{
    directories::{boot_id, runtime_directory},
    lock::{lock_at, Lock},
    process::Process,
    stored,
};
use vshmem_base::{error, Result};

const VERSION: u32 = 1;
const LEDGER: &str = "balance.json";
const LOCK: &str = "balance.lock";

/// The ledger's file.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    version: u32,
    /// The boot of the host in which the changes were made.
    boot: String,
    threads: Vec<Changed>,
    /// The setting of the kernel's own NUMA balancing before.
    numa_balancing: Option<String>,
}

/// A thread whose processors were changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Changed {
    process: Process,
    thread: i32,
    /// The processors on which it might run before.
    processors: Vec<u32>,
}

/// The ledger of this user. While it is open, no other process has it.
pub struct Ledger {
    path: PathBuf,
    lock_path: PathBuf,
    written: Written,
    _lock: Lock,
}

impl Ledger {
    /// Opens the ledger, with what another has left there.
    ///
    /// # Errors
    /// Another process has it, or it can't be read.
    pub fn open() -> Result<Ledger> {
        Ledger::at(&runtime_directory()?)
    }

    fn at(directory: &Path) -> Result<Ledger> {
        let (path, lock_path) = (directory.join(LEDGER), directory.join(LOCK));
        let lock = lock_at(&lock_path)?.ok_or_else(|| {
            error!("another vshmem balance is at work").hint("One is enough for all machines of a user.")
        })?;
        let hint = format!("Remove {}: what it undoes is lost.", path.display());
        let left = stored::read::<Written>(&path, VERSION, &hint)?.filter(|left| left.boot == boot_id());
        let written = left.unwrap_or_else(|| Written {
            version: VERSION,
            boot: boot_id(),
            threads: Vec::new(),
            numa_balancing: None,
        });
        Ok(Ledger { path, lock_path, written, _lock: lock })
    }

    /// Writes down the processors of threads that are about to be moved, but for those that are in it
    /// already.
    pub fn keep(&mut self, process: Process, all: &[i32]) -> Result<()> {
        self.written.threads.retain(|changed| changed.process.alive());
        for thread in all {
            let known = |changed: &Changed| (changed.process, changed.thread) == (process, *thread);
            if self.written.threads.iter().any(known) {
                continue;
            }
            let allowed = threads::allowed(*thread);
            let allowed =
                allowed.map_err(|why| error!("could not see where thread {thread} may run: {why}"))?;
            if let Some(processors) = allowed {
                self.written.threads.push(Changed { process, thread: *thread, processors });
            }
        }
        stored::write(&self.path, &self.written)
    }

    /// Turns the kernel's own balancing off, and writes down that it was on.
    pub fn turn_kernel_off(&mut self, file: &Path) -> Result<()> {
        let Some(was) = kernel::setting(file) else { return Ok(()) };
        if self.written.numa_balancing.is_none() {
            self.written.numa_balancing = Some(was);
            stored::write(&self.path, &self.written)?;
        }
        if let Err(why) = kernel::set(file, "0") {
            self.written.numa_balancing = None;
            stored::write(&self.path, &self.written)?;
            return Err(error!("the kernel's own NUMA balancing is on, and can't be turned off: {why}"));
        }
        Ok(())
    }

    /// Undoes all that is written down. Returns the number of threads, and a sentence for each failure.
    pub fn undo(&mut self) -> (usize, Vec<String>) {
        let (mut count, mut failures) = (0, Vec::new());
        for changed in std::mem::take(&mut self.written.threads) {
            // A thread that has ended may have left its number to anybody's.
            if !changed.process.alive() || !threads::is_of(changed.process.pid, changed.thread) {
                continue;
            }
            match threads::allow(changed.thread, &changed.processors) {
                Ok(()) => count += 1,
                Err(why) => failures.push(format!("thread {} stays where it is: {why}", changed.thread)),
            }
        }
        if let Some(was) = self.written.numa_balancing.take() {
            if let Err(why) = kernel::set(Path::new(kernel::FILE), &was) {
                failures.push(format!("the kernel's own NUMA balancing stays off ({}): {why}", kernel::FILE));
            }
        }
        let _ = fs::remove_file(&self.path);
        (count, failures)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if self.written.threads.is_empty() && self.written.numa_balancing.is_none() {
            let _ = fs::remove_file(&self.path);
        }
        let _ = fs::remove_file(&self.lock_path);
        // This fails if there is anything else in it.
        let _ = self.path.parent().map(fs::remove_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_a_killed_one_has_left_is_undone() {
        let directory = std::env::temp_dir().join(format!("vshmem-ledger-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let thread = child.id() as i32;
        let process = Process::find(thread).unwrap();
        let all = threads::allowed(thread).unwrap().unwrap();
        let mut first = Ledger::at(&directory).unwrap();
        assert!(Ledger::at(&directory).is_err_and(|why| why.to_string().contains("another vshmem balance")));
        first.keep(process, &[thread]).unwrap();
        threads::allow(thread, &all[..1]).unwrap();
        drop(first);
        let mut second = Ledger::at(&directory).unwrap();
        // Where it may run now is not what is written down.
        second.keep(process, &[thread]).unwrap();
        assert_eq!(second.written.threads.len(), 1);
        assert_eq!(second.undo(), (1, vec![]));
        assert_eq!(threads::allowed(thread).unwrap().unwrap(), all);
        // A thread of another process, which has the number now.
        let changed = Changed { process, thread: std::process::id() as i32, processors: all };
        second.written.threads.push(changed);
        assert_eq!(second.undo(), (0, vec![]));
        drop(second);
        assert!(!directory.exists(), "nothing is left");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_kernels_balancing_is_written_down_before_it_is_off() {
        let directory = std::env::temp_dir().join(format!("vshmem-ledger-off-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("numa_balancing");
        fs::write(&file, "1\n").unwrap();
        let mut ledger = Ledger::at(&directory).unwrap();
        ledger.turn_kernel_off(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "0");
        let written: Written = stored::read(&ledger.path, VERSION, "").unwrap().unwrap();
        assert_eq!(written.numa_balancing.as_deref(), Some("1"));
        // Turned on by somebody else meanwhile: what it was at first is what comes back.
        fs::write(&file, "2\n").unwrap();
        ledger.turn_kernel_off(&file).unwrap();
        assert_eq!(ledger.written.numa_balancing.as_deref(), Some("1"));
        // Where it can't be turned off there is nothing to undo.
        ledger.written.numa_balancing = None;
        let unwritable = Path::new("/proc/version");
        assert!(ledger.turn_kernel_off(unwritable).is_err());
        assert_eq!(ledger.written.numa_balancing, None);
        fs::remove_dir_all(&directory).unwrap();
    }
}
