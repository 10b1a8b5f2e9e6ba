//! The clusters of a user: listing and ending them.

use super::{devices, roots};
use std::time::Duration;
use vshmem_base::directories::{boot_id, cluster_directory, cluster_names};
use vshmem_base::error::Result;
use vshmem_base::lock::{lock_cluster, remove_left_locks};
use vshmem_hypervisor::launcher::table::{self, attached};
use vshmem_hypervisor::running::Running;
use vshmem_hypervisor::shared::{dead, pool};
use vshmem_hypervisor::state::disks::remove_cluster_directory;
use vshmem_hypervisor::state::machine::{no_cluster, state, Health, MachineState};
use vshmem_hypervisor::state::record::{Granted, Machine, Record};
use vshmem_inspect::client::Client;
use vshmem_inspect::participants::MemberId;
use vshmem_inspect::pools;

/// Time that a machine may take to shut down.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A cluster and the state of its machines.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its record.
    pub record: Record,
    /// The states of its machines.
    pub states: Vec<MachineState>,
    /// The last output of machines that died; otherwise empty.
    pub last_output: Vec<String>,
}

/// The health of a cluster's machine that runs.
pub fn health(record: &Record, machine: &Machine) -> Health {
    table::of(record).health(record, machine)
}

/// The threads of this host that are the virtual cores of a cluster's machine, in order; none if they are no
/// threads.
pub fn core_threads(record: &Record, index: usize) -> Result<Vec<i32>> {
    table::of(record).core_threads(record, index)
}

/// All clusters of this user. Nothing is changed.
pub fn list() -> Result<Vec<Listed>> {
    let mut out = Vec::new();
    for name in cluster_names()? {
        let Some(record) = Record::read(&name)? else {
            continue;
        };
        let states: Vec<_> = record.machines.iter().map(|m| state(&record, m)).collect();
        let mut last_output = Vec::new();
        for (machine, state) in record.machines.iter().zip(&states) {
            last_output.push(match state {
                MachineState::Died => table::of(&record).last_output(&record, machine),
                _ => String::new(),
            });
        }
        out.push(Listed { record, states, last_output });
    }
    Ok(out)
}

/// Declares the machines of a cluster that died dead in their pools. Does nothing while another command holds
/// the cluster's lock: it may be restarting one of them, and names in pools don't distinguish the new one
/// from the old one.
pub fn declare_dead_machines(name: &str) -> Result<()> {
    let Ok(lock) = lock_cluster(name) else {
        return Ok(());
    };
    // Read again, now that nobody else changes it.
    let record = Record::read(name)?.filter(|record| record.boot == boot_id());
    if let Some(mut record) = record {
        let states: Vec<_> = record.machines.iter().map(|m| state(&record, m)).collect();
        declare_dead(&record, &states);
        if has_left_others(&record, &states) {
            declare_dead_elsewhere(&mut record, &states);
            record.write()?;
        }
    }
    drop(lock);
    Ok(())
}

/// Declares one machine, which does not run, dead in its pools. The caller has the cluster's lock.
pub fn declare_one_dead(record: &mut Record, index: usize) {
    let died = |at| match at == index {
        true => MachineState::Died,
        false => MachineState::Running,
    };
    let states: Vec<_> = (0..record.machines.len()).map(died).collect();
    declare_dead(record, &states);
    declare_dead_elsewhere(record, &states);
}

/// Declares machines that died dead in pools other than the cluster's, once: other clusters may use the same
/// names. The caller has the cluster's lock.
fn declare_dead_elsewhere(record: &mut Record, states: &[MachineState]) {
    let (cluster, launcher) = (record.pool.clone(), table::of(record));
    for (machine, state) in record.machines.iter_mut().zip(states) {
        if *state == MachineState::Died {
            let others = |pool: &&Granted| pool.path != cluster;
            let others: Vec<_> = machine.pools.iter().filter(others).cloned().collect();
            machine.pools.retain(|pool| pool.path == cluster);
            machine.lost_pools.extend(others.iter().cloned());
            let process = machine.runs.as_ref().and_then(Running::pid);
            dead::declare_in(&others, &machine.name, &mut |pool| {
                launcher.release_pool(pool, &machine.name, process);
            });
        }
    }
}

/// Whether a machine that died had pools other than the cluster's.
fn has_left_others(record: &Record, states: &[MachineState]) -> bool {
    let other = |pool: &Granted| pool.path != record.pool;
    let machines = record.machines.iter().zip(states);
    let mut died = machines.filter(|(_, state)| **state == MachineState::Died);
    died.any(|(machine, _)| machine.pools.iter().any(other))
}

/// Declares machines that died dead in the cluster's pool. The pool may not exist any more.
fn declare_dead(record: &Record, states: &[MachineState]) {
    let died = |state: &MachineState| *state == MachineState::Died;
    if !states.iter().any(died) || !record.pool.exists() {
        return;
    }
    let pools = pools::find(Some(&table::of(record).pool_reference(record))).unwrap_or_default();
    let others = members_of_others(record);
    // A pool that is damaged or full is skipped.
    for client in pools.iter().filter_map(|pool| Client::join(pool).ok()) {
        for (machine, _) in record.machines.iter().zip(states).filter(|(_, s)| died(s)) {
            client.declare_dead(&machine.name, &others);
        }
    }
}

/// The members of a cluster's pool that are machines of other clusters, or attached ones, which were granted
/// it. Each cluster has a `vm0`.
fn members_of_others(record: &Record) -> Vec<MemberId> {
    let clusters = cluster_names().unwrap_or_default().into_iter();
    let clusters = clusters.filter(|name| *name != record.name);
    let others = clusters.filter_map(|name| Record::read(&name).ok().flatten());
    let machines = others.flat_map(|other| other.machines).flat_map(|it| it.pools);
    let attached = attached::list().unwrap_or_default().into_iter();
    let granted = machines.chain(attached.flat_map(|it| it.pools));
    let granted = granted.filter(|pool| pool.path == record.pool);
    granted.filter_map(|pool| pool.member).collect()
}

/// Ends the machines of one cluster, or of all, and removes everything that belongs to them. Returns the
/// clusters' names.
pub fn down(cluster: Option<&str>) -> Result<Vec<String>> {
    let names = match cluster {
        Some(name) => vec![name.to_string()],
        None => cluster_names()?,
    };
    remove_left_locks()?;
    for name in &names {
        if !cluster_directory(name)?.exists() {
            return Err(no_cluster(name));
        }
        let lock = lock_cluster(name)?;
        // An unreadable record does not keep the directory from being removed.
        let record = Record::read(name).ok().flatten();
        remove(name, record.as_ref())?;
        drop(lock);
    }
    Ok(names)
}

/// Ends a cluster's machines and removes everything that belongs to it. The caller has its lock.
pub fn remove(name: &str, record: Option<&Record>) -> Result<()> {
    if let Some(record) = record.filter(|record| record.boot == boot_id()) {
        std::thread::scope(|scope| {
            for running in record.machines.iter().filter_map(|machine| machine.runs.as_ref()) {
                scope.spawn(move || running.end(TIMEOUT));
            }
        });
        roots::end(record);
    }
    if let Some(record) = record {
        table::of(record).clear(record)?;
    }
    let given_back = devices::release(&cluster_directory(name)?, None);
    if let Some(record) = record {
        if record.doorbell {
            table::of(record).stop_serving(&record.pool);
        }
        // Processes of this host may go on using the pool without its file.
        let all_died = vec![MachineState::Died; record.machines.len()];
        declare_dead(record, &all_died);
        declare_dead_elsewhere(&mut record.clone(), &all_died);
        table::of(record).remove_pool(record)?;
        record.made_pools.iter().try_for_each(|name| pool::remove(name))?;
    }
    remove_cluster_directory(name)?;
    given_back
}
