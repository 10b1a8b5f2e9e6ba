//! The start of a machine, as all launchers share it: its settings, and the reasons of a failure.

use super::traits::Launcher;
use crate::boot::image::Image;
use crate::state::record::{Granted, Machine, Record};
use std::time::Duration;
use vshmem_base::error::{error, Error, Result};
use vshmem_base::interrupt;
use vshmem_base::user::uid;
use vshmem_guest::settings::uplink::Card;
use vshmem_guest::settings::{address, Network, Settings};

/// A hint for machines that boot a system of their own.
const OWN_HINT: &str =
    "Its system needs systemd and cloud-init, which starts the agent of Vshmem from the disk \
    with the label cidata, and drivers for virtio. On a slow host give it more time (--timeout).";
/// Time that a process may take to end after it has closed its descriptors.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// The settings of the machine with this index.
pub fn settings(launcher: &dyn Launcher, record: &Record, index: usize, networked: bool) -> Settings {
    let machine = &record.machines[index];
    let (network, hosts) = network_of(record, machine.index);
    let (dax, pools): (Vec<&Granted>, Vec<_>) =
        machine.pools.iter().partition(|pool| pool.transport.as_deref() == Some("dax"));
    let names = |pools: Vec<&Granted>| pools.iter().map(|pool| pool.name.clone()).collect();
    Settings {
        name: machine.name.clone(),
        pools: names(pools),
        dax: names(dax),
        uid: uid(),
        channels: record.channels,
        uplink: uplink_of(record, machine),
        network: networked.then_some(network),
        hosts: if networked { hosts } else { vec![] },
        shares: record.shares.clone(),
        exported: None,
        launcher: launcher.facts().name.into(),
        slim: machine.image == Image::Slim,
        root_disk: record.root.is_some() && machine.image == Image::Host,
        probe: false,
        template: false,
    }
}

/// A machine's card on a network outside, if it has one.
pub fn uplink_of(record: &Record, machine: &Machine) -> Option<Card> {
    let uplink = record.options.as_ref()?.uplink.as_ref()?;
    Some(uplink.card(&record.name, &machine.name, machine.index))
}

/// The network of the machine with this index, and the indices on it that don't say a name: those of machines
/// that are called otherwise, and free ones, which have none.
pub fn network_of(record: &Record, index: u32) -> (Network, Vec<(u32, String)>) {
    let end = record.machines.iter().map(|it| it.index + 1).max().unwrap_or(0);
    let name_at = |index| record.machines.iter().find(|it| it.index == index).map(|it| it.name.clone());
    let names = (0..end).map(|index| (index, name_at(index).unwrap_or_default()));
    let hosts = names.filter(|(index, name)| *name != format!("vm{index}")).collect();
    (Network { address: address(index), machines: end }, hosts)
}

/// An error unless the machine with this index runs.
pub fn check_alive(launcher: &dyn Launcher, record: &Record, index: usize) -> Result<()> {
    match &record.machines[index].runs {
        Some(running) if running.alive() => Ok(()),
        _ => Err(boot_failed(launcher, record, index, "it has ended")),
    }
}

/// The result of an action on a machine that was just started. If it failed because the machine has ended,
/// the error says that, with the machine's last output.
pub fn or_exit_reason<T>(
    launcher: &dyn Launcher,
    record: &Record,
    index: usize,
    outcome: Result<T>,
) -> Result<T> {
    let error = match outcome {
        Ok(it) => return Ok(it),
        Err(error) => error,
    };
    // Peers see closed descriptors a moment before the process has ended.
    interrupt::wait_for(EXIT_TIMEOUT, || check_alive(launcher, record, index).map(|()| None::<()>))?;
    Err(error)
}

/// The error for a machine that did not come up, with its last output.
pub fn boot_failed(launcher: &dyn Launcher, record: &Record, index: usize, why: &str) -> Error {
    let machine = &record.machines[index];
    let words = launcher.last_output(record, machine);
    error!("{} did not boot: {why}{words}", machine.name).hint(match machine.image {
        Image::Host | Image::Slim => launcher.facts().boot_hint,
        Image::Own(_) => OWN_HINT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use vshmem_guest::settings::hosts_file;

    #[test]
    fn a_free_index_has_no_name() {
        let machine = |index: u32, name: &str| json!({"name": name, "index": index, "runs": null, "address": null, "cores": []});
        let record: Record = serde_json::from_value(json!({
            "version": 2, "name": "c", "boot": "", "starter": null, "accel": "", "kernel": "/k", "pool": "/p",
            "pool_size": 0, "channels": 1, "since": 0,
            "machines": [machine(0, "vm0"), machine(3, "boss"), machine(2, "vm2")],
        }))
        .unwrap();
        let (network, hosts) = network_of(&record, 2);
        let text = hosts_file("vm2", Some(network), &hosts);
        assert!(text.ends_with("\n10.77.0.1 vm0\n10.77.0.3 vm2\n10.77.0.4 boss\n"), "{text}");
    }
}
