//! QEMU's options for a machine that was placed: the sockets, cores and memory nodes that it sees, and the
//! nodes of this host that its memory comes from.

use crate::placement::cpuset::CpuSet;
use crate::placement::plan::{Guest, Placed};
use crate::placement::rules::Memory;
use serde_json::json;

/// The distances that ACPI has a place for, but for a node's to itself.
const FAR: std::ops::RangeInclusive<u64> = 11..=254;

/// The value of `-smp`.
pub fn processors(cpus: u32, guest: Option<&Guest>) -> String {
    // With at most one processor, TCG emulates locked instructions by plain loads and stores, which are not
    // atomic between machines.
    let room = cpus.max(2);
    let topology = guest.map(|guest| {
        let cores = if room > cpus { room as usize } else { guest.cores };
        format!(",sockets={},cores={cores},threads={}", guest.sockets, guest.threads)
    });
    format!("cpus={cpus},maxcpus={room}{}", topology.unwrap_or_default())
}

/// Options for memory that comes from certain nodes, or is divided over several of the machine's.
pub fn memory(placed: &Placed) -> Vec<(&'static str, String)> {
    let nodes = &placed.guest.nodes;
    if nodes.is_empty() {
        if placed.nodes.is_empty() {
            return vec![];
        }
        let object = backend("memory", placed.memory, placed, &placed.nodes);
        return vec![("-object", object), ("-machine", "memory-backend=memory".into())];
    }
    let mut options = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let id = format!("memory{index}");
        let from = match placed.nodes.is_empty() {
            true => CpuSet::default(),
            false => CpuSet::from_iter([node.host]),
        };
        options.push(("-object", backend(&id, node.memory, placed, &from)));
        let cpus: String = node.vcpus.to_string().split(',').map(|range| format!(",cpus={range}")).collect();
        options.push(("-numa", format!("node,nodeid={index}{cpus},memdev={id}")));
    }
    for (from, node) in nodes.iter().enumerate() {
        for (to, distance) in node.distances.iter().enumerate().filter(|(to, _)| *to != from) {
            let distance = distance.clamp(FAR.start(), FAR.end());
            options.push(("-numa", format!("dist,src={from},dst={to},val={distance}")));
        }
    }
    options
}

/// An object that memory comes from; `nodes` are those of this host, or none if any will do.
fn backend(id: &str, bytes: u64, placed: &Placed, nodes: &CpuSet) -> String {
    // As -m has it, which must be the sum.
    let size = bytes / 1024 * 1024;
    let mut object = json!({ "qom-type": "memory-backend-ram", "id": id, "size": size });
    if !nodes.is_empty() {
        object["host-nodes"] = nodes.iter().collect();
        object["policy"] = match placed.rules.memory {
            Memory::Strict => "bind",
            Memory::Preferred => "preferred",
            Memory::Interleave => "interleave",
        }
        .into();
    }
    object.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::plan::GuestNode;
    use crate::placement::rules::Rules;

    fn placed(memory: Memory, nodes: &str, guest: Guest) -> Placed {
        Placed {
            name: "a".into(),
            memory: 6 << 20,
            rules: Rules { memory, ..Rules::default() },
            vcpus: vec![],
            emulator: CpuSet::default(),
            nodes: nodes.parse().unwrap(),
            near: CpuSet::default(),
            guest,
            why: vec![],
            fallbacks: vec![],
        }
    }

    #[test]
    fn a_machine_has_the_sockets_that_it_was_placed_on() {
        assert_eq!(processors(3, None), "cpus=3,maxcpus=3");
        let guest = |sockets, cores, threads| Guest { sockets, cores, threads, nodes: vec![] };
        assert_eq!(processors(8, Some(&guest(2, 2, 2))), "cpus=8,maxcpus=8,sockets=2,cores=2,threads=2");
        assert_eq!(processors(1, None), "cpus=1,maxcpus=2");
        assert_eq!(processors(1, Some(&Guest::flat(1))), "cpus=1,maxcpus=2,sockets=1,cores=2,threads=1");
    }

    #[test]
    fn memory_comes_from_the_nodes_that_it_should() {
        let told = |placed: &Placed| {
            memory(placed).into_iter().map(|(option, value)| format!("{option} {value}")).collect::<Vec<_>>()
        };
        assert!(told(&placed(Memory::Strict, "", Guest::flat(2))).is_empty());
        assert_eq!(
            told(&placed(Memory::Strict, "0,2", Guest::flat(2))),
            [
                r#"-object {"host-nodes":[0,2],"id":"memory","policy":"bind","qom-type":"memory-backend-ram","size":6291456}"#,
                "-machine memory-backend=memory"
            ]
        );
        let interleaved = told(&placed(Memory::Interleave, "0-1", Guest::flat(2)));
        assert!(interleaved[0].contains(r#""policy":"interleave""#), "{interleaved:?}");
    }

    #[test]
    fn a_machine_on_several_nodes_sees_them() {
        let node = |vcpus: &str, host, distances: [u64; 2]| GuestNode {
            vcpus: vcpus.parse().unwrap(),
            memory: 3 << 20,
            host,
            distances: distances.into(),
        };
        let nodes = vec![node("0-1,4", 3, [10, 300]), node("2-3", 5, [10, 10])];
        let two = placed(Memory::Preferred, "3,5", Guest { nodes, ..Guest::flat(5) });
        let all = memory(&two).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        assert!(all[0].contains(r#""host-nodes":[3],"id":"memory0","policy":"preferred""#), "{all:?}");
        assert_eq!(all[1], "node,nodeid=0,cpus=0-1,cpus=4,memdev=memory0");
        assert_eq!(all[3], "node,nodeid=1,cpus=2-3,memdev=memory1");
        assert_eq!(all[4..], ["dist,src=0,dst=1,val=254", "dist,src=1,dst=0,val=11"]);
        let anywhere = memory(&Placed { nodes: CpuSet::default(), ..two });
        assert!(!anywhere[0].1.contains("host-nodes"), "{anywhere:?}");
    }
}
