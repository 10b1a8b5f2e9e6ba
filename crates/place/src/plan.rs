//! A placement.

use crate::cpuset::CpuSet;
use serde::Serialize;

/// Where all machines run.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// In the order in which they were asked for.
    pub machines: Vec<Placed>,
}

/// Where a machine runs.
#[derive(Debug, Clone, Serialize)]
pub struct Placed {
    /// The machine's name.
    pub name: String,
    /// Its memory in bytes.
    pub memory: u64,
    /// Where each vCPU may run, in the order of vCPUs.
    pub vcpus: Vec<CpuSet>,
    /// Where the hypervisor's other threads may run.
    pub emulator: CpuSet,
    /// Memory nodes that its memory comes from, by Linux's numbers. Empty: any.
    pub nodes: CpuSet,
    /// Whether memory may come from no others.
    pub bound: bool,
    /// What the machine is shown of it.
    pub guest: Guest,
    /// Why it runs there.
    pub why: Vec<String>,
    /// What was asked for and could not be had.
    pub fallbacks: Vec<String>,
}

/// The topology that a machine sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Guest {
    /// Sockets, cores of each, and threads of each core.
    pub sockets: usize,
    /// Cores of a socket.
    pub cores: usize,
    /// Threads of a core.
    pub threads: usize,
    /// Its memory nodes; empty if it has one.
    pub nodes: Vec<GuestNode>,
}

/// A memory node of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
