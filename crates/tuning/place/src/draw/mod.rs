//! Pictures of a placement.

mod svg;
mod text;

pub use svg::svg;
pub use text::text;

use crate::topology::Topology;
use std::collections::HashMap;
use vshmem_base::size;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::plan::Plan;

/// The use of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// vCPUs of the machine with this index, and of no other.
    Machine(usize),
    /// vCPUs that may run elsewhere, too.
    Shared,
    /// Emulator threads, but no vCPUs.
    Emulator,
    /// Machines of other clusters.
    Others,
    /// No vCPUs and no emulator threads.
    Free,
}

/// The use of each core.
fn uses(topology: &Topology, plan: &Plan, taken: &CpuSet) -> Vec<Use> {
    let core_of_pu = |pu: u32| topology.cores.iter().position(|core| core.pus.contains(&pu));
    let mut core_of = HashMap::new();
    let mut uses = vec![Use::Free; topology.cores.len()];
    let mut cores = |set: &CpuSet| -> Vec<usize> {
        let of = |pu| *core_of.entry(pu).or_insert_with(|| core_of_pu(pu));
        let mut cores: Vec<_> = set.iter().filter_map(of).collect();
        cores.dedup();
        cores
    };
    for core in cores(taken) {
        uses[core] = Use::Others;
    }
    for machine in &plan.machines {
        for core in cores(&machine.emulator) {
            uses[core] = Use::Emulator;
        }
    }
    let of_vcpus = |pinned: bool| {
        let machines = plan.machines.iter().enumerate();
        machines.flat_map(move |(index, machine)| {
            machine.vcpus.iter().filter(move |set| (set.len() == 1) == pinned).map(move |set| (index, set))
        })
    };
    for (_, set) in of_vcpus(false) {
        for core in cores(set) {
            uses[core] = Use::Shared;
        }
    }
    for (machine, set) in of_vcpus(true) {
        for core in cores(set) {
            uses[core] = Use::Machine(machine);
        }
    }
    uses
}

/// The cores of one memory node that share a cache.
struct CacheGroup {
    package: usize,
    node: usize,
    /// Indices of cores.
    cores: Vec<usize>,
}

impl CacheGroup {
    /// The socket and the node, and the memory there.
    fn heading(&self, topology: &Topology) -> String {
        let node = &topology.nodes[self.node];
        let memory = node.memory.map_or(String::new(), |bytes| format!(", {}", size::show(bytes)));
        format!("socket {}, node {}{memory}", self.package, node.number)
    }
}

/// All cores in their order, by node and cache.
fn cache_groups(topology: &Topology) -> Vec<CacheGroup> {
    let key = |core: &usize| {
        let core = &topology.cores[*core];
        (core.package, core.node, core.cache)
    };
    let all: Vec<_> = (0..topology.cores.len()).collect();
    let groups = all.chunk_by(|a, b| key(a) == key(b));
    groups
        .map(|cores| CacheGroup { package: key(&cores[0]).0, node: key(&cores[0]).1, cores: cores.to_vec() })
        .collect()
}
