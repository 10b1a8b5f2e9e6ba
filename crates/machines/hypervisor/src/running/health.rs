//! The health of machines, from their QEMU and their front ends.

use super::attached::{self, Attached};
use super::connection::Connection;
use super::pci;
use crate::shared::{dead, doorbell, front_end};
use crate::state::machine::{health_on_record, Health};
use crate::state::record::{Machine, Record};
use serde_json::json;
use std::time::Duration;
use vshmem_base::error::Result;

/// An attached machine and its health.
#[derive(Debug, Clone)]
pub struct AttachedStatus {
    /// Its record.
    pub record: Attached,
    /// `None` if it does not run.
    pub health: Option<Health>,
}

/// Time that QEMU and a front end may each take to answer; of a machine that is too busy, the record is
/// shown.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// The health of a cluster's machine.
pub fn by_monitor(record: &Record, machine: &Machine) -> Health {
    let asked = Connection::to_machine(record, machine).and_then(|connection| ask(&connection));
    asked.unwrap_or_else(|_| health_on_record(&machine.pools))
}

/// All of this user's attached machines.
pub fn attached_machines() -> Result<Vec<AttachedStatus>> {
    let all = attached::list()?
        .into_iter()
        .map(|record| AttachedStatus { health: record.runs().then(|| of_attached(&record)), record });
    Ok(all.collect())
}

fn of_attached(record: &Attached) -> Health {
    ask(&Connection::to_attached(record)).unwrap_or_else(|_| health_on_record(&record.pools))
}

fn ask(connection: &Connection) -> Result<Health> {
    let mut qmp = connection.qmp(TIMEOUT)?;
    let front_end = connection.channel(&mut qmp)?.filter(|channel| channel.open);
    let tree = pci::read(&qmp.call("query-pci", json!({}))?)?;
    let status = front_end.and_then(|channel| front_end::status(&channel.socket, TIMEOUT).ok());
    Ok(Health {
        pools: tree.plugged.into_iter().map(|plugged| plugged.pool).collect(),
        front_end: status.is_some(),
        no_driver: status.as_ref().and_then(front_end::driver_error),
    })
}

/// Cleans up after an attached machine that does not run: it has no pools.
pub fn clear_attached(name: &str) -> Result<()> {
    let Some((mut record, _lock)) = attached::locked(name)? else {
        return Ok(());
    };
    if !record.runs() {
        dead::declare_in(&record.pools, name, &mut |pool| {
            doorbell::release(pool, name, None);
        });
        record.pools.clear();
        record.write()?;
    }
    Ok(())
}
