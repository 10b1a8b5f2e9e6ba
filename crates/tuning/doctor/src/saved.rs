//! The changes of `--fix`, with the values before: written before anything is changed, and read by `--undo`.

use crate::setting::Setting;
use crate::system::System;
use rustix::fs::{flock, FlockOperation};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use vshmem_base::error::{error, Explain, Result};

/// The changes of this boot.
#[derive(Debug, Default)]
pub struct Saved {
    /// The changes, in the order in which they were made.
    pub entries: Vec<Entry>,
    /// There were changes that a reboot has undone.
    pub lost: bool,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The check that asked for it.
    pub check: String,
    /// The setting.
    pub setting: Setting,
    /// The value before.
    pub was: String,
    /// The value that was set.
    pub set: String,
}

/// The file's content.
#[derive(Serialize, Deserialize)]
struct Document {
    boot: String,
    entries: Vec<Entry>,
}

impl Saved {
    /// Reads a file, which need not exist. Of an earlier boot nothing is left, neither there nor here:
    /// no change outlives the kernel.
    pub fn read(file: &Path, system: &System) -> Result<Saved> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Saved::default()),
            Err(e) => return Err(error!("could not read {}: {e}", file.display())),
        };
        let document: Document = serde_json::from_str(&text)
            .map_err(|e| error!("{} is not what vshmem doctor has written: {e}", file.display()))?;
        let lost = document.boot != boot(system);
        Ok(Saved { entries: if lost { Vec::new() } else { document.entries }, lost })
    }

    /// Writes the file anew, so that it is there whatever happens next; removes it if there is
    /// nothing to write.
    pub fn write(&self, file: &Path, system: &System) -> Result<()> {
        let written = || format!("could not write {}", file.display());
        if self.entries.is_empty() {
            died_here();
            return match fs::remove_file(file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).explain(written),
                _ => Ok(()),
            };
        }
        let document = Document { boot: boot(system), entries: self.entries.clone() };
        let text = serde_json::to_string_pretty(&document).expect("it is plain data");
        let new = file.with_extension("new");
        died_here();
        let mut out = File::create(&new).explain(written)?;
        died_here();
        out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).explain(written)?;
        died_here();
        fs::rename(&new, file).explain(written)?;
        died_here();
        Ok(())
    }
}

/// A point at which tests kill this process.
fn died_here() {
    #[cfg(test)]
    crate::tests::killed::step();
}

fn boot(system: &System) -> String {
    let id = system.text("proc/sys/kernel/random/boot_id").ok().flatten();
    id.unwrap_or_default().trim().into()
}

/// Keeps others from changing anything, until it is dropped.
#[derive(Debug)]
pub struct Lock(File);

/// Keeps others from changing anything meanwhile.
pub fn lock(file: &Path) -> Result<Lock> {
    let directory = file.parent().unwrap_or(file);
    let lock = File::open(directory).explain(|| format!("could not open {}", directory.display()))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| error!("another vshmem doctor is changing settings: wait until it has finished"))?;
    Ok(Lock(lock))
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that was forked meanwhile has it, too, and would hold the
        // lock for as long as it lives. Unlocking can't fail, since the file is open.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_forked_meanwhile_does_not_hold_the_lock() {
        let file = std::env::temp_dir().join("doctor.json");
        let first = lock(&file).unwrap();
        assert!(lock(&file).is_err(), "there is one at a time");
        // A child has the same open file.
        let _of_child = first.0.try_clone().unwrap();
        drop(first);
        lock(&file).unwrap();
    }
}
