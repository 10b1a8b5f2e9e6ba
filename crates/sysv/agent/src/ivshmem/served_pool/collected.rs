//! The metrics of a pool as they were collected last, and the time that this took.

use crate::metrics::Pool;
use std::time::{Duration, Instant};

/// The metrics of a pool are collected for at most one part in this many of the time: collecting takes up to
/// some tenths of a second, by the pool's contents, and the loop's other work waits meanwhile.
const MAX_SHARE: u32 = 10;

/// The metrics that were collected last.
pub struct Collected {
    at: Instant,
    took: Duration,
    metrics: Pool,
}

impl Collected {
    /// Collects metrics.
    pub fn by(collect: impl FnOnce() -> Pool) -> Collected {
        let begun = Instant::now();
        let metrics = collect();
        Collected { at: Instant::now(), took: begun.elapsed(), metrics }
    }

    /// Whether collecting them again now would take more than its share of the time.
    pub fn is_recent(&self) -> bool {
        Instant::now() < self.at + self.took * MAX_SHARE
    }

    /// The time at which they were collected.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// The metrics.
    pub fn metrics(&self) -> &Pool {
        &self.metrics
    }
}
