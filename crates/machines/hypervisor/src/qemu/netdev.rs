//! The network between machines as QEMU's netdevs.

use crate::running::qmp::{Qmp, ANSWER_TIMEOUT};
use crate::shared::network::{neighbours, socket_pair, Link};
use crate::shared::sockets::monitor_socket;
use crate::state::record::Record;
use serde_json::json;
use std::os::fd::OwnedFd;
use vshmem_base::error::Result;

/// The id of a link's netdev.
pub fn socket_id(to: u32) -> String {
    format!("link{to}")
}

/// The id of a link's port of the hub.
pub fn hubport_id(to: u32) -> String {
    format!("port{to}")
}

/// Links a machine that is restarted to its neighbours that run; returns its ends of the links. Reports
/// neighbours that refuse: an older `vshmem` has started them.
pub fn reconnect(record: &Record, index: usize, report: &mut dyn FnMut(&str)) -> Result<Vec<Link>> {
    let machine = &record.machines[index];
    let mut ours = Vec::new();
    for other in neighbours(record, machine.index) {
        let (one, theirs) = socket_pair()?;
        let socket = monitor_socket(&record.machine_directory(other)?);
        let replaced = Qmp::await_at(&socket, ANSWER_TIMEOUT, || Ok(()))
            .and_then(|mut qmp| replace(&mut qmp, machine.index, theirs));
        match replaced {
            Ok(()) => ours.push(Link { peer: other.index, socket: one }),
            Err(why) => report(&format!("no network between {} and {}: {why}", machine.name, other.name)),
        }
    }
    Ok(ours)
}

/// Replaces a running machine's link to another machine.
fn replace(qmp: &mut Qmp, to: u32, end: OwnedFd) -> Result<()> {
    let (link, port) = (socket_id(to), hubport_id(to));
    for id in [&port, &link] {
        // There is none if the other machine was not running when this one was started.
        let _refused = qmp.try_call("netdev_del", json!({ "id": id }))?;
    }
    qmp.getfd(&link, end)?;
    qmp.call("netdev_add", json!({ "type": "socket", "id": link, "fd": link }))?;
    qmp.call("netdev_add", json!({ "type": "hubport", "id": port, "hubid": 0, "netdev": link }))?;
    Ok(())
}
