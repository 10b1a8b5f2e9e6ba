//! A machine's wires, as QEMU calls them, and a new wire for a QEMU that runs.

use super::qmp::Qmp;
use super::sockets::monitor_socket;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::launcher::network::{neighbours, pair, Wire};
use crate::state::record::Record;
use serde_json::json;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// How long QEMU may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// What QEMU calls a wire.
pub fn wire(to: u32) -> String {
    format!("wire{to}")
}

/// What QEMU calls a wire's port of the hub.
pub fn port(to: u32) -> String {
    format!("port{to}")
}

/// The wires of a machine that is started anew: those to machines that run, which get their ends here. `tell` hears of a machine that
/// does not take its end: an older `vshmem` has started it.
pub fn anew(record: &Record, place: usize, tell: &mut dyn FnMut(&str)) -> Result<Vec<Wire>> {
    let machine = &record.machines[place];
    let mut ours = Vec::new();
    for other in neighbours(record, machine.index) {
        let (one, theirs) = pair()?;
        let socket = monitor_socket(&record.machine_directory(other)?);
        let wired = monitor(&socket).and_then(|mut qmp| replace(&mut qmp, machine.index, theirs));
        match wired {
            Ok(()) => ours.push(Wire {
                to: other.index,
                socket: one,
            }),
            Err(why) => tell(&format!(
                "no network between {} and {}: {why}",
                machine.name, other.name
            )),
        }
    }
    Ok(ours)
}

/// A QEMU's monitor. It may have been started a moment ago, and not listen yet.
fn monitor(socket: &Path) -> Result<Qmp> {
    let mut why = None;
    let found = interrupt::wait_for(ANSWERS_WITHIN, || {
        let qmp = Qmp::connect(socket, ANSWERS_WITHIN);
        Ok(qmp.map_err(|error| why = Some(error)).ok())
    })?;
    found.ok_or_else(|| why.unwrap_or_else(|| Error::new("QEMU does not answer")))
}

/// Gives a machine that runs a new wire to another one.
fn replace(qmp: &mut Qmp, to: u32, end: OwnedFd) -> Result<()> {
    let (wire, port) = (wire(to), port(to));
    for id in [&port, &wire] {
        // There is none if the other one was away when this one was started.
        let _refused = qmp.ask("netdev_del", json!({ "id": id }))?;
    }
    qmp.give(&wire, end)?;
    qmp.call(
        "netdev_add",
        json!({ "type": "socket", "id": wire, "fd": wire }),
    )?;
    qmp.call(
        "netdev_add",
        json!({ "type": "hubport", "id": port, "hubid": 0, "netdev": wire }),
    )?;
    Ok(())
}
