//! Checks of a pool: every invariant that `docs/layout.md` promises is verified while other processes use the
//! pool. Before that, [`repair()`] mends what dead processes have left.
//!
//! What of the pool is allocated (heaps, directory, whose every block is) are gone through under the pool's
//! lock, for everything in them changes under it; then each set and each queue under its own. So nothing is
//! seen half. What may be found on the way without being wrong (a process died a moment ago, one is between
//! two steps that no lock holds together) passes by itself: what is found again and again is damage. A
//! process that dies here holds locks at the most, and has changed nothing.

mod allocations;
pub(crate) mod finding;
mod inspect;
pub(crate) mod participants;
mod repair;

pub use finding::{Finding, Location};
pub use inspect::{inspect, scratch_for};
pub use repair::{repair, Repaired};
