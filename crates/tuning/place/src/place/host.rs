//! The host's cores and memory that are free while machines are placed.

use crate::topology::{Core, Node, Topology};
use std::collections::BTreeMap;
use vshmem_placement::request::{Machine, Taken};

/// A host, and the cores and memory of it that are free.
pub struct HostState<'a> {
    pub topology: &'a Topology,
    /// The state of each core.
    pub cores: Vec<CoreState>,
    /// Memory left on each node, in bytes; `None` if that is not known.
    memory: Vec<Option<u64>>,
    /// Bytes left on each node of the host's reserved pages, by their size in bytes, as far as that is known.
    pages: BTreeMap<u64, Vec<Option<u64>>>,
    /// vCPUs that run on any core of each socket.
    pub floating: Vec<usize>,
}

/// The state of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreState {
    Free,
    /// The host's own.
    Reserved,
    /// A vCPU, or several that are SMT siblings, run there, or others do.
    Taken,
}

impl<'a> HostState<'a> {
    /// A host of which others have something, with the first `reserve` cores of each node kept back.
    pub fn new(topology: &'a Topology, reserve: usize, taken: &Taken) -> HostState<'a> {
        let mut kept = vec![0; topology.nodes.len()];
        let state = |core: &Core| {
            kept[core.node] += 1;
            match core.pus.iter().any(|pu| taken.cpus.contains(*pu)) {
                true => CoreState::Taken,
                false if kept[core.node] <= reserve => CoreState::Reserved,
                false => CoreState::Free,
            }
        };
        let left = |node: &Node| {
            let taken = taken.memory.get(&node.number).copied().unwrap_or(0);
            node.memory.map(|all| all.saturating_sub(taken))
        };
        let of_pages = |left: &BTreeMap<u32, u64>| {
            let of = |node: &Node| Some(left.get(&node.number).copied().unwrap_or(0));
            topology.nodes.iter().map(of).collect()
        };
        HostState {
            topology,
            pages: taken.pages_left.iter().map(|(size, left)| (*size, of_pages(left))).collect(),
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
    pub fn cores_that_are(&self, state: CoreState) -> impl Iterator<Item = usize> + '_ {
        self.cores.iter().enumerate().filter(move |(_, it)| **it == state).map(|(core, _)| core)
    }

    /// Whether a node is one that a machine's devices are near to. If they are near to none, all are.
    pub fn is_near(&self, machine: &Machine, node: usize) -> bool {
        machine.near.is_empty() || machine.near.contains(self.topology.nodes[node].number)
    }

    /// The free cores of a node.
    pub fn free(&self, node: usize) -> Vec<usize> {
        self.cores_that_are(CoreState::Free).filter(|core| self.topology.cores[*core].node == node).collect()
    }

    /// The number of vCPUs that some cores take.
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

    /// The number of memory nodes.
    pub fn nodes(&self) -> usize {
        self.memory.len()
    }

    /// Bytes that a node has left of the memory that a machine's comes from; `None` if that is not known.
    pub fn left(&self, machine: &Machine, node: usize) -> Option<u64> {
        match machine.page {
            0 => self.memory[node],
            size => self.pages.get(&size).and_then(|left| left[node]),
        }
    }

    /// Whether a node has this much left of the memory that a machine's comes from, as far as that is known.
    pub fn has_memory(&self, machine: &Machine, node: usize, bytes: u64) -> bool {
        self.left(machine, node).is_none_or(|left| left >= bytes)
    }

    /// Takes cores for a machine, and memory as far as there is some.
    pub fn take(&mut self, machine: &Machine, cores: &[usize], memory: &[(usize, u64)]) {
        for core in cores {
            self.cores[*core] = CoreState::Taken;
        }
        let left = match machine.page {
            0 => Some(&mut self.memory),
            size => self.pages.get_mut(&size),
        };
        let Some(left) = left else { return };
        for (node, bytes) in memory {
            if let Some(left) = &mut left[*node] {
                *left = left.saturating_sub(*bytes);
            }
        }
    }
}
