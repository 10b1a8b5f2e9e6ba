//! The device of a pool in a machine that runs, plugged in and unplugged through QMP.

use super::pci::{FreeBus, PoolDevice};
use super::ports::{pool_of_backing, Generation};
use super::qmp::Qmp;
use crate::shared::acl::TemporaryAcl;
use crate::shared::doorbell::VECTORS;
use crate::shared::sandbox;
use crate::state::record::Granted;
use serde_json::{json, Value};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Explain, Result};
use vshmem_transport::head::HEAD;

/// QEMU would send a pool along with a machine that somebody moves or saves, and write what it was over what
/// others have in it meanwhile. It refuses that where there is memory by ivshmem, but not of persistent
/// memory. So there is a page by ivshmem, too, where no guest looks: in a slot without function 0.
pub const STAYS: [(&str, &str); 2] = [
    ("-object", "memory-backend-ram,id=vshmem-stays,size=4k,share=on"),
    ("-device", "ivshmem-plain,memdev=vshmem-stays,bus=pcie.0,addr=0x1b.1"),
];

/// The length of a pool's file with a head.
pub fn with_head(size: u64) -> u64 {
    HEAD + size.next_multiple_of(HEAD)
}

/// The way in which a QEMU accesses files and sockets of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// By path.
    Paths,
    /// By descriptor: it is in a sandbox. It may run as this other user.
    Descriptors(Option<u32>),
}

/// Plugs a pool in. `doorbell` is the socket at which the back end serves it, if it does.
pub fn plug(
    qmp: &mut Qmp,
    access: FileAccess,
    pool: &Granted,
    doorbell: Option<&Path>,
    bus: &FreeBus,
) -> Result<()> {
    let generation = Generation::now();
    let (id, backing) = (generation.device(&pool.name), generation.backing(&pool.name));
    let arguments = match doorbell {
        Some(socket) => {
            let address = match access {
                FileAccess::Paths => json!({"type": "unix", "data": {"path": socket}}),
                FileAccess::Descriptors(_) => {
                    let failed = || format!("could not connect to {}", socket.display());
                    let connection = UnixStream::connect(socket).explain(failed)?;
                    qmp.getfd(&backing, connection.into())?;
                    json!({"type": "fd", "data": {"str": backing}})
                }
            };
            let data = json!({"addr": address, "server": false});
            let socket = json!({"type": "socket", "data": data});
            qmp.call("chardev-add", json!({"id": backing, "backend": socket}))?;
            json!({"driver": "ivshmem-doorbell", "id": id, "bus": bus.bus, "chardev": backing, "vectors": VECTORS})
        }
        None => {
            if pool.transport.is_some() {
                stays(qmp)?;
            }
            let size = if pool.transport.is_some() { with_head(pool.size) } else { pool.size };
            add_memory(qmp, access, pool, &backing, size)?;
            match pool.transport {
                Some(_) => json!({"driver": "virtio-pmem-pci", "id": id, "bus": bus.bus, "memdev": backing}),
                None => json!({"driver": "ivshmem-plain", "id": id, "bus": bus.bus, "memdev": backing}),
            }
        }
    };
    qmp.call("device_add", arguments).map(|_| ()).map_err(|error| match error.to_string() {
        text if text.contains("memory devices") => error.hint(
            "It must be started with room for persistent memory: by vshmem up --transport dax, or with QEMU's option -m SIZE,slots=1,maxmem=MORE.",
        ),
        _ => error,
    })
}

/// The machine must stay where it is: an error unless QEMU refuses to move or save it.
fn stays(qmp: &mut Qmp) -> Result<()> {
    let told = qmp.call("query-migrate", json!({}))?;
    let mut reasons = told["blocked-reasons"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if reasons.any(|why| why.contains("peer mode")) {
        return Ok(());
    }
    let words: Vec<_> = STAYS.iter().map(|(name, value)| format!("{name} {value}")).collect();
    Err(error!("QEMU would move or save the pool with the machine, and write what it was over what others have in it")
        .hint(format!("Start it with: {}", words.join(" "))))
}

/// Makes QEMU map a pool's file.
fn add_memory(qmp: &mut Qmp, access: FileAccess, pool: &Granted, backing: &str, size: u64) -> Result<()> {
    let memory = |path: &Path| {
        json!({"qom-type": "memory-backend-file", "id": backing, "share": true,
            "mem-path": path, "size": size})
    };
    let FileAccess::Descriptors(user) = access else {
        return qmp.call("object-add", memory(&pool.path)).map(drop);
    };
    let file = File::options().read(true).write(true).open(&pool.path);
    let file = file.explain(|| format!("could not open {}", pool.path.display()))?;
    let _acl = user.map(|user| TemporaryAcl::grant(&pool.path, user)).transpose()?;
    let (number, set) = qmp.add_fd(&file.into())?;
    // Opened again, through the descriptor: `memory-backend-file` only takes paths.
    let added = qmp.call("object-add", memory(Path::new(&sandbox::path_of(number))));
    qmp.call("remove-fd", json!({ "fdset-id": set }))?;
    added.map(drop)
}

/// Asks the machine to release a pool's device.
pub fn unplug(qmp: &mut Qmp, plugged: &PoolDevice) -> Result<()> {
    match qmp.try_call("device_del", json!({"id": plugged.id}))? {
        // It was asked before, or has just released it.
        Err(why) if why.contains("in the process of unplug") || why.contains("not found") => Ok(()),
        Err(why) => Err(error!("QEMU refused device_del: {why}")),
        Ok(_) => Ok(()),
    }
}

/// Whether QEMU survives unplugging a device with doorbells. Without KVM, QEMU goes on watching the
/// descriptors of the device's vectors, and crashes when it gets another descriptor of the same number (7.2;
/// later versions have the same lines).
pub fn can_unplug_doorbell(qmp: &mut Qmp) -> Result<bool> {
    let answer = qmp.call("query-kvm", json!({}))?;
    Ok(answer.get("enabled").and_then(Value::as_bool) == Some(true))
}

/// Removes the objects behind a device that is gone. True if nothing is left: QEMU may need a moment.
pub fn clear(qmp: &mut Qmp, pool: &str) -> Result<bool> {
    let mut clean = true;
    for (command, id) in behind(qmp, pool)? {
        clean &= qmp.try_call(command, json!({ "id": id }))?.is_ok();
    }
    Ok(clean)
}

/// The objects behind a pool's device, each with the command that removes it.
fn behind(qmp: &mut Qmp, pool: &str) -> Result<Vec<(&'static str, String)>> {
    let is_it = |id: &&str| pool_of_backing(id) == Some(pool);
    let objects = qmp.call("qom-list", json!({"path": "/objects"}))?;
    let chardevs = qmp.call("query-chardev", json!({}))?;
    let objects = names(&objects, "name").filter(is_it).map(|id| ("object-del", id.into()));
    let chardevs = names(&chardevs, "label").filter(is_it).map(|id| ("chardev-remove", id.into()));
    Ok(objects.chain(chardevs).collect())
}

/// The file of a pool that is plugged in, if QEMU opened it by path.
pub fn file(qmp: &mut Qmp, pool: &str) -> Result<Option<PathBuf>> {
    for (command, id) in behind(qmp, pool)? {
        if command == "object-del" {
            let asked = json!({"path": format!("/objects/{id}"), "property": "mem-path"});
            let path = qmp.try_call("qom-get", asked)?.ok();
            let path = path.as_ref().and_then(Value::as_str).map(PathBuf::from);
            // The path behind a descriptor is not known any more.
            return Ok(path.filter(|path| sandbox::descriptor_at(path).is_none()));
        }
    }
    Ok(None)
}

fn names<'a>(list: &'a Value, key: &'static str) -> impl Iterator<Item = &'a str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(move |item| item.get(key)?.as_str())
}

/// The channel to a machine's front end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// QEMU's end of it.
    pub socket: PathBuf,
    /// A front end listens.
    pub open: bool,
}

/// The channel of this label. `socket` is its socket, if QEMU does not know the path.
pub fn channel(qmp: &mut Qmp, label: &str, socket: Option<&Path>) -> Result<Option<Channel>> {
    let all = qmp.call("query-chardev", json!({}))?;
    Ok(channel_in(&all, label, socket))
}

pub(crate) fn channel_in(chardevs: &Value, label: &str, socket: Option<&Path>) -> Option<Channel> {
    let is_it = |item: &&Value| item.get("label").and_then(Value::as_str) == Some(label);
    let found = chardevs.as_array()?.iter().find(is_it)?;
    let open = found.get("frontend-open").and_then(Value::as_bool) == Some(true);
    if let Some(socket) = socket {
        return Some(Channel { socket: socket.into(), open });
    }
    let file = found.get("filename")?.as_str()?;
    let path = file.strip_prefix("disconnected:").unwrap_or(file).strip_prefix("unix:")?;
    // `,server=on` and perhaps more.
    let path = path.split(",server").next()?;
    Some(Channel { socket: path.into(), open })
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
        let agent = channel_in(&all, "agent", None).unwrap();
        assert_eq!((agent.socket, agent.open), ("/run/a,b/agent.sock".into(), true));
        assert_eq!(channel_in(&all, "other", None).unwrap().socket, Path::new("/x"));
        assert_eq!(channel_in(&all, "serial0", None), None);
        assert_eq!(channel_in(&all, "none", None), None);
        let serial = channel_in(&all, "serial0", Some(Path::new("/y"))).unwrap();
        assert_eq!((serial.socket, serial.open), ("/y".into(), true));
    }
}
