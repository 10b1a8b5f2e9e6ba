//! The pool that a cluster's machines share: a file in `/dev/shm` that only its owner can open.

use super::state::uid;
use crate::error::{Error, Result};
use crate::limits::Limit;
use crate::pools;
use std::fs;
use std::path::{Path, PathBuf};

/// Messages of 64 KiB fit, with a little to spare for headers that programs put before them.
const LONGEST_MESSAGE: u64 = 65536 + 4096;
/// A queue holds a few of the longest messages.
const QUEUE_BYTES: u64 = 4 * LONGEST_MESSAGE;

/// The file of a cluster's pool. By its name, `cluster.NAME`, processes on the host can use it too.
pub fn path(cluster: &str) -> PathBuf {
    format!("/dev/shm/vshmem.{}.cluster.{cluster}", uid()).into()
}

/// Makes an empty pool.
pub fn create(path: &Path, size: u64) -> Result<()> {
    let limits = [("msgmax", LONGEST_MESSAGE), ("msgmnb", QUEUE_BYTES)]
        .map(|(name, value)| Limit::new(name, value).expect("both are limits and fit"));
    pools::create(&path.to_string_lossy(), size, 0o600, &limits)
}

/// Removes a pool's file; it may be gone already.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::new(format!(
            "could not remove the pool {}: {e}",
            path.display()
        ))),
        _ => Ok(()),
    }
}
