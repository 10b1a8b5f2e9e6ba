//! The cores and memory of a domain: their topology, their placement, and the pages of its memory.

use crate::qemu::accel::Accel;
use crate::qemu::placed::{room, Backing, FAR};
use crate::shared::affinity::Pins;
use crate::shared::xml::Element;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::pages::Pages;
use vshmem_placement::plan::{GuestNode, Placed};
use vshmem_placement::rules::Memory;

/// Features of the processor that cost an emulated machine time: see [`Accel::arguments`].
const SLOW: [&str; 3] = ["la57", "erms", "fsrm"];

/// The elements for a machine with so many virtual cores.
pub fn elements(
    accel: Accel,
    cpus: u32,
    placed: Option<&Placed>,
    pins: Option<&Pins>,
    backing: &Backing,
) -> Vec<Element> {
    let vcpu = Element::new("vcpu").with("current", cpus).text(room(cpus));
    let mut all = vec![vcpu, cpu(accel, cpus, placed)];
    all.extend(pins.map(tune));
    all.extend(placed.filter(|placed| !placed.nodes.is_empty()).map(nodes));
    let is_bound = placed.is_some_and(|placed| !placed.nodes.is_empty());
    all.extend(memory(backing, is_bound));
    all
}

/// The processor.
fn cpu(accel: Accel, cpus: u32, placed: Option<&Placed>) -> Element {
    let mode = |mode| Element::new("cpu").with("mode", mode).with("check", "none");
    let slow = SLOW.map(|name| Element::new("feature").with("policy", "disable").with("name", name));
    let mut cpu = match accel {
        Accel::Kvm => mode("host-passthrough"),
        Accel::Tcg => mode("maximum").and(slow),
    };
    if let Some(guest) = placed.map(|placed| &placed.guest) {
        let cores = if room(cpus) > cpus { room(cpus) as usize } else { guest.cores };
        cpu = cpu.and([Element::new("topology")
            .with("sockets", guest.sockets)
            .with("dies", guest.caches)
            .with("cores", cores / guest.caches)
            .with("threads", guest.threads)]);
        if !guest.nodes.is_empty() {
            let cells = guest.nodes.iter().enumerate().map(|(id, node)| cell(id, node, cpus));
            cpu = cpu.and([Element::new("numa").and(cells)]);
        }
    }
    cpu
}

/// A memory node that the machine sees.
fn cell(id: usize, node: &GuestNode, cpus: u32) -> Element {
    // Where each is that there is room for, libvirt wants to know, too.
    let spare = (cpus..room(cpus)).filter(|_| node.vcpus.contains(0));
    let vcpus: CpuSet = node.vcpus.iter().chain(spare).collect();
    let mut cell = Element::new("cell").with("id", id);
    if !vcpus.is_empty() {
        cell = cell.with("cpus", vcpus);
    }
    let distances = node.distances.iter().enumerate().map(|(to, distance)| {
        let distance = if to == id { 10 } else { *distance.clamp(FAR.start(), FAR.end()) };
        Element::new("sibling").with("id", to).with("value", distance)
    });
    cell.with("memory", node.memory / 1024)
        .with("unit", "KiB")
        .and([Element::new("distances").and(distances)])
}

/// The cores of this host that its threads may run on.
fn tune(pins: &Pins) -> Element {
    let vcpus = pins.vcpus.iter().enumerate();
    let vcpus = vcpus.map(|(vcpu, set)| Element::new("vcpupin").with("vcpu", vcpu).with("cpuset", set));
    let others = pins.others.iter().map(|set| Element::new("emulatorpin").with("cpuset", set));
    Element::new("cputune").and(vcpus).and(others)
}

/// The nodes of this host that its memory comes from.
fn nodes(placed: &Placed) -> Element {
    let mode = match placed.rules.memory {
        Memory::Strict => "strict",
        Memory::Preferred => "preferred",
        Memory::Interleave => "interleave",
    };
    // Of several, the kernel prefers the first one, and libvirt takes one only.
    let from = |nodes: &CpuSet| match placed.rules.memory {
        Memory::Preferred => nodes.first().into_iter().collect(),
        _ => nodes.clone(),
    };
    let all = Element::new("memory").with("mode", mode).with("nodeset", from(&placed.nodes));
    let each = placed.guest.nodes.iter().enumerate().map(|(id, node)| {
        let nodes = CpuSet::from_iter([node.host]);
        Element::new("memnode").with("cellid", id).with("mode", mode).with("nodeset", nodes)
    });
    Element::new("numatune").and([all]).and(each)
}

/// The pages of its memory, and the threads that take them. Memory that is bound to nodes is not merged with
/// that of others (KSM).
fn memory(backing: &Backing, is_bound: bool) -> Option<Element> {
    let mut parts = Vec::new();
    if let Some(page) = backing.pages.and_then(Pages::reserved) {
        let page = Element::new("page").with("size", page / 1024).with("unit", "KiB");
        parts.push(Element::new("hugepages").and([page]));
        parts.push(Element::new("source").with("type", "memfd"));
    }
    if !parts.is_empty() || is_bound {
        parts.push(Element::new("nosharepages"));
    }
    if backing.threads > 0 {
        let ahead = Element::new("allocation").with("mode", "immediate").with("threads", backing.threads);
        parts.push(ahead);
    }
    (!parts.is_empty()).then(|| Element::new("memoryBacking").and(parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vshmem_placement::plan::Guest;
    use vshmem_placement::rules::Rules;

    fn told(all: &[Element]) -> String {
        all.iter().map(ToString::to_string).collect()
    }

    fn placed(memory: Memory, nodes: Vec<GuestNode>) -> Placed {
        Placed {
            name: "a".into(),
            memory: 6 << 20,
            rules: Rules { memory, ..Rules::default() },
            vcpus: vec!["4".parse().unwrap(), "6-7".parse().unwrap()],
            emulator: "0".parse().unwrap(),
            nodes: "1-2".parse().unwrap(),
            near: CpuSet::default(),
            guest: Guest { nodes, ..Guest::flat(2) },
            why: vec![],
            fallbacks: vec![],
        }
    }

    #[test]
    fn a_machine_without_wishes_says_little() {
        let all = told(&elements(Accel::Kvm, 1, None, None, &Backing::default()));
        assert_eq!(all, "<vcpu current='1'>2</vcpu>\n<cpu mode='host-passthrough' check='none'/>\n");
        let tcg = told(&elements(Accel::Tcg, 3, None, None, &Backing::default()));
        assert!(tcg.starts_with("<vcpu current='3'>3</vcpu>\n<cpu mode='maximum' check='none'>\n"), "{tcg}");
        assert!(tcg.contains("<feature policy='disable' name='la57'/>"), "{tcg}");
    }

    #[test]
    fn threads_and_memory_are_where_they_were_placed() {
        let placed = placed(Memory::Strict, vec![]);
        let pins = Pins { vcpus: placed.vcpus.clone(), others: Some(placed.emulator.clone()) };
        let backing = Backing { pages: Some(Pages::TwoMib), threads: 3, ..Backing::default() };
        let all = told(&elements(Accel::Kvm, 2, Some(&placed), Some(&pins), &backing));
        for part in [
            "<topology sockets='1' dies='1' cores='2' threads='1'/>",
            "<cputune>\n  <vcpupin vcpu='0' cpuset='4'/>\n  <vcpupin vcpu='1' cpuset='6-7'/>\n  <emulatorpin cpuset='0'/>\n</cputune>",
            "<numatune>\n  <memory mode='strict' nodeset='1-2'/>\n</numatune>",
            "<hugepages>\n    <page size='2048' unit='KiB'/>\n  </hugepages>\n  <source type='memfd'/>\n  <nosharepages/>\n  \
             <allocation mode='immediate' threads='3'/>",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
    }

    #[test]
    fn a_machine_on_several_nodes_sees_them() {
        let node = |vcpus: &str, host, distances: [u64; 2]| GuestNode {
            vcpus: vcpus.parse().unwrap(),
            memory: 3 << 20,
            host,
            distances: distances.into(),
        };
        let placed = placed(Memory::Preferred, vec![node("0", 1, [10, 300]), node("", 2, [3, 10])]);
        let all = told(&elements(Accel::Kvm, 1, Some(&placed), None, &Backing::default()));
        for part in [
            "<cell id='0' cpus='0-1' memory='3072' unit='KiB'>",
            "<sibling id='1' value='254'/>",
            "<cell id='1' memory='3072' unit='KiB'>",
            "<sibling id='0' value='11'/>",
            "<memory mode='preferred' nodeset='1'/>",
            "<memnode cellid='1' mode='preferred' nodeset='2'/>",
            "<memoryBacking>\n  <nosharepages/>\n</memoryBacking>",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
        assert!(!all.contains("<cputune"), "{all}");
    }
}
