//! The error that a machine can't be placed, with its reasons.

use std::fmt;
use vshmem_base::size;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::request::{in_pages, vcpus};

/// A machine can't be placed as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaceError {
    /// There are too few free cores.
    Cores {
        /// The machine.
        machine: String,
        /// Its vCPUs.
        cpus: usize,
        /// The number of vCPUs that could get a core of their own.
        free: usize,
    },
    /// Its cores' nodes have too little memory.
    Memory {
        /// The machine.
        machine: String,
        /// The memory that it needs, in bytes.
        memory: u64,
        /// The size of the reserved pages that this comes in, in bytes; 0: any memory will do.
        page: u64,
        /// Bytes that are left on the nodes of its cores.
        left: u64,
    },
    /// Its vCPUs do not run near to its devices.
    Devices {
        /// The machine.
        machine: String,
        /// The memory nodes that its devices are near to.
        near: CpuSet,
    },
    /// All cores have vCPUs, and none is left for the hypervisor's other threads.
    Emulator {
        /// The machine.
        machine: String,
    },
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Cores { machine, cpus, free } => {
                write!(f, "{machine} needs cores for {}, and there are free ones for {free}", vcpus(*cpus))
            }
            PlaceError::Memory { machine, memory, page, left } => write!(
                f,
                "{machine} needs {}{}, and the nodes of its cores have {} left",
                size::show(*memory),
                in_pages(*page),
                size::show(*left)
            ),
            PlaceError::Devices { machine, near } => {
                write!(
                    f,
                    "the devices of {machine} are near node {near}, where there is no room for all its vCPUs"
                )
            }
            PlaceError::Emulator { machine } => {
                write!(f, "all cores have vCPUs: none is left for the emulator threads of {machine}")
            }
        }
    }
}

impl std::error::Error for PlaceError {}
