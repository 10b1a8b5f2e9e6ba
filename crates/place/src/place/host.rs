//! What is free while machines are placed.

use crate::topology::{Core, Node, Topology};
use vshmem_cluster::placement::request::{Machine, Taken};

/// A host, and what machines have of it already.
pub struct Host<'a> {
    pub topology: &'a Topology,
    /// The state of each core.
    pub cores: Vec<State>,
    /// Memory left on each node, in bytes; `None` if that is not known.
    pub memory: Vec<Option<u64>>,
    /// vCPUs that run on any core of each socket.
    pub floating: Vec<usize>,
}

/// What a core is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Free,
    /// The host's own.
    Reserved,
    /// A vCPU, or several that are SMT siblings, run there, or others do.
    Taken,
}

impl<'a> Host<'a> {
    /// A host of which others have something, with the first `reserve` cores of each node kept back.
    pub fn new(topology: &'a Topology, reserve: usize, taken: &Taken) -> Host<'a> {
        let mut kept = vec![0; topology.nodes.len()];
        let state = |core: &Core| {
            kept[core.node] += 1;
            match core.pus.iter().any(|pu| taken.cpus.contains(*pu)) {
                true => State::Taken,
                false if kept[core.node] <= reserve => State::Reserved,
                false => State::Free,
            }
        };
        let left = |node: &Node| {
            let taken = taken.memory.get(&node.number).copied().unwrap_or(0);
            node.memory.map(|all| all.saturating_sub(taken))
        };
        Host {
            topology,
            cores: topology.cores.iter().map(state).collect(),
            memory: topology.nodes.iter().map(left).collect(),
            floating: vec![0; topology.packages()],
        }
    }

    /// The indices of all cores.
    pub fn all(&self) -> Vec<usize> {
        (0..self.cores.len()).collect()
    }

    /// The indices of cores in a state.
    pub fn cores_that_are(&self, state: State) -> impl Iterator<Item = usize> + '_ {
        self.cores.iter().enumerate().filter(move |(_, it)| **it == state).map(|(core, _)| core)
    }

    /// Whether a node is one that a machine's devices are near to. If they are near to none, all are.
    pub fn is_near(&self, machine: &Machine, node: usize) -> bool {
        machine.near.is_empty() || machine.near.contains(self.topology.nodes[node].number)
    }

    /// The free cores of a node.
    pub fn free(&self, node: usize) -> Vec<usize> {
        self.cores_that_are(State::Free).filter(|core| self.topology.cores[*core].node == node).collect()
    }

    /// How many vCPUs some cores take.
    pub fn room(&self, cores: &[usize], smt: bool) -> usize {
        cores.iter().map(|core| if smt { self.topology.cores[*core].pus.len() } else { 1 }).sum()
    }

    /// The first of these cores that hold so many vCPUs together.
    pub fn enough(&self, cores: &[usize], vcpus: usize, smt: bool) -> Option<Vec<usize>> {
        let mut taken = Vec::new();
        let mut room = 0;
        for core in cores {
            if room >= vcpus {
                break;
            }
            room += self.room(&[*core], smt);
            taken.push(*core);
        }
        (room >= vcpus).then_some(taken)
    }

    /// Whether a node has this much memory left, as far as that is known.
    pub fn has_memory(&self, node: usize, bytes: u64) -> bool {
        self.memory[node].is_none_or(|left| left >= bytes)
    }

    /// Takes cores, and memory as far as there is some.
    pub fn take(&mut self, cores: &[usize], memory: &[(usize, u64)]) {
        for core in cores {
            self.cores[*core] = State::Taken;
        }
        for (node, bytes) in memory {
            if let Some(left) = &mut self.memory[*node] {
                *left = left.saturating_sub(*bytes);
            }
        }
    }
}
