//! Helpers that scenes under a model checker have in common ([`vshmem_pool::model`]).

use crate::check::{inspect, repair, scratch_for};
use crate::{waiters, Budget, Ctx};
use core::time::Duration;
use std::boxed::Box;
use std::string::ToString;
use std::vec::Vec;
use vshmem_pool::model::{Act, World};

/// Sleepers are woken, or sleep for ever.
pub const WOKEN: Duration = Duration::ZERO;
/// Sleeps end by themselves: death wakes nobody.
pub const LOOKS: Duration = Duration::MAX;

/// A world for so many actors.
pub fn world(actors: usize, naps: Duration) -> World {
    World::new(actors, naps, waiters::forget_last)
}

/// Makes a function the act of a process.
pub fn act<T>(does: impl Fn(&Ctx) -> T + Send + Sync + 'static) -> Act<T> {
    Box::new(does)
}

/// Mends what the dead have left, and asserts that nothing is found wrong then.
pub fn is_in_order(c: &Ctx) {
    repair(c).unwrap();
    // As `vshmem check` has.
    let c = &Ctx { budget: Budget::new(1 << 31), ..c.clone() };
    let mut scratch = std::vec![0; scratch_for(c.pool)];
    let mut found = Vec::new();
    inspect(c, &mut scratch, |f| found.push(f.to_string())).unwrap();
    assert!(found.is_empty(), "{found:?}");
}
