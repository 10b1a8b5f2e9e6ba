//! Grants pools to machines that run, and revokes them.
//!
//! Which pools a machine has is asked from QEMU each time; the record only adds their files. So an
//! interrupted command does no harm: the record is written before anything is plugged in and after everything
//! is unplugged, and the next command on the machine cleans up what is between the two ([`Hotplug::begin`]).

use super::hotplug::{Hotplug, ANSWER_TIMEOUT};
use super::target::Target;
use crate::state::record::Granted;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Result};
use vshmem_inspect::host_pool::HostPool;

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

/// Grants a machine a pool.
pub fn grant(target: &mut Target, pool: &HostPool, timeout: Duration) -> Result<GrantResult> {
    let begun = Instant::now();
    let mut hotplug = Hotplug::begin(target)?;
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
pub fn revoke(target: &mut Target, pool: &str, timeout: Duration) -> Result<String> {
    let mut hotplug = Hotplug::begin(target)?;
    let name = hotplug.named(pool)?;
    hotplug.check_not_fixed(&name)?;
    let Some(plugged) = hotplug.devices.of(&name).cloned() else {
        let machine = &hotplug.target.name;
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
pub fn pools(target: &mut Target) -> Result<Vec<(Granted, String)>> {
    let hotplug = Hotplug::begin(target)?;
    let all = hotplug.target.pools.iter();
    let with = |pool: &Granted| Some((pool.clone(), hotplug.devices.of(&pool.name)?.address.clone()));
    Ok(all.filter_map(with).collect())
}
