//! The seats of a barrier: who takes part, and whose place may be taken.

use super::head::{Head, ARRIVALS};
use crate::pools::caller::Caller;
use crate::pools::table::POOLS;
use core::sync::atomic::{AtomicU64, Ordering::*};
use vshmem_pool::{Kernel, ProcId};

/// Is the party of that word dead? Not the caller itself, and no empty seat.
pub fn is_dead(caller: &Caller, word: u64) -> bool {
    ProcId::of_word(word).is_some_and(|party| {
        party != caller.ctx.me && caller.pool().owner_is_dead(caller.ctx.kernel, caller.ctx.member, party)
    })
}

/// Takes a free seat, or that of a party that is dead.
pub fn take_seat(caller: &Caller, shared: &Head, parties: u32) -> Option<u32> {
    let seats = &shared.seats[..parties as usize];
    let free = seats.iter().position(|seat| take(caller, shared, seat));
    free.map(|seat| seat as u32)
}

/// Looks at a seat that changes meanwhile: a party that leaves it changes it once, and one that is faster
/// takes it.
const LOOKS: u32 = 4;

/// Takes this seat if it is free, or its party is dead.
fn take(caller: &Caller, shared: &Head, seat: &AtomicU64) -> bool {
    for _ in 0..LOOKS {
        let old = seat.load(Acquire);
        if old != 0 {
            if !is_dead(caller, old) {
                return false;
            }
            // A party that closes the barrier and ends is dead, too, but not in its seat.
            if seat.load(Acquire) != old {
                continue;
            }
            // First: a party that has the seat may arrive, and must not be counted twice.
            begin_anew(caller, shared);
        }
        let mine = caller.ctx.me.word();
        if seat.compare_exchange(old, mine, AcqRel, Relaxed).is_ok() {
            return true;
        }
    }
    false
}

/// Begins a new round, if somebody has arrived in this one.
fn begin_anew(caller: &Caller, shared: &Head) {
    let phase = !u64::from(u32::MAX);
    let next = |old: u64| u64::from((old as u32 & !(ARRIVALS as u32)).wrapping_add(1 << 16));
    let update = shared
        .state
        .fetch_update(AcqRel, Acquire, |old| (old & ARRIVALS != 0).then(|| old & phase | next(old)));
    if update.is_ok() {
        POOLS[caller.pool_index()].wake(&shared.turn, u32::MAX >> 1);
    }
}
