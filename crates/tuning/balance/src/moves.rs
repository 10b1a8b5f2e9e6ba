//! Moves of vCPUs and of memory, as the policy decides on them.

use std::fmt;
use vshmem_place::topology::{Core, Topology};

/// The place where a vCPU may run. Cores and nodes are indices into the topology.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// Any core on which the machine may run at all.
    #[default]
    Anywhere,
    /// Any core of a node.
    Node(usize),
    /// One core.
    Core(usize),
}

impl Place {
    /// The logical processors of the place.
    pub fn processors(self, topology: &Topology) -> Vec<u32> {
        let inside = |(index, core): (usize, &Core)| match self {
            Place::Anywhere => true,
            Place::Node(node) => core.node == node,
            Place::Core(one) => index == one,
        };
        let cores = topology.cores.iter().enumerate().filter(|(index, core)| inside((*index, core)));
        cores.flat_map(|(_, core)| core.pus.iter().copied()).collect()
    }
}

/// The indices of a vCPU in the observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcpuIndex {
    /// Its machine's.
    pub machine: usize,
    /// Its own among the vCPUs of that machine.
    pub vcpu: usize,
}

/// A new place for a vCPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pin {
    /// The vCPU.
    pub index: VcpuIndex,
    /// The place where it may run.
    pub to: Place,
    /// Whether it has to leave the core that it ran on last.
    pub displaces: bool,
    /// The reason.
    pub why: Why,
}

/// A move of a machine's memory from one node to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Migration {
    /// The machine, as an index into the observation.
    pub machine: usize,
    /// The node that has it.
    pub from: usize,
    /// The node that gets it.
    pub to: usize,
    /// Bytes that go in this step.
    pub bytes: u64,
    /// Seconds a second that the machine's vCPUs gain once all has gone.
    pub gain: f64,
}

/// The reason for a vCPU's new place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// It has become active, and gets a core.
    Active,
    /// It has become idle: its core is free for others.
    Idle,
    /// It shared a core while another was free.
    Waits,
    /// It is nearer to its memory there: by how much of a local access each of its accesses is shorter.
    Near(f64),
    /// It changes places with another, and both together are nearer to their memory by this.
    Swap(f64),
    /// All nodes are full, and that one is less so.
    LessFull,
    /// Other programs use its core.
    Others,
    /// Its node has more active vCPUs than cores, which share them.
    Shares,
    /// Its node has a core for each vCPU again.
    Settles,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |gain: &f64| 100.0 * gain;
        match self {
            Why::Active => f.write_str("it has become active"),
            Why::Idle => f.write_str("it is idle: its core is free for others"),
            Why::Waits => f.write_str("it shared a core, and this one is free"),
            Why::Near(gain) => write!(f, "its memory is nearer, by {:.0} % of a local access", percent(gain)),
            Why::Swap(gain) => write!(
                f,
                "it changes places with another vCPU: their memory is nearer, by {:.0} % of a local access",
                percent(gain)
            ),
            Why::LessFull => f.write_str("all nodes are full, and this one is less so"),
            Why::Others => f.write_str("other programs use its core"),
            Why::Shares => f.write_str("the node has more active vCPUs than cores: they share them"),
            Why::Settles => f.write_str("the node has a core for each active vCPU"),
        }
    }
}

/// A move that a machine needs and can't have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The machine's name.
    pub machine: String,
    /// The move, and what stands in its way.
    pub text: String,
}
