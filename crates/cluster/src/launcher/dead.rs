//! Declares machines dead in the pools that they had, so that nobody waits for what their processes held.

use crate::pools;
use crate::state::record::Granted;
use crate::visitor::Visitor;

/// Declares a machine dead in these pools. `let_go` is called with each of them.
pub fn declare_in(pools: &[Granted], machine: &str, let_go: &mut dyn FnMut(&Granted)) {
    for pool in pools {
        declare(pool, machine);
        let_go(pool);
    }
}

/// Declares a machine dead in a pool. A pool that is damaged, full or gone has no use for the news.
pub fn declare(pool: &Granted, machine: &str) {
    for visitor in visitors(pool) {
        let is_known = pool
            .member
            .is_some_and(|member| visitor.declare_member_dead(member));
        // The back end does so for machines that it serves.
        if !is_known && !pool.doorbell {
            visitor.declare_only_dead(machine);
        }
    }
}

/// The pool, open, if it is there and whole.
pub fn visitors(pool: &Granted) -> impl Iterator<Item = Visitor> {
    let path = pool.path.to_string_lossy();
    let there = pool.path.exists();
    let found = pools::find(Some(&path)).unwrap_or_default();
    let found = found.into_iter().filter(move |_| there);
    found.filter_map(|pool| Visitor::enter(&pool).ok())
}
