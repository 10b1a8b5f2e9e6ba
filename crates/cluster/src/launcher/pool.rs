//! The pool of a cluster: a named pool of the user who starts the machines. Processes on the host can use it
//! by its name, `cluster.NAME`.

use crate::error::{error, Result};
use crate::limits::Limit;
use crate::pools;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use vshmem_transport::{remove_local, PoolRef, RemoveError};

/// Messages of 64 KiB, and headers that programs put before them.
const MAX_MESSAGE: u64 = 65536 + 4096;
/// A queue holds a few messages of that size.
const QUEUE_BYTES: u64 = 4 * MAX_MESSAGE;

fn name(cluster: &str) -> String {
    format!("cluster.{cluster}")
}

/// The file of a cluster's pool.
pub fn path(cluster: &str) -> PathBuf {
    let pool = PoolRef::named(name(cluster).as_bytes()).expect("short, and of letters");
    OsStr::from_bytes(pool.path().to_bytes()).into()
}

/// Makes an empty pool. With a `head`, machines can be given its file as persistent memory.
pub fn create(cluster: &str, size: u64, head: bool) -> Result<()> {
    let limits = [("msgmax", MAX_MESSAGE), ("msgmnb", QUEUE_BYTES)]
        .map(|(name, value)| Limit::new(name, value).expect("both are limits and fit"));
    pools::create(&name(cluster), size, 0o600, &limits, pools::Form { head, align: 0 })
}

/// Removes a cluster's pool; it may be gone already.
pub fn remove(cluster: &str) -> Result<()> {
    let name = name(cluster);
    let file = CString::new(&*name).expect("a cluster's name has no zero byte");
    match remove_local(&file) {
        Ok(()) | Err(RemoveError::NotFound) => Ok(()),
        Err(error) => Err(error!("could not remove the pool {name}: {error}")),
    }
}
