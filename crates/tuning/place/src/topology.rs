//! The topology of a host: its cores, caches and memory nodes.

use vshmem_placement::cpuset::CpuSet;

/// The distance of a node from itself, in the units of ACPI's SLIT.
pub const LOCAL: u64 = 10;
/// The distance of two nodes of which the firmware does not say it.
const REMOTE: u64 = 20;

/// A host's cores and memory nodes. Only those that this user may use are in it.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Its source, for people.
    pub source: String,
    /// The cores in hwloc's order: neighbours share caches.
    pub cores: Vec<Core>,
    /// Memory nodes. One may have no cores (CXL).
    pub nodes: Vec<Node>,
    /// Distances of nodes, by their indices in `nodes`; `LOCAL` is near.
    pub distances: Option<Vec<Vec<u64>>>,
}

/// A core.
#[derive(Debug, Clone)]
pub struct Core {
    /// Its logical processors: more than one with SMT.
    pub pus: Vec<u32>,
    /// Its socket, from 0.
    pub package: usize,
    /// The last cache that it shares with other cores, from 0 over the whole host.
    pub cache: usize,
    /// Its memory node: an index into [`Topology::nodes`].
    pub node: usize,
}

/// A memory node.
#[derive(Debug, Clone)]
pub struct Node {
    /// The number that Linux gives it.
    pub number: u32,
    /// Its memory in bytes; `None` if the topology does not say.
    pub memory: Option<u64>,
}

impl Topology {
    /// The distance of node `b`'s memory from the cores of node `a`.
    pub fn distance(&self, a: usize, b: usize) -> u64 {
        match &self.distances {
            Some(all) => all[a][b],
            None if a == b => LOCAL,
            None => REMOTE,
        }
    }

    /// The number of sockets.
    pub fn packages(&self) -> usize {
        self.cores.iter().map(|core| core.package + 1).max().unwrap_or(0)
    }

    /// The most logical processors that a core has.
    pub fn threads(&self) -> usize {
        self.cores.iter().map(|core| core.pus.len()).max().unwrap_or(1)
    }

    /// All logical processors of some cores.
    pub fn pus<'a>(&'a self, cores: impl IntoIterator<Item = &'a usize>) -> CpuSet {
        cores.into_iter().flat_map(|core| self.cores[*core].pus.iter().copied()).collect()
    }

    /// The numbers that Linux gives these nodes.
    pub fn numbers(&self, nodes: impl IntoIterator<Item = usize>) -> CpuSet {
        nodes.into_iter().map(|node| self.nodes[node].number).collect()
    }
}
