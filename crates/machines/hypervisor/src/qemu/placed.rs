//! QEMU's options for a machine that was placed: the sockets, cores and memory nodes that it sees, the nodes
//! of this host that its memory comes from, and the pages that it is in.

use serde_json::json;
use std::collections::BTreeMap;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::pages::Pages;
use vshmem_placement::plan::{Guest, Placed};
use vshmem_placement::rules::Memory;

/// The distances between two nodes that ACPI can express.
pub const FAR: std::ops::RangeInclusive<u64> = 11..=254;

/// Processors that a machine has room for. With at most one, TCG emulates locked instructions by plain loads
/// and stores, which are not atomic between machines.
pub fn room(cpus: u32) -> u32 {
    cpus.max(2)
}

/// The value of `-smp`.
pub fn processors(cpus: u32, guest: Option<&Guest>) -> String {
    let room = room(cpus);
    let topology = guest.map(|guest| {
        let cores = if room > cpus { room as usize } else { guest.cores };
        // Cores of a die share the last-level cache.
        let dies = match guest.caches {
            1 => String::new(),
            caches => format!(",dies={caches}"),
        };
        format!(",sockets={}{dies},cores={},threads={}", guest.sockets, cores / guest.caches, guest.threads)
    });
    format!("cpus={cpus},maxcpus={room}{}", topology.unwrap_or_default())
}

/// The backing of a machine's memory: its pages, and the threads that take them.
#[derive(Debug, Clone, Default)]
pub struct Backing {
    /// The pages; `None`: what the kernel gives.
    pub pages: Option<Pages>,
    /// Number of threads that take all of it before the machine boots; 0: it is taken as it is touched.
    pub threads: u32,
    /// The processors on which they do so, by the host's node that the memory comes from.
    pub near: BTreeMap<u32, CpuSet>,
}

/// Options for memory that comes from certain nodes or in certain pages, or is divided over several of the
/// machine's nodes. Where it needs none it is `named` all the same, or is QEMU's default.
pub fn memory(
    bytes: u64,
    placed: Option<&Placed>,
    backing: &Backing,
    named: bool,
) -> Vec<(&'static str, String)> {
    let nodes = placed.map_or(&[][..], |placed| &placed.guest.nodes);
    let bound = placed.map(|placed| placed.nodes.clone()).unwrap_or_default();
    let policy = placed.map(|placed| placed.rules.memory).unwrap_or_default();
    let mut options = Vec::new();
    if nodes.is_empty() {
        let as_usual = backing.pages.is_none_or(|pages| pages == Pages::Small) && backing.threads == 0;
        if bound.is_empty() && as_usual && !named {
            return options;
        }
        options.extend(backend("memory", bytes, (policy, &bound), backing));
        options.push(("-machine", "memory-backend=memory".into()));
        return options;
    }
    for (index, node) in nodes.iter().enumerate() {
        let id = format!("memory{index}");
        let from = match bound.is_empty() {
            true => CpuSet::default(),
            false => CpuSet::from_iter([node.host]),
        };
        // QEMU wants to know where each is that there is room for.
        let cpus = placed.map_or(0, |placed| placed.vcpus.len()) as u32;
        let spare = (cpus..room(cpus)).filter(|_| node.vcpus.contains(0));
        let vcpus = node.vcpus.iter().chain(spare).collect::<CpuSet>().to_string();
        let ranges = vcpus.split(',').filter(|range| !range.is_empty());
        let cpus: String = ranges.map(|range| format!(",cpus={range}")).collect();
        // Where memory comes in large pages, there may be none for a node.
        let its = if node.memory > 0 { format!(",memdev={id}") } else { String::new() };
        if node.memory > 0 {
            options.extend(backend(&id, node.memory, (policy, &from), backing));
        }
        options.push(("-numa", format!("node,nodeid={index}{cpus}{its}")));
    }
    for (from, node) in nodes.iter().enumerate() {
        for (to, distance) in node.distances.iter().enumerate().filter(|(to, _)| *to != from) {
            let distance = distance.clamp(FAR.start(), FAR.end());
            options.push(("-numa", format!("dist,src={from},dst={to},val={distance}")));
        }
    }
    options
}

/// Options for memory that is a file: a template's, or a private copy of it, of which only changed pages are
/// copied.
pub fn file(bytes: u64, path: &str, share: bool) -> [(&'static str, String); 2] {
    let object = json!({ "qom-type": "memory-backend-file", "id": "memory", "size": bytes / 1024 * 1024,
        "mem-path": path, "share": share });
    [("-object", object.to_string()), ("-machine", "memory-backend=memory".into())]
}

/// An object that memory comes from, and the one whose threads take it ahead of time, if some do near to it;
/// `nodes` are those of this host, or none if any will do.
fn backend(
    id: &str,
    bytes: u64,
    (policy, nodes): (Memory, &CpuSet),
    backing: &Backing,
) -> Vec<(&'static str, String)> {
    // As -m has it, which must be the sum.
    let size = bytes / 1024 * 1024;
    let mut object = json!({ "qom-type": "memory-backend-ram", "id": id, "size": size });
    if let Some(page) = backing.pages.and_then(Pages::reserved) {
        object["qom-type"] = "memory-backend-memfd".into();
        object["hugetlb"] = true.into();
        object["hugetlbsize"] = page.into();
    }
    if !nodes.is_empty() {
        object["host-nodes"] = nodes.iter().collect();
        object["policy"] = match policy {
            Memory::Strict => "bind",
            Memory::Preferred => "preferred",
            Memory::Interleave => "interleave",
        }
        .into();
    }
    let mut options = Vec::new();
    if backing.threads > 0 {
        object["prealloc"] = true.into();
        object["prealloc-threads"] = backing.threads.into();
        let near: CpuSet =
            nodes.iter().filter_map(|node| backing.near.get(&node)).flat_map(CpuSet::iter).collect();
        if !near.is_empty() {
            let context = format!("{id}-threads");
            let cpus: Vec<u32> = near.iter().collect();
            let threads = json!({ "qom-type": "thread-context", "id": context, "cpu-affinity": cpus });
            options.push(("-object", threads.to_string()));
            object["prealloc-context"] = context.into();
        }
    }
    options.push(("-object", object.to_string()));
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use vshmem_placement::plan::GuestNode;
    use vshmem_placement::rules::Rules;

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
        let guest = |sockets, cores, threads| Guest { sockets, cores, threads, ..Guest::flat(1) };
        assert_eq!(processors(8, Some(&guest(2, 2, 2))), "cpus=8,maxcpus=8,sockets=2,cores=2,threads=2");
        let caches = Guest { caches: 2, ..guest(2, 4, 1) };
        assert_eq!(processors(8, Some(&caches)), "cpus=8,maxcpus=8,sockets=2,dies=2,cores=2,threads=1");
        assert_eq!(processors(1, None), "cpus=1,maxcpus=2");
        assert_eq!(processors(1, Some(&Guest::flat(1))), "cpus=1,maxcpus=2,sockets=1,cores=2,threads=1");
    }

    #[test]
    fn memory_comes_from_the_nodes_that_it_should() {
        let told = |placed: &Placed| {
            memory(placed.memory, Some(placed), &Backing::default(), false)
                .into_iter()
                .map(|(option, value)| format!("{option} {value}"))
                .collect::<Vec<_>>()
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
        let all = memory(6 << 20, Some(&two), &Backing::default(), false)
            .into_iter()
            .map(|(_, value)| value)
            .collect::<Vec<_>>();
        assert!(all[0].contains(r#""host-nodes":[3],"id":"memory0","policy":"preferred""#), "{all:?}");
        assert_eq!(all[1], "node,nodeid=0,cpus=0-1,cpus=4,memdev=memory0");
        assert_eq!(all[3], "node,nodeid=1,cpus=2-3,memdev=memory1");
        assert_eq!(all[4..], ["dist,src=0,dst=1,val=254", "dist,src=1,dst=0,val=11"]);
        let mut one = Placed { vcpus: vec!["7".parse().unwrap()], ..two.clone() };
        for (node, vcpus) in one.guest.nodes.iter_mut().zip(["0", ""]) {
            node.vcpus = vcpus.parse().unwrap();
        }
        let all = memory(6 << 20, Some(&one), &Backing::default(), false);
        assert_eq!(all[1].1, "node,nodeid=0,cpus=0-1,memdev=memory0", "with the one that there is room for");
        assert_eq!(all[3].1, "node,nodeid=1,memdev=memory1", "memory without processors");
        let anywhere = Placed { nodes: CpuSet::default(), ..two.clone() };
        let anywhere = memory(6 << 20, Some(&anywhere), &Backing::default(), false);
        assert!(!anywhere[0].1.contains("host-nodes"), "{anywhere:?}");
        // Where pages are large, a node may get none.
        let mut bare = two;
        (bare.guest.nodes[0].memory, bare.guest.nodes[1].memory) = (0, 6 << 20);
        let all = memory(6 << 20, Some(&bare), &Backing::default(), false);
        assert_eq!(all[0].1, "node,nodeid=0,cpus=0-1,cpus=4");
        assert!(all[1].1.contains(r#""id":"memory1""#) && all[2].1.ends_with("memdev=memory1"), "{all:?}");
    }

    #[test]
    fn memory_comes_in_the_pages_that_it_should() {
        let told = |placed: Option<&Placed>, pages, threads| {
            let near = [(0, "0-1".parse().unwrap()), (2, "8".parse().unwrap())].into();
            let backing = Backing { pages, threads, near };
            memory(6 << 20, placed, &backing, false).into_iter().map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert!(told(None, None, 0).is_empty() && told(None, Some(Pages::Small), 0).is_empty());
        let named = memory(6 << 20, None, &Backing::default(), true);
        assert!(named[0].1.contains("memory-backend-ram") && named[1].1 == "memory-backend=memory");
        assert_eq!(
            told(None, Some(Pages::TwoMib), 3),
            [
                r#"{"hugetlb":true,"hugetlbsize":2097152,"id":"memory","prealloc":true,"prealloc-threads":3,"qom-type":"memory-backend-memfd","size":6291456}"#,
                "memory-backend=memory"
            ]
        );
        let ahead = told(None, None, 2);
        assert!(ahead[0].contains("memory-backend-ram") && ahead[0].contains(r#""prealloc-threads":2"#));
        let bound = told(Some(&placed(Memory::Strict, "0,2", Guest::flat(2))), Some(Pages::Transparent), 2);
        assert_eq!(bound[0], r#"{"cpu-affinity":[0,1,8],"id":"memory-threads","qom-type":"thread-context"}"#);
        assert!(bound[1].contains(r#""prealloc-context":"memory-threads""#), "{bound:?}");
        // Threads near to nodes of which nothing is known run anywhere.
        let far = told(Some(&placed(Memory::Strict, "7", Guest::flat(2))), Some(Pages::OneGib), 2);
        assert!(far[0].contains(r#""hugetlbsize":1073741824"#) && !far[0].contains("context"), "{far:?}");
    }
}
