//! Templates of QEMU's machines: making one, and thawing machines from it.
//!
//! A template has the devices of its machines, but no pool, no file of the host's, and nobody at the other
//! end of its network: those are a machine's own. QEMU lets the other side of a device differ. Pools lie
//! behind ports that the template leaves empty; a machine that thaws looks for them.

mod dialogue;
mod thawing;

pub use thawing::Thawing;

use super::accel::Accel;
use super::options::{arguments, Beginning, Loaded, MachineSpec};
use super::placed::Backing;
use super::program;
use crate::running::ports;
use crate::state::record::Record;
use crate::template::key::Key;
use crate::template::templates::Templates;
use std::fs;
use std::os::fd::RawFd;
use std::path::Path;
use vshmem_base::error::Result;
use vshmem_guest::settings::uplink::{Addresses, Card, Means};
use vshmem_guest::settings::Settings;
use vshmem_guest::template::UPLINK_MAC;
use vshmem_placement::pages::Pages;
use vshmem_placement::plan::Placed;
use vshmem_session::share::Share;

/// Address space for the pools that machines begin with: firmware has to find as much.
const MOST_ROOM: u64 = 128 << 30;

/// The settings of a template of machines that have these: what makes its devices.
fn settings(machine: &Settings) -> Settings {
    let writable = machine.shares.iter().any(|share| share.writable);
    let share = writable.then(|| Share { path: "/".into(), writable: true });
    let uplink =
        machine.uplink.is_some().then(|| Card { mac: UPLINK_MAC.into(), addresses: Addresses::Dhcp });
    Settings {
        channels: machine.channels,
        launcher: machine.launcher.clone(),
        slim: machine.slim,
        root_disk: machine.root_disk,
        shares: share.into_iter().collect(),
        uplink,
        template: true,
        ..Settings::default()
    }
}

/// The parts of a template.
struct Parts<'a> {
    settings: &'a Settings,
    /// The kernel that it boots.
    kernel: Loaded,
    /// Its memory, if that is a file.
    memory: Option<RawFd>,
    /// Its placement, as far as its kernel sees that.
    placement: Option<&'a Placed>,
    directory: &'a Path,
}

/// The template of a machine.
fn spec<'a>(machine: &MachineSpec<'_>, parts: Parts<'a>) -> MachineSpec<'a> {
    MachineSpec {
        beginning: Beginning::Template(parts.memory),
        settings: parts.settings,
        title: "vshmem-template".into(),
        accel: machine.accel,
        cpus: machine.cpus,
        memory: machine.memory,
        placement: parts.placement,
        devices: &[],
        backing: Backing::default(),
        kernel: Some(parts.kernel),
        disks: None,
        root: machine.root.clone(),
        directory: parts.directory,
        pools: vec![],
        later_pools: machine.pools.iter().map(|pool| pool.size).collect(),
        ports: machine.ports,
        links: machine.links.is_some().then(Vec::new),
        uplink: None,
        index: 0,
        user: machine.user,
    }
}

/// The reason why a machine can't thaw, if it can't.
fn obstacle(record: &Record, index: usize, machine: &MachineSpec<'_>) -> Option<&'static str> {
    let room: u64 = machine.pools.iter().map(|pool| ports::room(pool.size)).sum();
    let options = record.options.as_ref();
    let has_tap = options.and_then(|options| options.uplink.as_ref()).is_some_and(|it| it.by != Means::User);
    let is_unplaced =
        machine.placement.is_none() && options.is_some_and(|options| options.placement.is_some());
    let reasons = [
        (record.machines[index].image.system().is_some(), "it boots an image"),
        (!machine.devices.is_empty(), "it has devices of the host"),
        (machine.pools.iter().any(|pool| pool.dax), "it has persistent memory"),
        (room > MOST_ROOM, "its pools are too large"),
        // Its card has what the host's device can do.
        (has_tap, "it has a tap device"),
        (is_unplaced, "where it is placed is known when it starts: vshmem up makes its template"),
    ];
    reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why)
}

/// Whether a machine can share pages with its template: they are small ones, and from wherever the kernel has
/// some.
fn shares_pages(machine: &MachineSpec<'_>) -> bool {
    let small = match machine.backing.pages {
        Some(pages) => pages == Pages::Small,
        // Under translation, other things cost more than small pages.
        None => machine.accel == Accel::Tcg || !huge_pages_are_given(),
    };
    small && machine.backing.threads == 0 && machine.placement.is_none()
}

/// Whether the kernel gives QEMU's memory in transparent huge pages.
fn huge_pages_are_given() -> bool {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    enabled.contains("[always]") || enabled.contains("[madvise]")
}

/// The key of a template.
fn key(template: &MachineSpec<'_>, templates: &Templates) -> Result<Key> {
    let mut key = Key::of_host();
    key.add_program("QEMU", &program::installed()?)?;
    // Its descriptors are numbered in their order, so that the words are the same each time.
    let mut words = arguments(template).0;
    // The measured rate of the host's clock is never quite the same.
    words.iter_mut().for_each(|word| *word = without(word, "tsc_early_khz="));
    key.add("words", words.join(" "));
    if let Some(kernel) = &template.kernel {
        templates.add_content(&mut key, "kernel", &kernel.image)?;
        kernel.initramfs.iter().try_for_each(|it| templates.add_content(&mut key, "initramfs", it))?;
    }
    Ok(key)
}

/// Words without those that begin so.
fn without(words: &str, beginning: &str) -> String {
    words.split(' ').filter(|word| !word.starts_with(beginning)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_rate_makes_no_other_template() {
        assert_eq!(without("quiet tsc_early_khz=2400123 panic=-1", "tsc_early_khz="), "quiet panic=-1");
    }
}
