//! The state of machines, and finding them by name.

use super::record::{Granted, Machine, Record};
use crate::running::Running;
use schemars::JsonSchema;
use serde::Serialize;
use vshmem_base::directories::{boot_id, cluster_names};
use vshmem_base::error::{error, Error, Result};
use vshmem_base::process::Process;

/// State of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MachineState {
    /// `vshmem up` is starting it.
    Starting,
    /// It takes commands.
    Running,
    /// It has ended.
    Died,
}

/// A machine's state now.
pub fn state(record: &Record, machine: &Machine) -> MachineState {
    let here = record.boot == boot_id();
    let alive = |process: &Option<Process>| here && process.is_some_and(|p| p.alive());
    if alive(&record.starter) {
        MachineState::Starting
    } else if here && machine.runs.as_ref().is_some_and(Running::alive) {
        MachineState::Running
    } else {
        MachineState::Died
    }
}

/// Health of a machine that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Health {
    /// Its pools, by their names there.
    pub pools: Vec<String>,
    /// Its front end answers.
    pub front_end: bool,
    /// The reason why its driver could not be loaded.
    pub no_driver: Option<String>,
}

/// The health of a machine that does not answer, by its record.
pub fn health_on_record(pools: &[Granted]) -> Health {
    Health { pools: pools.iter().map(|pool| pool.name.clone()).collect(), ..Health::default() }
}

/// A cluster and its machines of these names (all, if none are given), which must run.
pub fn find(cluster: &str, names: &[String]) -> Result<(Record, Vec<Machine>)> {
    let record = Record::read(cluster)?.ok_or_else(|| no_cluster(cluster))?;
    let mut machines = Vec::new();
    if names.is_empty() {
        machines.clone_from(&record.machines);
    }
    for name in names {
        machines.push(record.machines[index_of(&record, name)?].clone());
    }
    for machine in &machines {
        match state(&record, machine) {
            MachineState::Running => (),
            MachineState::Starting => {
                return Err(
                    error!("{} is still being started", machine.name).hint("Wait for vshmem up to end.")
                );
            }
            MachineState::Died => {
                let hint = format!(
                    "See vshmem ps for why. Start it again with: vshmem restart -c {} {}",
                    record.name, machine.name
                );
                return Err(error!("{} has died", machine.name).hint(hint));
            }
        }
    }
    Ok((record, machines))
}

/// A cluster, and the states of its machines.
pub fn all_of(cluster: &str) -> Result<(Record, Vec<MachineState>)> {
    let record = Record::read(cluster)?.ok_or_else(|| no_cluster(cluster))?;
    let states = record.machines.iter().map(|machine| state(&record, machine)).collect();
    Ok((record, states))
}

/// The index of a machine in a record.
pub fn index_of(record: &Record, name: &str) -> Result<usize> {
    let found = record.machines.iter().position(|m| m.name == name);
    found.ok_or_else(|| {
        let all: Vec<_> = record.machines.iter().map(|m| m.name.as_str()).collect();
        let others = elsewhere(name).map_or(String::new(), |other| {
            format!(" The cluster {other} has one of that name: choose it with --cluster {other}.")
        });
        error!("the cluster {} has no machine {name}", record.name)
            .hint(format!("It has {}.{others}", all.join(", ")))
    })
}

/// The first cluster with a machine of this name.
fn elsewhere(name: &str) -> Option<String> {
    let has = |cluster: &String| {
        let record = Record::read(cluster).ok().flatten();
        record.is_some_and(|record| record.machines.iter().any(|machine| machine.name == name))
    };
    cluster_names().unwrap_or_default().into_iter().find(has)
}

/// The error for a cluster that does not exist.
pub fn no_cluster(name: &str) -> Error {
    let others = cluster_names().unwrap_or_default();
    let hint = match others.len() {
        0 => "Start machines with: vshmem up".to_string(),
        _ => format!("There are: {}. Choose one with --cluster.", others.join(", ")),
    };
    error!("there is no cluster {name}").hint(hint)
}
