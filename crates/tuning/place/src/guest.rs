//! The topology that a machine sees, of the host's cores and nodes that it has.

use crate::topology::Topology;
use std::collections::BTreeSet;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::plan::{Guest, GuestNode};
use vshmem_placement::request::Machine;
use vshmem_placement::rules::Memory;

/// The topology that a machine sees whose vCPUs are on these cores and logical processors, and whose memory
/// is on these nodes. Sockets, caches and threads are shown if all have equally many vCPUs; hypervisors can't
/// express others.
pub fn of(topology: &Topology, machine: &Machine, vcpus: &[(usize, u32)], memory: &[(usize, u64)]) -> Guest {
    let cores: Vec<_> = vcpus.iter().map(|(core, _)| *core).collect();
    let threads = if machine.rules.smt { runs(&cores).unwrap_or(1) } else { 1 };
    let packages: Vec<_> = cores.iter().map(|core| topology.cores[*core].package).collect();
    let of_socket = runs(&packages).filter(|count| count % threads == 0).unwrap_or(cores.len());
    let sockets = cores.len() / of_socket;
    let caches: Vec<_> = cores.iter().map(|core| topology.cores[*core].cache).collect();
    let of_cache = runs(&caches).filter(|count| count % threads == 0 && of_socket % count == 0);
    let caches = of_cache.map_or(1, |of_cache| of_socket / of_cache);
    // What comes from all nodes by turns is near to none of them.
    let memory = if machine.rules.memory == Memory::Interleave { &[] } else { memory };
    Guest { sockets, cores: of_socket / threads, threads, caches, nodes: nodes(topology, &cores, memory) }
}

/// Sentences about parts of the topology that a machine does not see.
pub fn not_shown(topology: &Topology, vcpus: &[(usize, u32)], guest: &Guest) -> Vec<String> {
    let different = |values: Vec<usize>| values.into_iter().collect::<BTreeSet<_>>().len();
    let cores = different(vcpus.iter().map(|(core, _)| *core).collect());
    let sockets = different(vcpus.iter().map(|(core, _)| topology.cores[*core].package).collect());
    let caches = different(vcpus.iter().map(|(core, _)| topology.cores[*core].cache).collect());
    let mut all = Vec::new();
    if sockets != guest.sockets {
        all.push(format!("it is not shown its {sockets} sockets, which have different numbers of its vCPUs"));
    }
    if sockets == guest.sockets && caches != guest.sockets * guest.caches {
        all.push(format!(
            "it is not shown its {caches} last-level caches, which have different numbers of its vCPUs"
        ));
    }
    if cores < vcpus.len() && guest.threads == 1 {
        all.push("it is not shown which vCPUs are SMT siblings, since not all are".into());
    }
    all
}

/// The length of runs of equal values, if all have the same, and no value has two runs.
fn runs(values: &[usize]) -> Option<usize> {
    let runs: Vec<_> = values.chunk_by(|a, b| a == b).collect();
    let length = runs.first()?.len();
    let mut seen: Vec<_> = runs.iter().map(|run| run[0]).collect();
    seen.sort_unstable();
    seen.dedup();
    (seen.len() == runs.len() && runs.iter().all(|run| run.len() == length)).then_some(length)
}

/// The machine's nodes, if it has several.
fn nodes(topology: &Topology, cores: &[usize], memory: &[(usize, u64)]) -> Vec<GuestNode> {
    if memory.len() < 2 {
        return Vec::new();
    }
    let on = |node: usize| {
        let vcpus = cores.iter().enumerate().filter(move |(_, core)| topology.cores[**core].node == node);
        vcpus.map(|(vcpu, _)| vcpu as u32).collect::<CpuSet>()
    };
    let node = |(node, bytes): &(usize, u64)| GuestNode {
        vcpus: on(*node),
        memory: *bytes,
        host: topology.nodes[*node].number,
        distances: memory.iter().map(|(other, _)| topology.distance(*node, *other)).collect(),
    };
    memory.iter().map(node).collect()
}
