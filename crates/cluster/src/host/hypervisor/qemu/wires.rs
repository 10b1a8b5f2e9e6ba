//! The network between a cluster's machines: the first machine is wired to each of the others. A wire is a pair of sockets, an end in
//! each QEMU. In a machine its wires meet in a hub, so that they can be replaced when the machine at the other end is started anew.

use super::qmp::Qmp;
use crate::error::{Error, Explain, Result};
use crate::host::cluster::{self, MachineState};
use crate::host::interrupt;
use crate::host::state::Record;
use serde_json::json;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A wire's end.
pub struct Wire {
    /// The index of the machine at the other end.
    pub to: u32,
    /// A stream socket.
    pub socket: OwnedFd,
}

/// How long QEMU may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// The machine that is wired to all others.
const FIRST: u32 = 0;

/// What QEMU calls a wire.
pub fn wire(to: u32) -> String {
    format!("wire{to}")
}

/// What QEMU calls a wire's port of the hub.
pub fn port(to: u32) -> String {
    format!("port{to}")
}

/// The wires of each of so many machines.
pub fn all(machines: u32) -> Result<Vec<Vec<Wire>>> {
    let mut first = Vec::new();
    let mut others = Vec::new();
    for index in FIRST + 1..machines {
        let (one, other) = pair()?;
        first.push(Wire {
            to: index,
            socket: one,
        });
        others.push(vec![Wire {
            to: FIRST,
            socket: other,
        }]);
    }
    others.insert(0, first);
    Ok(others)
}

/// The wires of a machine that is started anew: those to machines that run, which get their ends here. `tell` hears of a machine that
/// does not take its end: an older `vshmem` has started it.
pub fn anew(record: &Record, place: usize, tell: &mut dyn FnMut(&str)) -> Result<Vec<Wire>> {
    let machine = &record.machines[place];
    let mut ours = Vec::new();
    for other in &record.machines {
        let are_neighbours = (other.index == FIRST) != (machine.index == FIRST);
        if !are_neighbours || cluster::state(record, other) != MachineState::Running {
            continue;
        }
        let (one, theirs) = pair()?;
        let socket = super::monitor_socket(&record.machine_directory(other)?);
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

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let pair = UnixStream::pair().explain(|| "could not make a pair of sockets".into())?;
    Ok((pair.0.into(), pair.1.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_wired_to_all_others() {
        let ends: Vec<Vec<u32>> = all(3)
            .unwrap()
            .iter()
            .map(|wires| wires.iter().map(|wire| wire.to).collect())
            .collect();
        assert_eq!(ends, [vec![1, 2], vec![0], vec![0]]);
        assert!(all(1).unwrap()[0].is_empty());
    }
}
