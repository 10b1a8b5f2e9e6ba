//! The machine that pools are granted to and revoked from: one of a cluster, or an attached one. It is
//! locked.

use super::grants::{GrantResult, Grants};
use super::table;
use crate::running::attached::{self, Attached};
use crate::state::disks::remove_cluster_directory;
use crate::state::machine::{find, index_of};
use crate::state::record::{Granted, Record};
use std::time::Duration;
use vshmem_base::directories::cluster_directory;
use vshmem_base::error::{error, Result};
use vshmem_base::lock::{try_lock_cluster, wait_for_lock, Lock};
use vshmem_inspect::host_pool::HostPool;

/// A locked machine.
pub struct Target {
    home: Home,
    _lock: Lock,
}

/// Its record.
enum Home {
    /// A cluster's, with the launcher's way of granting pools.
    Cluster { record: Box<Record>, index: usize, grants: &'static dyn Grants },
    /// An attached machine's, which no launcher has started.
    Attached(Box<Attached>),
}

impl Target {
    /// The machine of this name, to grant pools to: one of the cluster, else an attached one.
    pub fn find(cluster: &str, name: &str) -> Result<Target> {
        let has = |record: &Record| record.machines.iter().any(|machine| machine.name == name);
        if Record::read(cluster)?.as_ref().is_some_and(has) {
            return Target::of_cluster(cluster, name);
        }
        if let Some((record, lock)) = attached::locked(name)? {
            return Ok(Target { home: Home::Attached(Box::new(record)), _lock: lock });
        }
        // For its error about clusters and machines.
        find(cluster, &[name.to_string()])?;
        Err(error!("there is no machine {name}"))
    }

    fn of_cluster(cluster: &str, name: &str) -> Result<Target> {
        let lock = wait_for_lock(name, || try_lock_cluster(cluster))?;
        let found = find(cluster, &[name.to_string()]);
        if !cluster_directory(cluster)?.exists() {
            // Taking the lock has made its file again.
            remove_cluster_directory(cluster)?;
        }
        let (record, _) = found?;
        let grants = table::of(&record).grants(name)?;
        let index = index_of(&record, name)?;
        Ok(Target { home: Home::Cluster { record: Box::new(record), index, grants }, _lock: lock })
    }

    /// Its pools, as its record says.
    pub fn pools(&self) -> &[Granted] {
        match &self.home {
            Home::Cluster { record, index, .. } => &record.machines[*index].pools,
            Home::Attached(attached) => &attached.pools,
        }
    }

    /// Grants it a pool.
    pub fn grant(&mut self, pool: &HostPool, timeout: Duration) -> Result<GrantResult> {
        match &mut self.home {
            Home::Cluster { record, index, grants } => grants.grant(record, *index, pool, timeout),
            Home::Attached(attached) => attached.grant(pool, timeout),
        }
    }

    /// Revokes a pool from it; returns its name there. `pool` is that name, or a name or path on this host.
    pub fn revoke(&mut self, pool: &str, timeout: Duration) -> Result<String> {
        match &mut self.home {
            Home::Cluster { record, index, grants } => grants.revoke(record, *index, pool, timeout),
            Home::Attached(attached) => attached.revoke(pool, timeout),
        }
    }

    /// Turns it off, like a power failure.
    pub fn power_off(&mut self) -> Result<()> {
        match &mut self.home {
            Home::Cluster { record, index, grants } => grants.power_off(record, *index),
            Home::Attached(attached) => attached.power_off(),
        }
    }
}
