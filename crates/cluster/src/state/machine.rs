//! How machines are, and finding them by name.

use super::directories::{boot_id, cluster_names};
use super::process::Process;
use super::record::{Granted, Machine, Record};
use crate::error::{Error, Result};
use crate::launcher::running::Running;
use schemars::JsonSchema;
use serde::Serialize;

/// How a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MachineState {
    /// `vshmem up` is at work.
    Starting,
    /// It takes commands.
    Running,
    /// It has ended.
    Died,
}

/// How a machine is now.
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

/// How a machine that runs is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Health {
    /// What the pools that it has are called there.
    pub pools: Vec<String>,
    /// Its front end answers.
    pub front_end: bool,
    /// Why the driver could not be loaded there.
    pub no_driver: Option<String>,
}

/// As it is written down, of a machine that does not answer.
pub fn written_down(pools: &[Granted]) -> Health {
    Health {
        pools: pools.iter().map(|pool| pool.name.clone()).collect(),
        ..Health::default()
    }
}

/// The cluster of this name and, in it, the machines of these names (all, if none are given), which must run.
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
                    Error::new(format!("{} is still being started", machine.name))
                        .hint("Wait for vshmem up to end."),
                );
            }
            MachineState::Died => {
                return Err(Error::new(format!("{} has died", machine.name))
                    .hint("See vshmem ps for why; vshmem restart starts it anew."));
            }
        }
    }
    Ok((record, machines))
}

/// Where in a record the machine of this name is.
pub fn index_of(record: &Record, name: &str) -> Result<usize> {
    let found = record.machines.iter().position(|m| m.name == name);
    found.ok_or_else(|| {
        let all: Vec<_> = record.machines.iter().map(|m| m.name.as_str()).collect();
        Error::new(format!("the cluster {} has no machine {name}", record.name))
            .hint(format!("It has {}.", all.join(", ")))
    })
}

/// Why there is none of this name to be found.
pub fn no_cluster(name: &str) -> Error {
    let others = cluster_names().unwrap_or_default();
    let hint = match others.len() {
        0 => "Start machines with: vshmem up".to_string(),
        _ => format!(
            "There are: {}. Choose one with --cluster.",
            others.join(", ")
        ),
    };
    Error::new(format!("there is no cluster {name}")).hint(hint)
}
