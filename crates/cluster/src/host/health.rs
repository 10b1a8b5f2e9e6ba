//! How machines are, as their QEMU and their front ends say.

use super::adopted::Adopted;
use super::machine::Target;
use super::qmp::Qmp;
use super::state::{Granted, Machine, Record};
use super::{adopted, frontend, grant, pci, plug, qemu};
use crate::error::Result;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// How a machine that runs is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Health {
    /// What the pools that it has are called there.
    pub pools: Vec<String>,
    /// Its front end answers.
    pub front_end: bool,
    /// Why vshmem.ko could not be loaded there.
    pub no_driver: Option<String>,
}

/// An adopted machine and how it is; nothing of one that is off.
#[derive(Debug, Clone)]
pub struct Attached {
    /// As written down.
    pub record: Adopted,
    /// How it is.
    pub health: Option<Health>,
}

/// How long each of QEMU and a front end may take to answer: one that is busy is shown as it is written down.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Of a cluster's machine that runs.
pub fn of(record: &Record, machine: &Machine) -> Health {
    record.hypervisor().health(record, machine)
}

/// Of one that QEMU runs.
pub fn by_monitor(record: &Record, machine: &Machine) -> Health {
    let asked = || -> Result<Health> {
        let directory = record.machine_directory(machine)?;
        let mut qmp = Qmp::connect(&qemu::monitor_socket(&directory), PATIENCE)?;
        let open = plug::is_open(&mut qmp, qemu::AGENT)? == Some(true);
        let socket = qemu::agent_socket(&directory);
        ask(&mut qmp, open.then_some(socket.as_path()))
    };
    asked().unwrap_or_else(|_| written_down(&machine.pools))
}

/// All of this user's adopted machines.
pub fn attached() -> Result<Vec<Attached>> {
    let all = adopted::list()?.into_iter().map(|record| Attached {
        health: record.runs().then(|| of_adopted(&record)),
        record,
    });
    Ok(all.collect())
}

fn of_adopted(record: &Adopted) -> Health {
    let asked = || -> Result<Health> {
        let mut qmp = record.qmp(PATIENCE)?;
        let channel = match &record.channel {
            Some(label) => plug::channel(&mut qmp, label)?,
            None => None,
        };
        let open = channel.filter(|channel| channel.open);
        ask(&mut qmp, open.as_ref().map(|open| open.socket.as_path()))
    };
    asked().unwrap_or_else(|_| written_down(&record.pools))
}

fn ask(qmp: &mut Qmp, front_end: Option<&std::path::Path>) -> Result<Health> {
    let tree = pci::read(&qmp.call("query-pci", json!({}))?)?;
    let status = front_end.and_then(|socket| frontend::status(socket, PATIENCE).ok());
    Ok(Health {
        pools: tree
            .plugged
            .into_iter()
            .map(|plugged| plugged.pool)
            .collect(),
        front_end: status.is_some(),
        no_driver: status.as_ref().and_then(frontend::without_driver),
    })
}

fn written_down(pools: &[Granted]) -> Health {
    Health {
        pools: pools.iter().map(|pool| pool.name.clone()).collect(),
        ..Health::default()
    }
}

/// An adopted machine that is off has no pools: what it has left in them is cleared away.
pub fn clear(name: &str) -> Result<()> {
    let Some(mut target) = Target::adopted(name)? else {
        return Ok(());
    };
    if target.record().is_some_and(|record| !record.runs()) {
        grant::bury(name, target.pools(), None);
        target.set_pools(vec![])?;
    }
    Ok(())
}
