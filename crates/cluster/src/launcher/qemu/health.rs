//! The health of machines, from their QEMU and their front ends.

use super::attached::{self, Attached};
use super::qmp::Qmp;
use super::sockets::{agent_socket, monitor_socket, AGENT};
use super::target::Target;
use super::{doorbell, pci, plug};
use crate::error::Result;
use crate::launcher::{dead, front_end};
use crate::state::machine::{health_on_record, Health};
use crate::state::record::{Machine, Record};
use serde_json::json;
use std::time::Duration;

/// An attached machine and its health.
#[derive(Debug, Clone)]
pub struct AttachedStatus {
    /// Its record.
    pub record: Attached,
    /// `None` if it does not run.
    pub health: Option<Health>,
}

/// How long QEMU and a front end may each take to answer; of a machine that is too busy, the record is shown.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// The health of a cluster's machine.
pub fn by_monitor(record: &Record, machine: &Machine) -> Health {
    let asked = || -> Result<Health> {
        let directory = record.machine_directory(machine)?;
        let mut qmp = Qmp::connect(&monitor_socket(&directory), TIMEOUT)?;
        let open = plug::is_open(&mut qmp, AGENT)? == Some(true);
        let socket = agent_socket(&directory);
        ask(&mut qmp, open.then_some(socket.as_path()))
    };
    asked().unwrap_or_else(|_| health_on_record(&machine.pools))
}

/// All of this user's attached machines.
pub fn attached_machines() -> Result<Vec<AttachedStatus>> {
    let all = attached::list()?
        .into_iter()
        .map(|record| AttachedStatus { health: record.runs().then(|| of_attached(&record)), record });
    Ok(all.collect())
}

fn of_attached(record: &Attached) -> Health {
    let asked = || -> Result<Health> {
        let mut qmp = record.qmp(TIMEOUT)?;
        let channel = match &record.channel {
            Some(label) => plug::channel(&mut qmp, label)?,
            None => None,
        };
        let open = channel.filter(|channel| channel.open);
        ask(&mut qmp, open.as_ref().map(|open| open.socket.as_path()))
    };
    asked().unwrap_or_else(|_| health_on_record(&record.pools))
}

fn ask(qmp: &mut Qmp, front_end: Option<&std::path::Path>) -> Result<Health> {
    let tree = pci::read(&qmp.call("query-pci", json!({}))?)?;
    let status = front_end.and_then(|socket| front_end::status(socket, TIMEOUT).ok());
    Ok(Health {
        pools: tree.plugged.into_iter().map(|plugged| plugged.pool).collect(),
        front_end: status.is_some(),
        no_driver: status.as_ref().and_then(front_end::driver_error),
    })
}

/// Cleans up after an attached machine that does not run: it has no pools.
pub fn clear_attached(name: &str) -> Result<()> {
    let Some(mut target) = Target::attached(name)? else {
        return Ok(());
    };
    if target.record().is_some_and(|record| !record.runs()) {
        dead::declare_in(target.pools(), name, &mut |pool| {
            doorbell::release(pool, name, None);
        });
        target.set_pools(vec![])?;
    }
    Ok(())
}
