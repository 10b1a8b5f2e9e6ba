//! The pools that are made for a cluster: named pools of the user who starts the machines. Processes on the
//! host can use them by their names, `cluster.NAME` and `cluster.NAME.POOL`.

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

/// The name of a cluster's own pool on this host.
pub fn own(cluster: &str) -> String {
    format!("cluster.{cluster}")
}

/// The name on this host of a further pool that is made for a cluster, and which its machines call `name`.
pub fn further(cluster: &str, name: &str) -> String {
    format!("cluster.{cluster}.{name}")
}

/// The file of a pool of this user.
pub fn path(name: &str) -> PathBuf {
    let pool = PoolRef::named(name.as_bytes()).expect("short, and of letters");
    OsStr::from_bytes(pool.path().to_bytes()).into()
}

/// Makes an empty pool.
pub fn create(name: &str, size: u64, form: pools::Form) -> Result<()> {
    let limits = [("msgmax", MAX_MESSAGE), ("msgmnb", QUEUE_BYTES)]
        .map(|(name, value)| Limit::new(name, value).expect("both are limits and fit"));
    pools::create(name, size, 0o600, &limits, form)
}

/// Removes a pool; it may be gone already.
pub fn remove(name: &str) -> Result<()> {
    let file = CString::new(name).expect("its name has no zero byte");
    match remove_local(&file) {
        Ok(()) | Err(RemoveError::NotFound) => Ok(()),
        Err(error) => Err(error!("could not remove the pool {name}: {error}")),
    }
}
