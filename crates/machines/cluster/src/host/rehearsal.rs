//! Whether a cluster would be started, found out without starting it.

use super::{claims, devices, placing, up};
use vshmem_base::directories::cluster_directory;
use vshmem_base::error::{Error, Result};
use vshmem_base::lock::remove_left_locks;
use vshmem_hypervisor::launcher::options::{ClusterOptions, RootKind};
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_hypervisor::state::record::Record;
use vshmem_session::share;

/// Refuses what [`up::up`] would refuse, as far as that is known before anything is downloaded, made or
/// claimed. Devices that a cluster which is gone has left are given back, as by any command.
///
/// # Errors
/// Those of `up`.
pub fn rehearse(launcher: &dyn Launcher, options: &ClusterOptions, overcommit: bool) -> Result<()> {
    let found = find_fault(launcher, options, overcommit);
    // To look leaves nothing behind.
    let removed = remove_left_locks();
    found.and(removed)
}

fn find_fault(launcher: &dyn Launcher, options: &ClusterOptions, overcommit: bool) -> Result<()> {
    up::check_host(launcher, options)?;
    Record::read(&options.cluster)?.as_ref().map_or(Ok(()), up::check_ended)?;
    up::check_unused(&up::own_pools(options))?;
    up::check_length(&cluster_directory(&options.cluster)?)?;
    let pools = up::find_pools(launcher, options)?;
    let shares = share::choose(&options.shares, options.root == RootKind::Erofs, &mut |_| ())?;
    let mut record = up::new_record(launcher, options, &pools, shares);
    check_claims(launcher, options, &mut record, overcommit)?;
    launcher.check_start(&record)
}

/// An error unless this host has what the machines are to have of it: devices, memory, pages, cores. Virtual
/// functions are made when they are claimed, so whether they can be had is asked only of those that are
/// named.
fn check_claims(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    record: &mut Record,
    overcommit: bool,
) -> Result<()> {
    if devices::are_made(options) {
        devices::check_addresses(options)?;
    }
    let all: Vec<usize> = (0..record.machines.len()).collect();
    let mut is_placed = false;
    let mut claim = |record: &mut Record| {
        claims::claim(record, &all, overcommit, |record| {
            placing::place_all(launcher, record)?;
            is_placed = true;
            // Whoever claims, and fails, has nothing.
            Err(Error::new("nothing is to be claimed"))
        })
    };
    let claimed = match devices::are_made(options) {
        true => claim(record),
        false => devices::claim(record, &all, claim),
    };
    if is_placed {
        return Ok(());
    }
    claimed
}
