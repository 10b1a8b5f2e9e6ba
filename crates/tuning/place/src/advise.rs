//! Advice on the number and size of machines for the ranks of a parallel program.
//!
//! Han et al. (The Effect of Multi-core on HPC Applications in Virtualized Systems) ran 16 ranks of NPB in
//! machines of 8, 4, 2 and 1 vCPUs: the largest were best (+11 %), since ranks in different machines talked
//! through the host's network. They ran PARSEC in machines of 8 vCPUs, too: on two sockets it took 37 %
//! longer, on one 4 %, since memory was on the other one. So a machine should be as large as can be without
//! leaving a memory node. Over Vshmem, ranks in different machines talk through memory: the first rule counts
//! less, and the second stays.

use crate::place;
use crate::topology::Topology;
use serde::Serialize;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::plan::Plan;
use vshmem_placement::request::{Machine, Taken};
use vshmem_placement::rules::{Insist, Memory, Policy, Rules};

/// One way to divide ranks over machines.
#[derive(Debug, Clone, Serialize)]
pub struct Division {
    /// The number of machines.
    pub machines: usize,
    /// vCPUs of each, one for each of its ranks.
    pub cpus: usize,
    /// Memory nodes that the machine which has most of them spans.
    pub nodes: usize,
    /// The part of all pairs of ranks that is in different machines: 0 to 1.
    pub apart: f64,
    /// The reason why such machines can't be had; `None`: they can.
    pub lacks: Option<String>,
}

/// Advice.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// All ways to divide the ranks evenly, the fewest machines first.
    pub divisions: Vec<Division>,
    /// Index of the best.
    pub best: usize,
    /// The reasons, a sentence each.
    pub why: Vec<String>,
}

/// Advises on `ranks` ranks, each with so much memory, on a host of which `reserve` cores of each node are
/// kept back.
pub fn advise(topology: &Topology, ranks: usize, memory: u64, smt: bool, reserve: u32) -> Advice {
    let sizes = (1..=ranks).rev().filter(|cpus| ranks % cpus == 0);
    let divisions: Vec<_> = sizes.map(|cpus| divide(topology, ranks, cpus, memory, smt, reserve)).collect();
    let by_merit = |index: &usize| {
        let division: &Division = &divisions[*index];
        (division.lacks.is_some(), division.nodes, division.machines)
    };
    let best = (0..divisions.len()).min_by_key(by_merit).unwrap_or(0);
    let why = reasons(&divisions, best, ranks);
    Advice { divisions, best, why }
}

fn divide(topology: &Topology, ranks: usize, cpus: usize, memory: u64, smt: bool, reserve: u32) -> Division {
    let (policy, cores, memory_from) = (Policy::NumaFirst, Insist::Strict, Memory::Strict);
    let rules =
        Rules { policy, cores, memory: memory_from, devices: Insist::Preferred, smt, reserve_cores: reserve };
    let memory = memory * cpus as u64;
    let near = CpuSet::default();
    let machine =
        |index| Machine { name: format!("vm{index}"), cpus, memory, page: 0, near: near.clone(), rules };
    let machines: Vec<_> = (0..ranks / cpus).map(machine).collect();
    let pairs = (ranks * (ranks - 1)) as f64;
    let apart = if ranks < 2 { 0.0 } else { (ranks * (ranks - cpus)) as f64 / pairs };
    let placed = place(topology, &machines, &Taken::default());
    let nodes = placed.as_ref().map(widest).unwrap_or(topology.nodes.len());
    Division { machines: machines.len(), cpus, nodes, apart, lacks: placed.err().map(|why| why.to_string()) }
}

fn widest(plan: &Plan) -> usize {
    plan.machines.iter().map(|machine| machine.nodes.len()).max().unwrap_or(0)
}

fn reasons(divisions: &[Division], best: usize, ranks: usize) -> Vec<String> {
    let chosen = &divisions[best];
    if let Some(why) = &chosen.lacks {
        return vec![format!("none can be had: {why}. Fewer ranks, or SMT siblings (--smt), may do")];
    }
    let mut why = Vec::new();
    if let Some(larger) =
        divisions[..best].iter().rev().find(|it| it.nodes > chosen.nodes || it.lacks.is_some())
    {
        let (cpus, nodes) = (larger.cpus, larger.nodes);
        why.push(match &larger.lacks {
            Some(lacks) => format!("machines of {cpus} vCPUs can't be had: {lacks}"),
            None => format!(
                "machines of {cpus} vCPUs would span {nodes} memory nodes, where much of their memory is far"
            ),
        });
    }
    if chosen.nodes == 1 {
        why.push(format!("{} vCPUs and their memory fit on one node", chosen.cpus));
    }
    if chosen.machines > 1 {
        why.push(format!(
            "{:.0} % of all pairs of ranks are in different machines: over Vshmem they talk through memory; over a \
             network, one machine may be faster",
            100.0 * chosen.apart
        ));
    } else if ranks > 1 {
        why.push("all ranks are in one machine, and talk by its own memory".into());
    }
    why
}
