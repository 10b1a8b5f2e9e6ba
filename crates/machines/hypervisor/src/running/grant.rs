//! Grants of pools to machines that run, and their revocation.
//!
//! Which pools a machine has is asked from QEMU each time; the record only adds their files. So an
//! interrupted command does no harm: the record is written before anything is plugged in and after everything
//! is unplugged, and the next command on the machine cleans up what is between the two ([`Hotplug::begin`]).

use super::attached::Attached;
use super::hotplug::{Hotplug, ANSWER_TIMEOUT};
use super::qemu_machine::QemuMachine;
use crate::launcher::grants::{GrantResult, Grants};
use crate::state::record::{Granted, Record};
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Result};
use vshmem_inspect::host_pool::HostPool;

/// Grants pools by way of QEMU's monitor.
pub struct ByMonitor;

impl Grants for ByMonitor {
    fn grant(
        &self,
        record: &mut Record,
        index: usize,
        pool: &HostPool,
        timeout: Duration,
    ) -> Result<GrantResult> {
        grant(QemuMachine::of_cluster(record, index)?, pool, timeout)
    }

    fn revoke(&self, record: &mut Record, index: usize, pool: &str, timeout: Duration) -> Result<String> {
        revoke(QemuMachine::of_cluster(record, index)?, pool, timeout)
    }

    fn power_off(&self, record: &mut Record, index: usize) -> Result<()> {
        QemuMachine::of_cluster(record, index)?.power_off()
    }
}

impl Attached {
    /// Grants it a pool. The caller has its lock.
    pub fn grant(&mut self, pool: &HostPool, timeout: Duration) -> Result<GrantResult> {
        grant(QemuMachine::attached(self), pool, timeout)
    }

    /// Revokes a pool from it, as [`Grants::revoke`] does. The caller has its lock.
    pub fn revoke(&mut self, pool: &str, timeout: Duration) -> Result<String> {
        revoke(QemuMachine::attached(self), pool, timeout)
    }

    /// Turns it off, like a power failure.
    pub fn power_off(&mut self) -> Result<()> {
        QemuMachine::attached(self).power_off()
    }
}

/// Grants a machine a pool.
fn grant(machine: QemuMachine, pool: &HostPool, timeout: Duration) -> Result<GrantResult> {
    let begun = Instant::now();
    let mut hotplug = Hotplug::begin(machine)?;
    let before = hotplug.has(pool)?;
    if !before {
        hotplug.plug(pool)?;
    }
    let left = timeout.saturating_sub(begun.elapsed());
    // A front end that listens waits for the device itself.
    let usable = hotplug.announce(&pool.name, left)?;
    let plugged = match (&usable, hotplug.devices.of(&pool.name)) {
        (Ok(()), Some(plugged)) => plugged.clone(),
        _ => hotplug.await_device(&pool.name, timeout.saturating_sub(begun.elapsed()))?,
    };
    let took = begun.elapsed();
    hotplug.record_members()?;
    Ok(GrantResult { name: pool.name.clone(), address: plugged.address, before, usable, took })
}

/// Revokes a pool from a machine; returns its name there. `pool` is that name, or a name or path on this
/// host.
fn revoke(machine: QemuMachine, pool: &str, timeout: Duration) -> Result<String> {
    let mut hotplug = Hotplug::begin(machine)?;
    let name = hotplug.named(pool)?;
    hotplug.check_not_fixed(&name)?;
    let Some(plugged) = hotplug.devices.of(&name).cloned() else {
        let machine = &hotplug.machine.name;
        return Err(error!("{machine} does not have the pool {pool}").code(1).hint(hotplug.what_it_has()));
    };
    hotplug.check_unpluggable(&name)?;
    hotplug.record_members()?;
    hotplug.unplug(&plugged, timeout)?;
    hotplug.clean_up(&name)?;
    // The front end ignores devices that are gone, so it need not hear of this.
    let _ = hotplug.announce_all(ANSWER_TIMEOUT);
    Ok(name)
}

/// The pools that a machine has, with their devices' addresses. Cleans up after interrupted commands.
pub fn pools(machine: QemuMachine) -> Result<Vec<(Granted, String)>> {
    let hotplug = Hotplug::begin(machine)?;
    let all = hotplug.machine.pools.iter();
    let with = |pool: &Granted| Some((pool.clone(), hotplug.devices.of(&pool.name)?.address.clone()));
    Ok(all.filter_map(with).collect())
}
