//! The repair of a cluster: machines that died come back, with their names and the pools that they had.

use super::restart::{restart_with, RestartPools};
use super::roots;
use std::time::{Duration, Instant};
use vshmem_base::directories::boot_id;
use vshmem_base::error::{Error, Result};
use vshmem_base::interrupt;
use vshmem_base::lock::{try_lock_cluster, wait_for_lock};
use vshmem_hypervisor::launcher::options::Progress;
use vshmem_hypervisor::launcher::target::Target;
use vshmem_hypervisor::state::machine::{no_cluster, state, MachineState};
use vshmem_hypervisor::state::record::{Granted, Record};
use vshmem_inspect::host_pool::HostPool;

/// Time that a machine may take to take a pool.
const POOL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between looks at a watched cluster.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time that a machine must live after a repair: otherwise it is repaired less and less often.
const STEADY: Duration = Duration::from_secs(60);

/// Starts the machines of a cluster again that died; returns their names.
pub fn repair(cluster: &str, timeout: Duration, report: &mut dyn FnMut(Progress)) -> Result<Vec<String>> {
    let record = Record::read(cluster)?.filter(|record| record.boot == boot_id());
    let record = record.ok_or_else(|| no_cluster(cluster))?;
    if record.root.as_ref().is_some_and(|root| !root.is_served()) {
        let lock = wait_for_lock(&format!("the cluster {cluster}"), || try_lock_cluster(cluster))?;
        roots::revive(cluster, &lock, &mut |text| report(Progress::Message(text.into())))?;
    }
    let died = record.machines.iter().filter(|machine| state(&record, machine) == MachineState::Died);
    let names: Vec<String> = died.map(|machine| machine.name.clone()).collect();
    if names.is_empty() {
        return Ok(names);
    }
    let later = restart_with(cluster, &names, RestartPools::Last, timeout, report)?;
    for (machine, pools) in later {
        for pool in pools {
            if let Err(error) = give_back(cluster, &machine, &pool) {
                report(Progress::Message(format!("{machine} is without the pool {}: {error}", pool.name)));
            }
        }
    }
    Ok(names)
}

/// Grants a machine a pool that it had been granted before.
fn give_back(cluster: &str, machine: &str, pool: &Granted) -> Result<()> {
    let Granted { name, path, size, transport, .. } = pool.clone();
    let mut target = Target::find(cluster, machine)?;
    target.grant(&HostPool { name, path, size, transport }, POOL_TIMEOUT).map(drop)
}

/// Repairs a cluster as often as machines of it die, until it is gone or this is interrupted.
pub fn watch(cluster: &str, timeout: Duration, report: &mut dyn FnMut(Progress)) -> Result<()> {
    let mut pause = INTERVAL;
    let mut last: Option<Instant> = None;
    loop {
        let gone = |error: Error| match Record::read(cluster) {
            Ok(None) => None,
            _ => Some(error),
        };
        let trouble = match repair(cluster, timeout, report) {
            Ok(names) => !names.is_empty(),
            Err(error) => {
                interrupt::check()?;
                let Some(error) = gone(error) else {
                    report(Progress::Message(format!("the cluster {cluster} is gone")));
                    return Ok(());
                };
                report(Progress::Message(error.to_string()));
                true
            }
        };
        if trouble {
            let soon = last.is_some_and(|last| last.elapsed() < STEADY);
            pause = if soon { (2 * pause).min(STEADY) } else { INTERVAL };
            last = Some(Instant::now());
        } else if last.is_none_or(|last| last.elapsed() >= STEADY) {
            pause = INTERVAL;
        }
        interrupt::repeat(pause, Duration::from_millis(100), interrupt::signal);
        if interrupt::signal().is_some() {
            return Ok(());
        }
    }
}
