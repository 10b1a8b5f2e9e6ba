//! The costs of the simulator's hardware and hypervisor.

use vshmem_place::topology::LOCAL;

/// Costs. A thread alone on a core, near its memory, without a hypervisor, has the speed 1.
#[derive(Debug, Clone)]
pub struct Model {
    /// Seconds that the hypervisor adds to each second of a vCPU.
    pub hypervisor: f64,
    /// Share of a thread's time that waits for memory, were all of it local and nobody else there.
    pub stall: f64,
    /// Share of a node's memory bandwidth that a running thread uses.
    pub bandwidth: f64,
    /// Seconds that a vCPU loses when it comes under another last-level cache.
    pub refill: f64,
    /// Speed of a thread whose SMT sibling runs.
    pub sibling: f64,
    /// Times in a second that the scheduler moves a running vCPU to another free core for no reason: 0 with
    /// Linux; a credit scheduler takes any.
    pub wander: f64,
}

impl Model {
    /// Seconds that a second of work takes, if accesses go so far (in the units of SLIT) to nodes whose
    /// memory is used by so many threads, each with this share of the accesses.
    pub fn stretch(&self, hypervisor: bool, accesses: impl Iterator<Item = (f64, u64, f64)>) -> f64 {
        let mut slower = 0.0;
        for (share, distance, users) in accesses {
            slower += share * (distance as f64 / LOCAL as f64 - 1.0 + self.queue(users));
        }
        1.0 + if hypervisor { self.hypervisor } else { 0.0 } + self.stall * slower
    }

    /// The time that an access waits for memory that so many threads use: the mean wait of an M/M/1 queue, in
    /// service times. Nothing is served faster than at nine tenths of the bandwidth.
    fn queue(&self, users: f64) -> f64 {
        let used = (self.bandwidth * users).min(0.9);
        used / (1.0 - used)
    }
}

impl Default for Model {
    /// A Linux host of today. Its costs are assumptions, not fitted.
    fn default() -> Model {
        Model { hypervisor: 0.03, stall: 0.15, bandwidth: 0.01, refill: 0.003, sibling: 0.62, wander: 0.0 }
    }
}
