//! What an enemy tells by several words that belong together: lists that lead back to themselves, numbers
//! whose product is out of bounds, names of those who live, stand still and are dead where they have nothing,
//! and ids that are nearly others.

mod circles;
mod names;
mod numbers;
mod owners;

use circles::*;
pub use names::{Lie, Names};
use numbers::*;
use owners::*;
use vshmem_pool::Mem;

/// How to tell one, by the order of their numbers.
type Teller = fn(&Names, Lie) -> Option<()>;
const TELLERS: [Teller; 20] = [
    waiters_in_a_circle,
    undo_records_in_a_circle,
    holds_in_a_circle,
    a_chain_in_a_circle,
    free_entries_in_a_circle,
    free_blocks_in_a_circle,
    retired_rings_in_a_circle,
    a_set_of_very_many,
    a_ring_of_very_many,
    all_entries_used,
    known_everywhere,
    a_lock_is_held,
    an_owner,
    a_mover,
    nearly_another_id,
    ends_far_apart,
    a_wait_for_very_much,
    a_committed_log,
    pending_pages_are_full,
    much_is_backed,
];

/// Tells a lie, as far as the pool has room for it.
pub fn tell(lie: Lie, mem: Mem) {
    let teller = TELLERS[usize::from(lie.kind) % TELLERS.len()];
    let _ = teller(&Names::of(mem), lie);
}
