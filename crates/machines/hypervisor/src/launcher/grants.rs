//! The interface by which a launcher grants pools to machines that run, and revokes them.

use crate::state::record::Record;
use std::time::Duration;
use vshmem_base::error::Result;
use vshmem_inspect::host_pool::HostPool;

/// Grants pools to machines that run, and revokes them. The caller has the cluster's lock, so that no other
/// command changes the record meanwhile; each function writes the record as it changes it.
pub trait Grants {
    /// Grants the machine with this index a pool.
    fn grant(
        &self,
        record: &mut Record,
        index: usize,
        pool: &HostPool,
        timeout: Duration,
    ) -> Result<GrantResult>;

    /// Revokes a pool from the machine with this index; returns its name there. `pool` is that name, or a
    /// name or path on this host. The error that the machine does not have it has the code 1.
    fn revoke(&self, record: &mut Record, index: usize, pool: &str, timeout: Duration) -> Result<String>;

    /// Turns the machine with this index off, like a power failure.
    fn power_off(&self, record: &mut Record, index: usize) -> Result<()>;
}

/// A pool that was granted.
#[derive(Debug, Clone, PartialEq)]
pub struct GrantResult {
    /// Its name in the machine.
    pub name: String,
    /// Its device's PCI address there.
    pub address: String,
    /// The machine had it already.
    pub before: bool,
    /// Programs in the machine can use it, as its front end reports; otherwise why that is not known.
    pub usable: std::result::Result<(), String>,
    /// Time that granting it took.
    pub took: Duration,
}
