//! Room in machines for pools that they are granted while they run.

use serde::{Deserialize, Serialize};

/// The ports that a machine has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// For pools that are granted while it runs.
    pub spare: u32,
    /// The largest pool that goes into one of those, in bytes; a power of two.
    pub largest: u64,
}

/// The most ports of a machine: there are 32 slots for devices on its root bus, and others need some.
pub const MAX: u32 = 20;

impl Ports {
    /// What a machine has unless something else is asked for.
    pub const DEFAULT: Ports = Ports {
        spare: 6,
        largest: 2 << 30,
    };
}
