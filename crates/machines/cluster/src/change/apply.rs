//! The changes of a cluster as they are made, one after the other. Each is whole when the next one begins, so
//! an interrupted command can be repeated.

use super::plan::{plan, Change, Effort, RunningCluster, Step};
use super::steps;
use crate::host::interrupted::finish_start;
use crate::host::placing::{self, Move};
use crate::host::restart::restart;
use std::time::Duration;
use vshmem_base::directories::boot_id;
use vshmem_base::error::{error, Error, Result};
use vshmem_base::interrupt;
use vshmem_hypervisor::launcher::options::{ClusterOptions, PoolOptions, Progress};
use vshmem_hypervisor::launcher::table;
use vshmem_hypervisor::state::machine::{no_cluster, state, MachineState};
use vshmem_hypervisor::state::record::{Machine, Record};

/// The actions on machines that the user permits.
#[derive(Debug, Clone, Copy)]
pub struct Permitted {
    /// Machines that are not described any more are ended and removed.
    pub remove: bool,
    /// Machines are restarted where a change takes that.
    pub restart: bool,
    /// Machines are added though this host may not have all of their memory.
    pub overcommit: bool,
}

/// The record of a cluster that can be changed, and its options; `None` if there is no such cluster.
pub fn changeable(cluster: &str) -> Result<Option<(Record, ClusterOptions)>> {
    let Some(record) = Record::read(cluster)?.filter(|record| record.boot == boot_id()) else {
        return Ok(None);
    };
    let runs = |machine| state(&record, machine) == MachineState::Running;
    let starting = |machine| state(&record, machine) == MachineState::Starting;
    if record.machines.iter().any(starting) {
        return Err(error!("the cluster {cluster} is being started").hint("Wait for vshmem up to end."));
    }
    // What an interrupted start has left is started anew.
    if !record.machines.iter().any(runs) && !record.is_left_to_restart() {
        return Ok(None);
    }
    let options = record.options.clone().ok_or_else(|| {
        error!("the cluster {cluster} was started by an older vshmem, which has not written down how")
            .hint(format!("Start it anew: vshmem down -c {cluster}, and then vshmem up"))
    })?;
    Ok(Some((record, options)))
}

/// The changes that lead from a cluster to new options.
///
/// # Errors
/// There is no place for its machines that is as the new ones ask for.
pub fn changes(record: &Record, old: &ClusterOptions, new: &ClusterOptions) -> Result<Vec<Change>> {
    Ok(plan(old, new, &Now { record, moves: placing::moves(record, new)? }))
}

/// A cluster as its record and its launcher know it.
struct Now<'a> {
    record: &'a Record,
    moves: Vec<Move>,
}

impl Now<'_> {
    fn machine(&self, name: &str) -> Option<&Machine> {
        self.record.machines.iter().find(|machine| machine.name == name)
    }
}

impl RunningCluster for Now<'_> {
    fn can_grant(&self, machine: &str, pool: &PoolOptions) -> bool {
        let machine = self.machine(machine);
        machine.is_some_and(|machine| table::of(self.record).can_grant(self.record, machine, pool))
    }

    fn can_revoke(&self, machine: &str, pool: &str) -> bool {
        let machine = self.machine(machine);
        let pool = machine.and_then(|machine| machine.pools.iter().find(|had| had.name == pool));
        // What it has lost already is only written down.
        pool.is_none_or(|pool| table::of(self.record).can_revoke(self.record, pool))
    }

    fn has_died(&self, machine: &str) -> bool {
        self.machine(machine).is_none_or(|machine| state(self.record, machine) == MachineState::Died)
    }

    fn is_outdated(&self, machine: &str) -> bool {
        self.machine(machine).is_some_and(|machine| machine.outdated)
    }

    fn moves(&self, machine: &str) -> Option<&Move> {
        self.moves.iter().find(|moved| moved.machine == machine)
    }

    fn can_remove(&self, machine: &str) -> bool {
        // The centre of the network's star.
        self.machine(machine).is_none_or(|machine| machine.index > 0 || machine.address.is_none())
    }
}

/// Makes changes, in order. None is made if one of them takes what is not permitted.
pub fn apply(
    cluster: &str,
    changes: &[Change],
    permitted: Permitted,
    timeout: Duration,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    check(cluster, changes, permitted)?;
    finish_start(cluster, timeout, report)?;
    let mut restarts: Vec<String> = Vec::new();
    let mut added: Vec<String> = Vec::new();
    for change in changes {
        interrupt::check()?;
        // Machines go before their pools do, and those that come need all of theirs.
        if matches!(change.step, Step::DropPool(_)) && !restarts.is_empty() {
            restart_all(cluster, &mut restarts, timeout, report)?;
        }
        report(Progress::Message(change.text.clone()));
        steps::make(cluster, change, report)?;
        match (&change.step, &change.machine) {
            (Step::Add(machine), _) => added.push(machine.name.clone()),
            (Step::Restart(name), _) | (_, Some(name)) if !restarts.contains(name) => {
                restarts.push(name.clone());
            }
            _ => (),
        }
    }
    restart_all(cluster, &mut restarts, timeout, report)?;
    if !added.is_empty() {
        let claimed = steps::claim(cluster, &added, permitted.overcommit);
        claimed.and_then(|()| restart(cluster, &added, timeout, report)).map_err(|error| {
            // They are no part of the cluster if they don't come up.
            let left = added.iter().filter_map(|name| steps::remove(cluster, name).err()).next();
            left.map_or(error, |left| left.about("a machine that did not come up could not be removed"))
        })?;
    }
    match changes.iter().any(|change| change.adds() || change.removes()) {
        true => steps::tell_hosts(cluster, &added, report),
        false => Ok(()),
    }
}

fn restart_all(
    cluster: &str,
    names: &mut Vec<String>,
    timeout: Duration,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    match std::mem::take(names) {
        none if none.is_empty() => Ok(()),
        names => restart(cluster, &names, timeout, report),
    }
}

/// An error unless all changes can be made and are permitted.
fn check(cluster: &str, changes: &[Change], permitted: Permitted) -> Result<()> {
    let all = |effort: Effort| {
        let texts = changes.iter().filter(|change| change.effort == effort);
        texts.map(|change| change.text.as_str()).collect::<Vec<_>>().join("; ")
    };
    let refused = |effort, what: &str, hint: String| match all(effort) {
        texts if texts.is_empty() => Ok(()),
        texts => Err(Error::new(format!("nothing was changed: {what}: {texts}")).code(1).hint(hint)),
    };
    if changes.is_empty() && Record::read(cluster)?.is_none() {
        return Err(no_cluster(cluster));
    }
    refused(
        Effort::Rebuild,
        "this takes a cluster that is started anew",
        format!("End it with vshmem down -c {cluster}, and start it again."),
    )?;
    if !permitted.remove {
        let hint = "With --remove, machines that are not described any more are ended.".into();
        refused(Effort::Removal, "machines would be removed", hint)?;
    }
    if !permitted.restart {
        let hint = "With --restart, machines are restarted for it, as if their power had failed.".into();
        refused(Effort::Restart, "machines would be restarted", hint)?;
    }
    Ok(())
}
