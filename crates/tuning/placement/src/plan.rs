//! A placement: the processors and memory nodes of each machine, and the topology that it sees.

use super::cpuset::CpuSet;
use super::rules::{Memory, Policy, Rules};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vshmem_base::size;

/// The placement of all machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The machines in the order in which they were asked for.
    pub machines: Vec<Placed>,
}

/// The placement of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The machine's name.
    pub name: String,
    /// Its memory in bytes.
    pub memory: u64,
    /// The rules that were asked for.
    pub rules: Rules,
    /// The processors of each vCPU, in the order of vCPUs.
    pub vcpus: Vec<CpuSet>,
    /// The processors of the hypervisor's other threads.
    pub emulator: CpuSet,
    /// Memory nodes that its memory comes from, by Linux's numbers. Empty: any.
    pub nodes: CpuSet,
    /// Memory nodes that its devices are near to.
    #[serde(default)]
    pub near: CpuSet,
    /// The topology that the machine sees.
    pub guest: Guest,
    /// Reasons for the placement, a sentence each.
    pub why: Vec<String>,
    /// Wishes that could not be met, a sentence each.
    pub fallbacks: Vec<String>,
}

/// The topology that a machine sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Guest {
    /// Sockets.
    pub sockets: usize,
    /// Cores of a socket.
    pub cores: usize,
    /// Threads of a core.
    pub threads: usize,
    /// Last-level caches of a socket, which equally many of its cores share.
    #[serde(default = "one")]
    pub caches: usize,
    /// Its memory nodes; empty if it has one.
    pub nodes: Vec<GuestNode>,
}

/// A memory node of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestNode {
    /// Its vCPUs.
    pub vcpus: CpuSet,
    /// Its memory in bytes.
    pub memory: u64,
    /// The node of the host that this comes from.
    pub host: u32,
    /// Its distance to each of the machine's nodes, in their order (ACPI SLIT: 10 is itself).
    pub distances: Vec<u64>,
}

fn one() -> usize {
    1
}

impl Guest {
    /// Cores of one socket, with one memory node.
    pub fn flat(cpus: usize) -> Guest {
        Guest { sockets: 1, cores: cpus, threads: 1, caches: 1, nodes: Vec::new() }
    }
}

impl Placed {
    /// Whether its threads are bound to processors.
    pub fn pins(&self) -> bool {
        self.rules.policy != Policy::Unpinned
    }

    /// The processors that only one vCPU of it has, in the order of vCPUs.
    pub fn pinned(&self) -> impl Iterator<Item = u32> + '_ {
        let alone = self.rules.policy.pins_alone();
        self.vcpus.iter().filter(move |set| alone && set.len() == 1).flat_map(CpuSet::iter)
    }

    /// Its processors and memory nodes, in words.
    pub fn summary(&self) -> String {
        let on = match (self.vcpus.iter().all(|set| set.len() == 1), self.vcpus.first()) {
            (true, _) => self.vcpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            (false, set) => format!("any of {}", set.cloned().unwrap_or_default()),
        };
        let memory = match (self.nodes.is_empty(), self.rules.memory) {
            (true, _) => "any node".into(),
            (_, Memory::Strict) => format!("node {}", self.nodes),
            (_, Memory::Preferred) => format!("node {} first", self.nodes),
            (_, Memory::Interleave) => format!("nodes {} by turns", self.nodes),
        };
        let (emulator, size) = (&self.emulator, size::show(self.memory));
        format!("vCPUs on {on}, emulator threads on {emulator}, {size} from {memory}")
    }

    /// The nodes of the host that its memory comes from, with what comes from each set of them, in bytes.
    pub fn sources(&self) -> Vec<(CpuSet, u64)> {
        if self.nodes.is_empty() {
            return Vec::new();
        }
        let mut sources: Vec<(CpuSet, u64)> = Vec::new();
        for node in &self.guest.nodes {
            let set = CpuSet::from_iter([node.host]);
            match sources.iter_mut().find(|(known, _)| *known == set) {
                Some((_, bytes)) => *bytes += node.memory,
                None => sources.push((set, node.memory)),
            }
        }
        if sources.is_empty() {
            sources.push((self.nodes.clone(), self.memory));
        }
        sources
    }

    /// Whether a machine that runs as this one can run as another one without being started anew: what it
    /// sees and where its memory comes from is the same.
    pub fn can_become(&self, other: &Placed) -> bool {
        let bound = |placed: &Placed| (!placed.nodes.is_empty()).then_some(placed.rules.memory);
        self.guest == other.guest && self.nodes == other.nodes && bound(self) == bound(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(nodes: &str, hosts: &[u32]) -> Placed {
        let node = |host: &u32| GuestNode {
            vcpus: CpuSet::from_iter([0]),
            memory: 5,
            host: *host,
            distances: vec![10; hosts.len()],
        };
        Placed {
            name: "a".into(),
            memory: 10,
            rules: Rules::default(),
            vcpus: vec!["1".parse().unwrap(), "2-3".parse().unwrap()],
            emulator: "0".parse().unwrap(),
            nodes: nodes.parse().unwrap(),
            near: CpuSet::default(),
            guest: Guest { nodes: hosts.iter().map(node).collect(), ..Guest::flat(2) },
            why: vec![],
            fallbacks: vec![],
        }
    }

    #[test]
    fn memory_is_told_by_its_source() {
        let sources = |placed: &Placed| {
            placed.sources().iter().map(|(set, bytes)| format!("{set}:{bytes}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(sources(&placed("", &[])), "");
        assert_eq!(sources(&placed("0-1", &[])), "0-1:10");
        assert_eq!(sources(&placed("0-1", &[0, 1])), "0:5 1:5");
        assert_eq!(sources(&placed("0", &[0, 0])), "0:10");
        let one = placed("", &[]);
        assert_eq!(one.pinned().collect::<Vec<_>>(), [1]);
        assert_eq!(one.summary(), "vCPUs on any of 1, emulator threads on 0, 10 from any node");
    }

    #[test]
    fn what_a_machine_sees_can_not_change_while_it_runs() {
        let one = placed("0", &[]);
        assert!(one.can_become(&Placed { vcpus: vec![], emulator: CpuSet::default(), ..one.clone() }));
        assert!(!one.can_become(&placed("1", &[])) && !one.can_become(&placed("0", &[0, 0])));
        let strict = Rules { memory: Memory::Strict, ..one.rules };
        assert!(!one.can_become(&Placed { rules: strict, ..one.clone() }));
        let free = placed("", &[]);
        assert!(free.can_become(&Placed { rules: strict, ..free.clone() }));
    }
}
