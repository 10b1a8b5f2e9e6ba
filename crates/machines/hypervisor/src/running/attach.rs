//! The attachment of machines that Vshmem did not start, and its end.

use super::attached::{self, Attached, Monitor, VERSION};
use super::qemu_machine::QemuMachine;
use super::qmp::{Qmp, ANSWER_TIMEOUT};
use super::{grant, plug};
use crate::shared::{dead, doorbell};
use crate::state::record::Record;
use serde_json::{json, Value};
use std::path::PathBuf;
use std::time::Duration;
use vshmem_agent::guest::protocol::PORT;
use vshmem_base::directories::{self, boot_id, cluster_names};
use vshmem_base::error::{error, Error, Result};
use vshmem_base::interrupt;
use vshmem_base::lock::busy;

/// Options of `vshmem attach`.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    /// The machine's name.
    pub name: String,
    /// The monitor of its QEMU.
    pub monitor: Monitor,
    /// The back end serves its pools; by default, if its QEMU runs as this user or root.
    pub doorbell: Option<bool>,
}

/// QEMU's id of the channel that is added to a machine without one.
const CHANNEL: &str = "vshmem-agent";
/// QEMU's id of that channel's port.
const PLUG: &str = "vshmem-agent-port";
/// Time that a front end may take to notice its channel.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(3);

/// A machine that was attached.
#[derive(Debug, Clone)]
pub struct AttachResult {
    /// Its record.
    pub record: Attached,
    /// The reason why its pools will have no doorbells, if so.
    pub no_doorbells: Option<&'static str>,
    /// The reason why its front end can't be reached, if so.
    pub no_channel: Option<String>,
}

/// Attaches a machine.
pub fn attach(options: &AttachOptions) -> Result<AttachResult> {
    check_name(&options.name)?;
    let lock = attached::lock(&options.name)?.ok_or_else(|| busy(&options.name))?;
    let made = begin(options);
    if made.is_err() {
        // Nothing is left of a machine that could not be attached.
        if matches!(Attached::read(&options.name), Ok(None)) {
            attached::remove_lock(&options.name)?;
        }
    }
    drop(lock);
    made
}

fn begin(options: &AttachOptions) -> Result<AttachResult> {
    let monitor = match &options.monitor {
        Monitor::Qmp(socket) => {
            let found = socket.canonicalize().map_err(|e| {
                error!("could not find the monitor's socket {}: {e}", socket.display())
                    .hint("QEMU makes it at its start, by the options that vshmem attach --print lists.")
            });
            Monitor::Qmp(found?)
        }
        Monitor::Libvirt(domain) => {
            if !domain.runs()? {
                let name = &domain.name;
                return Err(error!("libvirt's domain {name} does not run")
                    .hint(format!("Start it first: virsh start {name}")));
            }
            Monitor::Libvirt(domain.clone())
        }
    };
    if let Some(known) = Attached::read(&options.name)? {
        if known.monitor != monitor {
            return Err(error!("{} is another machine", options.name)
                .hint(format!("Choose another name, or detach that one: vshmem detach {}", options.name)));
        }
    }
    let mut record = Attached {
        version: VERSION,
        name: options.name.clone(),
        boot: boot_id(),
        monitor,
        doorbell: false,
        channel: None,
        since: vshmem_agent::now(),
        pools: Attached::read(&options.name)?.map_or_else(Vec::new, |known| known.pools),
    };
    let mut qmp = record.monitor.connect(ANSWER_TIMEOUT)?;
    let served = qmp.is_served();
    record.doorbell = options.doorbell.unwrap_or(served);
    let no_doorbells = why_no_doorbells(options.doorbell, served, plug::can_unplug_doorbell(&mut qmp)?);
    // The record is written first, so that there is a directory for the channel.
    record.write()?;
    let no_channel = match channel(&mut qmp, &record) {
        Ok(label) => {
            let listens = listens(&mut qmp, &label)?;
            record.channel = Some(label);
            (!listens).then(|| "nobody listens there (vshmem agent --guest)".into())
        }
        Err(error) => Some(format!("there is no channel to it: {error}")),
    };
    record.write()?;
    Ok(AttachResult { record, no_doorbells, no_channel })
}

/// The reason why the machine's pools will have no doorbells, by the same rules as in `grant`.
fn why_no_doorbells(wished: Option<bool>, served: bool, kvm: bool) -> Option<&'static str> {
    match wished {
        Some(false) => Some("--no-doorbell was given"),
        None if !served => {
            Some("its QEMU is not known to run as you or as root (ask for them with --doorbell if it does)")
        }
        _ => (!kvm).then_some("its QEMU runs without KVM"),
    }
}

/// Detaches a machine, which must not have any pools.
pub fn detach(name: &str) -> Result<()> {
    let none = || error!("there is no attached machine {name}").code(1);
    let (mut record, _lock) = attached::locked(name)?.ok_or_else(none)?;
    if record.runs() {
        let pools = grant::pools(QemuMachine::attached(&mut record))?;
        if let Some((first, _)) = pools.first() {
            let names: Vec<&str> = pools.iter().map(|(pool, _)| pool.name.as_str()).collect();
            return Err(error!("{name} still has pools: {}", names.join(", "))
                .hint(format!("Revoke them first: vshmem revoke {} {name}", first.name)));
        }
        remove_channel(&record)?;
    } else {
        dead::declare_in(&record.pools, name, &mut |pool| doorbell::release(pool, name, None));
    }
    record.remove()
}

/// Refuses names that `vshmem up` could give to its machines.
fn check_name(name: &str) -> Result<()> {
    directories::check_name(name).map_err(|_| {
        error!("{name:?} can't be a machine's name")
            .code(2)
            .hint("A name has 1 to 24 letters, digits, '-' and '_', and does not begin with '-'.")
    })?;
    let numbered = name.strip_prefix("vm");
    if numbered.is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit())) {
        return Err(error!("{name} is what vshmem up calls its machines")
            .code(2)
            .hint("Choose another name."));
    }
    for cluster in cluster_names()? {
        let record = Record::read(&cluster).ok().flatten();
        if record.is_some_and(|record| record.machines.iter().any(|m| m.name == name)) {
            return Err(error!("the cluster {cluster} has a machine {name}"));
        }
    }
    Ok(())
}

/// QEMU's id of the channel to the machine's front end, which is added if the machine has none.
fn channel(qmp: &mut Qmp, record: &Attached) -> Result<String> {
    if let Some(label) = existing(qmp)? {
        return Ok(label);
    }
    match &record.monitor {
        Monitor::Libvirt(domain) => {
            domain.add_channel(PORT)?;
            existing(qmp)?.ok_or_else(|| Error::new("libvirt's channel is not among QEMU's"))
        }
        Monitor::Qmp(_) => {
            let path = attached::directory(&record.name)?.join("agent.sock");
            plug_channel(qmp, path)?;
            Ok(CHANNEL.into())
        }
    }
}

/// Whether a front end listens at a channel, which may have been added just now.
fn listens(qmp: &mut Qmp, label: &str) -> Result<bool> {
    let listened = interrupt::wait_for(LISTEN_TIMEOUT, || {
        let channel = plug::channel(qmp, label, None)?;
        Ok(channel.filter(|channel| channel.open))
    })?;
    Ok(listened.is_some())
}

fn plug_channel(qmp: &mut Qmp, path: PathBuf) -> Result<()> {
    // Left by an interrupted command.
    let _ = qmp.try_call("chardev-remove", json!({"id": CHANNEL}))?;
    let _ = std::fs::remove_file(&path);
    let address = json!({"type": "unix", "data": {"path": path}});
    let socket = json!({"type": "socket", "data": {"addr": address, "server": true, "wait": false}});
    qmp.call("chardev-add", json!({"id": CHANNEL, "backend": socket}))?;
    let port = json!({"driver": "virtserialport", "id": PLUG, "chardev": CHANNEL, "name": PORT});
    if let Err(why) = qmp.try_call("device_add", port)? {
        let _ = qmp.try_call("chardev-remove", json!({"id": CHANNEL}))?;
        let _ = std::fs::remove_file(&path);
        return Err(error!("QEMU can't add one: {why}"));
    }
    Ok(())
}

/// QEMU's id of the machine's channel, if it has one.
fn existing(qmp: &mut Qmp) -> Result<Option<String>> {
    for list in ["/machine/peripheral", "/machine/peripheral-anon"] {
        let devices = qmp.call("qom-list", json!({ "path": list }))?;
        for device in devices.as_array().into_iter().flatten() {
            let word = |key: &str| device.get(key).and_then(Value::as_str).unwrap_or("");
            if word("type") != "child<virtserialport>" {
                continue;
            }
            let path = format!("{list}/{}", word("name"));
            let mut get = |property: &str| -> Result<Option<String>> {
                let asked = qmp.try_call("qom-get", json!({"path": path, "property": property}))?;
                Ok(asked.ok().as_ref().and_then(Value::as_str).map(String::from))
            };
            if get("name")?.as_deref() == Some(PORT) {
                return get("chardev");
            }
        }
    }
    Ok(None)
}

/// Removes the channel, if Vshmem added it.
fn remove_channel(record: &Attached) -> Result<()> {
    if record.channel.as_deref() != Some(CHANNEL) {
        return Ok(());
    }
    let mut qmp = record.monitor.connect(ANSWER_TIMEOUT)?;
    // The machine may have been restarted without it.
    let _ = qmp.try_call("device_del", json!({"id": PLUG}))?;
    let _ = qmp.try_call("chardev-remove", json!({"id": CHANNEL}))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_kvm_there_are_no_doorbells() {
        for wished in [None, Some(true), Some(false)] {
            assert!(why_no_doorbells(wished, true, false).is_some());
        }
        assert_eq!(why_no_doorbells(None, true, true), None);
        assert_eq!(why_no_doorbells(Some(true), false, true), None);
        assert!(why_no_doorbells(None, false, true).is_some());
        assert!(why_no_doorbells(Some(false), true, true).is_some());
    }
}
