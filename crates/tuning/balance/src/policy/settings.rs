//! The policy's constants.

/// The policy's constants.
#[derive(Debug, Clone)]
pub struct Settings {
    /// An idle vCPU is active from this share of the time on, waiting included.
    pub active_from: f64,
    /// An active vCPU is idle below this share.
    pub idle_below: f64,
    /// Share of a vCPU's time that waits for memory, were all of it local: what a step of distance costs.
    pub stall: f64,
    /// Seconds that a vCPU loses by a move, until its caches are warm.
    pub refill: f64,
    /// Two places differ only if this much of a local access lies between them.
    pub least_gain: f64,
    /// The part of its time that a vCPU gains at the least by a move to a less full node.
    pub imbalance: f64,
    /// vCPUs that have to leave their core in one step.
    pub moves: usize,
    /// Bytes of memory that are moved in a second.
    pub memory_rate: f64,
    /// Seconds of copying that a byte costs.
    pub copy: f64,
    /// Seconds within which moved memory must pay.
    pub horizon: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            active_from: 0.10,
            idle_below: 0.03,
            stall: 0.10,
            refill: 0.005,
            least_gain: 0.05,
            imbalance: 0.10,
            moves: 256,
            memory_rate: 256.0 * 1024.0 * 1024.0,
            // A copy reads and writes at about 2 GiB/s, while the page is away from its machine.
            copy: 1.0 / (2u64 << 30) as f64,
            horizon: 30.0,
        }
    }
}
