//! Plugs a pool into a machine that runs, and unplugs it: what is said to QEMU.

use super::pci::{Free, Plugged};
use super::ports::{pool_of_backing, Turn};
use super::qemu::VECTORS;
use super::qmp::Qmp;
use super::state::Granted;
use crate::error::{Error, Result};
use serde_json::{json, Value};
use std::path::{Path, PathBuf};

/// Plugs a pool in. `bell` is where the back end serves it, if it does.
pub fn plug(qmp: &mut Qmp, pool: &Granted, bell: Option<&Path>, place: &Free) -> Result<()> {
    let turn = Turn::new();
    let (id, backing) = (turn.device(&pool.name), turn.backing(&pool.name));
    let arguments = match bell {
        Some(socket) => {
            let address = json!({"type": "unix", "data": {"path": socket}});
            let data = json!({"addr": address, "server": false});
            let socket = json!({"type": "socket", "data": data});
            qmp.call("chardev-add", json!({"id": backing, "backend": socket}))?;
            json!({"driver": "ivshmem-doorbell", "id": id, "bus": place.bus, "chardev": backing, "vectors": VECTORS})
        }
        None => {
            let memory = json!({"qom-type": "memory-backend-file", "id": backing, "share": true,
                "mem-path": pool.path, "size": pool.size});
            qmp.call("object-add", memory)?;
            json!({"driver": "ivshmem-plain", "id": id, "bus": place.bus, "memdev": backing, "master": true})
        }
    };
    qmp.call("device_add", arguments).map(|_| ())
}

/// Asks the machine to let go of a pool.
pub fn unplug(qmp: &mut Qmp, plugged: &Plugged) -> Result<()> {
    match qmp.ask("device_del", json!({"id": plugged.id}))? {
        // It was asked before, or has just let go.
        Err(why) if why.contains("in the process of unplug") || why.contains("not found") => Ok(()),
        Err(why) => Err(Error::new(format!("QEMU refused device_del: {why}"))),
        Ok(_) => Ok(()),
    }
}

/// Whether QEMU survives it when a device with doorbells is unplugged. Without KVM it keeps watching the descriptors of the
/// device's vectors, for a device that is gone, and crashes as soon as it gets another descriptor of that number (7.2; later
/// ones have the same lines).
pub fn can_unplug_bells(qmp: &mut Qmp) -> Result<bool> {
    let told = qmp.call("query-kvm", json!({}))?;
    Ok(told.get("enabled").and_then(Value::as_bool) == Some(true))
}

/// Removes what stood behind a device that is gone. Whether nothing is left: QEMU may hold on for a moment.
pub fn clear(qmp: &mut Qmp, pool: &str) -> Result<bool> {
    let mut clean = true;
    for (command, id) in behind(qmp, pool)? {
        clean &= qmp.ask(command, json!({ "id": id }))?.is_ok();
    }
    Ok(clean)
}

/// What is behind a pool's device, each with the command that removes it.
fn behind(qmp: &mut Qmp, pool: &str) -> Result<Vec<(&'static str, String)>> {
    let is_it = |id: &&str| pool_of_backing(id) == Some(pool);
    let objects = qmp.call("qom-list", json!({"path": "/objects"}))?;
    let chardevs = qmp.call("query-chardev", json!({}))?;
    let objects = names(&objects, "name")
        .filter(is_it)
        .map(|id| ("object-del", id.into()));
    let chardevs = names(&chardevs, "label")
        .filter(is_it)
        .map(|id| ("chardev-remove", id.into()));
    Ok(objects.chain(chardevs).collect())
}

/// The file of a pool that is plugged in, if QEMU opened it by itself.
pub fn file(qmp: &mut Qmp, pool: &str) -> Result<Option<PathBuf>> {
    for (command, id) in behind(qmp, pool)? {
        if command == "object-del" {
            let asked = json!({"path": format!("/objects/{id}"), "property": "mem-path"});
            let path = qmp.ask("qom-get", asked)?.ok();
            return Ok(path.as_ref().and_then(Value::as_str).map(PathBuf::from));
        }
    }
    Ok(None)
}

fn names<'a>(list: &'a Value, key: &'static str) -> impl Iterator<Item = &'a str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(move |item| item.get(key)?.as_str())
}

/// How a machine's front end can be talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// QEMU's end of it.
    pub socket: PathBuf,
    /// Somebody listens in the machine.
    pub open: bool,
}

/// The channel of this label among QEMU's.
pub fn channel(qmp: &mut Qmp, label: &str) -> Result<Option<Channel>> {
    let all = qmp.call("query-chardev", json!({}))?;
    Ok(channel_in(&all, label))
}

pub(crate) fn channel_in(chardevs: &Value, label: &str) -> Option<Channel> {
    let is_it = |item: &&Value| item.get("label").and_then(Value::as_str) == Some(label);
    let found = chardevs.as_array()?.iter().find(is_it)?;
    let file = found.get("filename")?.as_str()?;
    let path = file
        .strip_prefix("disconnected:")
        .unwrap_or(file)
        .strip_prefix("unix:")?;
    // `,server=on` and perhaps more.
    let path = path.split(",server").next()?;
    Some(Channel {
        socket: path.into(),
        open: found.get("frontend-open").and_then(Value::as_bool) == Some(true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_found() {
        let all = json!([
            {"label": "serial0", "filename": "file", "frontend-open": true},
            {"label": "agent", "filename": "disconnected:unix:/run/a,b/agent.sock,server=on", "frontend-open": true},
            {"label": "other", "filename": "unix:/x", "frontend-open": false},
        ]);
        let agent = channel_in(&all, "agent").unwrap();
        assert_eq!(
            (agent.socket, agent.open),
            ("/run/a,b/agent.sock".into(), true)
        );
        assert_eq!(channel_in(&all, "other").unwrap().socket, Path::new("/x"));
        assert_eq!(channel_in(&all, "serial0"), None);
        assert_eq!(channel_in(&all, "none"), None);
    }
}
