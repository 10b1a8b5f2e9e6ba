//! Looking at clusters and ending them.

use crate::client::Client;
use crate::error::Result;
use crate::launcher::running::Running;
use crate::launcher::{dead, table};
use crate::pools;
use crate::state::directories::{boot_id, cluster_directory, cluster_names};
use crate::state::lock::{forget_cluster, lock_cluster};
use crate::state::machine::{no_cluster, state, Health, MachineState};
use crate::state::record::{Granted, Machine, Record};
use std::fs;
use std::time::Duration;

/// How long a machine may take to end by itself.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A cluster and how its machines are.
#[derive(Debug, Clone)]
pub struct Listed {
    /// As written down.
    pub record: Record,
    /// One for each machine.
    pub states: Vec<MachineState>,
    /// What machines that died said last.
    pub last_output: Vec<String>,
}

/// How a cluster's machine that runs is.
pub fn health(record: &Record, machine: &Machine) -> Health {
    table::of(record).health(record, machine)
}

/// All clusters of this user. They are only looked at.
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
        out.push(Listed {
            record,
            states,
            last_output,
        });
    }
    Ok(out)
}

/// Ends what machines that died had of pools, unless another command is at work on the cluster: it may be starting one of them anew,
/// and names in pools don't tell the new one from the old one.
pub fn declare_dead_machines(name: &str) -> Result<()> {
    let Ok(lock) = lock_cluster(name) else {
        return Ok(());
    };
    // As it is now that nobody else changes it.
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

/// Ends what one machine had of pools, which does not run. The caller has the cluster's lock.
pub fn declare_one_dead(record: &mut Record, index: usize) {
    let died = |at| match at == index {
        true => MachineState::Died,
        false => MachineState::Running,
    };
    let states: Vec<_> = (0..record.machines.len()).map(died).collect();
    declare_dead(record, &states);
    declare_dead_elsewhere(record, &states);
}

/// The cores that machines of this user's other clusters are pinned to.
pub fn cores_in_use(except: &str) -> Result<Vec<usize>> {
    let mut cores = Vec::new();
    for name in cluster_names()?.iter().filter(|name| *name != except) {
        // A record that can't be read is no reason not to start another cluster.
        let Some(record) = Record::read(name).ok().flatten() else {
            continue;
        };
        let running = |machine: &&Machine| state(&record, machine) != MachineState::Died;
        cores.extend(
            record
                .machines
                .iter()
                .filter(running)
                .flat_map(|m| &m.cores),
        );
    }
    Ok(cores)
}

/// Ends what machines that died had of other pools than the cluster's, once: others may call their machines the same. The
/// caller has the cluster's lock.
fn declare_dead_elsewhere(record: &mut Record, states: &[MachineState]) {
    let (cluster, launcher) = (record.pool.clone(), table::of(record));
    for (machine, state) in record.machines.iter_mut().zip(states) {
        if *state == MachineState::Died {
            let others = |pool: &&Granted| pool.path != cluster;
            let others: Vec<_> = machine.pools.iter().filter(others).cloned().collect();
            machine.pools.retain(|pool| pool.path == cluster);
            let process = machine.runs.as_ref().and_then(Running::pid);
            dead::declare_in(&others, &machine.name, &mut |pool| {
                launcher.release_pool(pool, &machine.name, process);
            });
        }
    }
}

/// Whether a machine that died had other pools than the cluster's.
fn has_left_others(record: &Record, states: &[MachineState]) -> bool {
    let other = |pool: &Granted| pool.path != record.pool;
    let machines = record.machines.iter().zip(states);
    let mut died = machines.filter(|(_, state)| **state == MachineState::Died);
    died.any(|(machine, _)| machine.pools.iter().any(other))
}

/// Tells those who use the cluster's pool which of its machines died. They may know: the pool may be gone, too.
fn declare_dead(record: &Record, states: &[MachineState]) {
    let died = |state: &MachineState| *state == MachineState::Died;
    if !states.iter().any(died) || !record.pool.exists() {
        return;
    }
    let pools = pools::find(Some(&table::of(record).pool_reference(record))).unwrap_or_default();
    // A pool that is damaged or full has no use for the news.
    for client in pools.iter().filter_map(|pool| Client::join(pool).ok()) {
        for (machine, _) in record.machines.iter().zip(states).filter(|(_, s)| died(s)) {
            client.declare_dead(&machine.name);
        }
    }
}

/// Removes the sockets that a machine has left.
pub fn remove_sockets(directory: &std::path::Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path
            .extension()
            .is_some_and(|ending| ending == "sock" || ending == "lock")
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Ends the machines of one cluster, or of all, and removes what belongs to them. Returns the clusters' names.
pub fn down(cluster: Option<&str>) -> Result<Vec<String>> {
    let names = match cluster {
        Some(name) => vec![name.to_string()],
        None => cluster_names()?,
    };
    for name in &names {
        if !cluster_directory(name)?.exists() {
            return Err(no_cluster(name));
        }
        let lock = lock_cluster(name)?;
        // A record that can't be read must not keep its directory from being removed.
        let record = Record::read(name).ok().flatten();
        remove(name, record.as_ref())?;
        drop(lock);
    }
    Ok(names)
}

/// Ends what a record names and removes all that belongs to the cluster. The caller has its lock.
pub fn remove(name: &str, record: Option<&Record>) -> Result<()> {
    if let Some(record) = record.filter(|record| record.boot == boot_id()) {
        std::thread::scope(|scope| {
            for running in record
                .machines
                .iter()
                .filter_map(|machine| machine.runs.as_ref())
            {
                scope.spawn(move || running.end(TIMEOUT));
            }
        });
    }
    if let Some(record) = record {
        if record.doorbell {
            table::of(record).end_service(&record.pool);
        }
        // Processes of this host may use the pool on without its file.
        let all_died = vec![MachineState::Died; record.machines.len()];
        declare_dead(record, &all_died);
        declare_dead_elsewhere(&mut record.clone(), &all_died);
        table::of(record).remove_pool(record)?;
    }
    forget_cluster(name)
}
