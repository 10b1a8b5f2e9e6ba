//! Memory on other nodes than the processors that use it.

use crate::check::Check;
use crate::cpus::{self, Cpus};
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::{machines, without_names, Machine};
use crate::system::Unseen;
use std::collections::BTreeMap;

const HAN: &str =
    "Han et al. 2010: unpinned over two sockets 12 to 37 % slower, NUMA-first 18 % where plain was 37 %";

/// More than this on other nodes costs, in percent.
const MUCH: u64 = 10;

/// A machine's memory.
pub const MEMORY: Check = Check {
    id: "remote-memory",
    title: "A machine's memory is on the node of its processors",
    about: "Each socket has its own memory. A virtual processor that reads the other socket's waits half as long again, and \
        machines share the link between them. Memory is where it was first touched, so a machine whose processors may run \
        anywhere has it anywhere.",
    by_hand: "numastat -p $(pgrep -o qemu-system); cat /proc/PID/numa_maps",
    remedy: "bind the machine's processors to the node that has its memory, and move the rest (migratepages PID FROM TO); at \
        its next start give it both (libvirt: numatune, vcpupin)",
    class: Class::Live,
    risk: "moving memory stops the machine for moments; the node may have too little",
    source: HAN,
    causes: &[],
    look: memory,
};

fn memory(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let nodes = nodes(look)?;
    if nodes.len() < 2 {
        return Ok(Verdict::fine("there is one node"));
    }
    let all = machines(look)?;
    let mut remote = Vec::new();
    for machine in &all {
        let map = look.system.text(&format!("proc/{}/numa_maps", machine.pid))?.unwrap_or_default();
        let pages = pages(&map);
        let total: u64 = pages.values().sum();
        let near = near(machine, &nodes);
        let far: u64 = pages.iter().filter(|(node, _)| !near.contains(node)).map(|(_, pages)| pages).sum();
        let of = format!("/proc/{}/numa_maps", machine.pid);
        look.note(
            of,
            pages
                .iter()
                .map(|(node, kib)| format!("N{node}: {} MiB", kib >> 10))
                .collect::<Vec<_>>()
                .join(", "),
        );
        if far * 100 > total * MUCH {
            remote.push(format!("{} % of {}", far * 100 / total, machine.name));
        } else if near.len() > 1 && pages.values().filter(|&&kib| kib * 100 > total * MUCH).count() > 1 {
            remote.push(format!("a part of {}, whose processors may run on all nodes", machine.name));
        }
    }
    if let Some(why) = without_names(&all) {
        return Ok(Verdict::Unknown(why));
    }
    if remote.is_empty() {
        return Ok(Verdict::fine(if all.is_empty() {
            "no machine of QEMU can be seen here"
        } else {
            "it is"
        }));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("Memory on another node than the processors: {}.", remote.join(", ")),
        estimate: "8 to 40 % of programs that use much memory, in the paper".into(),
        ..Costs::default()
    }))
}

/// The nodes that have processors.
pub fn nodes(look: &mut Look<'_>) -> Result<BTreeMap<usize, Cpus>, Unseen> {
    const AT: &str = "sys/devices/system/node";
    let mut nodes = BTreeMap::new();
    for node in cpus::parse(&look.text(&format!("{AT}/online"))?.unwrap_or_default()) {
        let cpus = cpus::parse(&look.system.need(&format!("{AT}/node{node}/cpulist"))?);
        if !cpus.is_empty() {
            nodes.insert(node, cpus);
        }
    }
    Ok(nodes)
}

/// The nodes on which a machine's processors may run.
pub fn near(machine: &Machine, nodes: &BTreeMap<usize, Cpus>) -> Vec<usize> {
    let allowed: Cpus = machine.vcpus.iter().flat_map(|vcpu| vcpu.allowed.iter().copied()).collect();
    nodes.iter().filter(|(_, cpus)| !cpus.is_disjoint(&allowed)).map(|(&node, _)| node).collect()
}

/// KiB of a process on each node.
fn pages(map: &str) -> BTreeMap<usize, u64> {
    let mut sums = BTreeMap::new();
    for line in map.lines() {
        let words = || line.split_whitespace();
        let size =
            words().find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse().ok()).unwrap_or(4);
        let counts = words().filter_map(|word| {
            let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
            Some((node.parse::<usize>().ok()?, pages.parse::<u64>().ok()?))
        });
        for (node, pages) in counts {
            *sums.entry(node).or_insert(0) += pages * size;
        }
    }
    sums
}

/// The kernel's own balancing.
pub const BALANCING: Check = Check {
    id: "numa-balancing",
    title: "The kernel does not move memory that is placed",
    about: "NUMA balancing unmaps pages now and then, to see from which node they are used, and moves them. Where processors \
        are bound to a node already, only the faults are left; they also split the hypervisor's huge pages.",
    by_hand: "cat /proc/sys/kernel/numa_balancing; grep numa_ /proc/vmstat",
    remedy: "switch it off",
    class: Class::Live,
    risk: "memory of programs and machines that are not bound is no longer moved to them",
    source: "Linux, Documentation/admin-guide/sysctl/kernel.rst (numa_balancing)",
    causes: &[],
    look: balancing,
};

fn balancing(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    const SWITCH: &str = "proc/sys/kernel/numa_balancing";
    let Some(state) = look.text(SWITCH)? else {
        return Ok(Verdict::fine("the kernel was built without it"));
    };
    let nodes = nodes(look)?;
    if state == "0" || nodes.len() < 2 {
        return Ok(Verdict::fine(if state == "0" { "it is off" } else { "there is one node" }));
    }
    look.number("proc/vmstat", "numa_hint_faults")?;
    let all = machines(look)?;
    let placed = all.iter().filter(|machine| !machine.vcpus.is_empty() && near(machine, &nodes).len() == 1);
    let placed: Vec<&str> = placed.map(|machine| &*machine.name).collect();
    if placed.is_empty() {
        return Ok(Verdict::fine("it is on, and no machine is bound to a node"));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("It is on, though these are bound to a node: {}.", placed.join(", ")),
        estimate: "a few percent, in faults that find nothing to move".into(),
        changes: vec![look.change(SWITCH, "0")?],
        ..Costs::default()
    }))
}
