//! The driver by which a machine has its pools.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::{Hypervisor, Look};
use crate::system::Unseen;

/// The devices by which QEMU gives pools to machines.
const DEVICE: (&str, &str) = ("0x1af4", "0x1110");

/// The driver behind pools.
pub const DRIVER: Check = Check {
    id: "pool-driver",
    title: "A machine's pools have their driver",
    about: "Without the driver vshmem.ko a machine maps a pool through sysfs, which makes it uncached where the machine's \
        word counts (AMD, newer Linux on Intel), and a process that waits for another machine looks every 2 ms.",
    by_hand: "vshmem ps; ls -l /sys/bus/pci/devices/*/driver | grep vshmem",
    remedy: "load vshmem.ko in the machine (the package vshmem-dkms, or vshmem up --driver FILE), and start its programs anew",
    class: Class::Live,
    risk: "programs keep the pool as they have mapped it until they end",
    source: "kmod/README.md of Vshmem; vshmem(4)",
    causes: &[],
    look: driver,
};

fn driver(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    const AT: &str = "sys/bus/pci/devices";
    let system = look.system;
    let (mut with, mut without) = (0, Vec::new());
    for name in system.names(AT)? {
        let is = |file: &str, value: &str| {
            let text = system.text(&format!("{AT}/{name}/{file}"));
            text.map(|text| text.is_some_and(|text| text.trim() == value))
        };
        if !is("vendor", DEVICE.0)? || !is("device", DEVICE.1)? {
            continue;
        }
        let driver = system.link(&format!("{AT}/{name}/driver"))?;
        look.note(format!("/{AT}/{name}/driver"), driver.as_deref().unwrap_or("none"));
        match driver.as_deref() {
            Some("vshmem") => with += 1,
            _ => without.push(name),
        }
    }
    if without.is_empty() {
        let why =
            if with == 0 { "this kernel has no pool by a device" } else { "all devices have the driver" };
        return Ok(Verdict::fine(why));
    }
    let cached = match look.hypervisor()? {
        Some(Hypervisor::Tcg) => {
            "uncached in name only, as emulation always caches, and waits take naps of 2 ms"
        }
        _ => "each access to the pool may go to memory, 100 times slower, and waits take naps of 2 ms",
    };
    Ok(Verdict::Costs(Costs {
        why: format!("Devices of pools without vshmem.ko: {}.", without.join(", ")),
        estimate: cached.into(),
        ..Costs::default()
    }))
}
