//! Observations: a host and the machines that run there, as the policy sees them.
//!
//! Cores and nodes are indices into the [`Topology`](vshmem_place::topology::Topology).

/// A host over an interval.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// Seconds since the observation before: what shares of time are shares of.
    pub seconds: f64,
    /// The part of the time in which each core ran anything but these machines' vCPUs, the hypervisor under
    /// the host (steal time) included. 1 is a whole processor.
    pub others: Vec<f64>,
    /// Bytes of each node's memory that are free; `None` if that is not known.
    pub free: Vec<Option<u64>>,
    /// The machines.
    pub machines: Vec<Machine>,
}

/// A machine that runs.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// A number that no other machine has, as long as it runs.
    pub key: u64,
    /// Bytes of its memory on each node.
    pub memory: Vec<u64>,
    /// The reason why its memory can't be moved, if it can't.
    pub memory_stays: Option<String>,
    /// The reason why its vCPUs must not be moved, if they must not.
    pub vcpus_stay: Option<String>,
    /// Its vCPUs, in order.
    pub vcpus: Vec<Vcpu>,
}

/// A vCPU.
#[derive(Debug, Clone)]
pub struct Vcpu {
    /// A number that no other vCPU has, as long as it runs: its thread.
    pub key: u64,
    /// Share of the time in which it ran.
    pub run: f64,
    /// Share of the time in which it could have run, and waited for a processor.
    pub wait: f64,
    /// The core on which it ran last; `None` if that is no core of the topology.
    pub core: Option<usize>,
}
