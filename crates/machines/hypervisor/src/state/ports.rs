//! Ports of a machine for pools that it is granted while it runs.

use serde::{Deserialize, Serialize};

/// A machine's ports for pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// Ports for pools that are granted while it runs.
    pub spare: u32,
    /// The largest pool that fits behind one of them, in bytes; a power of two.
    pub largest: u64,
}

/// Ports that a machine can have: its root bus has 32 slots, and other devices need some.
pub const MAX: u32 = 20;

impl Ports {
    /// A machine's ports by default.
    pub const DEFAULT: Ports = Ports { spare: 6, largest: 2 << 30 };
}
