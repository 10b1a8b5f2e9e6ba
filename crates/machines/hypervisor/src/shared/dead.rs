//! The declaration of machines as dead in the pools that they had, so that no process waits for their locks
//! and objects.

use crate::state::record::Granted;
use vshmem_inspect::client::Client;
use vshmem_inspect::pools;

/// Declares a machine dead in these pools, and calls `release` with each of them.
pub fn declare_in(pools: &[Granted], machine: &str, release: &mut dyn FnMut(&Granted)) {
    for pool in pools {
        declare(pool, machine);
        release(pool);
    }
}

/// Declares a machine dead in a pool. A pool that is damaged, full or gone is skipped.
pub fn declare(pool: &Granted, machine: &str) {
    for client in clients(pool) {
        let is_known = pool.member.is_some_and(|member| client.declare_member_dead(member));
        // The back end does so for machines that it serves.
        if !is_known && !pool.doorbell {
            client.declare_only_dead(machine);
        }
    }
}

/// A client of the pool, if it exists and can be opened.
pub fn clients(pool: &Granted) -> impl Iterator<Item = Client> {
    let path = pool.path.to_string_lossy();
    let there = pool.path.exists();
    let found = pools::find(Some(&path)).unwrap_or_default();
    let found = found.into_iter().filter(move |_| there);
    found.filter_map(|pool| Client::join(&pool).ok())
}
