//! Devices of the host that machines have for themselves.

use super::nodes::{near, nodes};
use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::{machines, opened, without_names};
use crate::system::{System, Unseen};

const DEVICES: &str = "sys/bus/pci/devices";

/// Passed-through devices.
pub const NODE: Check = Check {
    id: "device-node",
    title: "A machine's devices are on the node of its processors",
    about: "A device that is passed through (VFIO) writes into the machine's memory and interrupts its processors. On \
        another socket all of that goes over the link between them, and the device's bandwidth is the link's.",
    by_hand: "grep . /sys/bus/pci/drivers/vfio-pci/*/numa_node; ls -l /proc/$(pgrep -o qemu-system)/fd | grep vfio",
    remedy: "bind the machine's processors and memory to the device's node (libvirt: vcpupin, numatune)",
    class: Class::MachineRestart,
    risk: "the node may have too little memory or too few cores",
    source: "Younge 2015, 4 and 5 (devices passed through, on the guest's node); Linux, Documentation/driver-api/vfio.rst",
    causes: &[],
    look: node,
};

fn node(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let names = look.system.names("sys/bus/pci/drivers/vfio-pci")?;
    let devices: Vec<String> = names.into_iter().filter(|name| name.contains(':')).collect();
    if devices.is_empty() {
        return Ok(Verdict::fine("no device is passed through"));
    }
    let nodes = nodes(look)?;
    if nodes.len() < 2 {
        return Ok(Verdict::fine("there is one node"));
    }
    let all = machines(look)?;
    let mut far = Vec::new();
    for machine in &all {
        let open = groups(look.system, machine.pid)?;
        let near = near(machine, &nodes);
        for device in &devices {
            let group = look.system.link(&format!("{DEVICES}/{device}/iommu_group"))?;
            if !group.is_some_and(|group| open.contains(&group)) {
                continue;
            }
            let node = look.need(&format!("{DEVICES}/{device}/numa_node"))?;
            // -1: the firmware does not say.
            let Ok(node) = node.parse::<usize>() else {
                continue;
            };
            if !machine.vcpus.is_empty() && !near.contains(&node) {
                far.push(format!("{device} of {}", machine.name));
            }
        }
    }
    if far.is_empty() {
        let fine = || Verdict::fine("they are, or the firmware does not say where they are");
        return Ok(without_names(&all).map_or_else(fine, Verdict::Unknown));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("Devices on another node than the processors: {}.", far.join(", ")),
        estimate: "a half to double of the device's latency, and bandwidth that others use".into(),
        ..Costs::default()
    }))
}

/// The groups of devices that a process has open.
fn groups(system: &System, pid: u32) -> Result<Vec<String>, Unseen> {
    let files = opened(system, pid)?;
    Ok(files.iter().filter_map(|file| file.strip_prefix("/dev/vfio/").map(String::from)).collect())
}
