//! Sharing lists of `SEM_UNDO` adjustments with a child ([`crate::pools::lists`]), and handing them over.

use crate::pools::caller::{caller_of, Caller};
use crate::pools::claim::Claim;
use crate::pools::lists::{of, publish, shared, Lent};
use crate::pools::sharers;
use crate::pools::table::{self, POOLS};
use crate::process::gate::{self, Inside};
use crate::process::page::{pack, MAX_POOLS};
use crate::thread::errno::ErrnoGuard;
use crate::thread::interrupted;
use vshmem_ipc::{liveness, sem};
use vshmem_pool::ProcId;
use vshmem_transport::{process, Handle};

/// Has a child of the calling thread, to be made now, share the process's lists in all pools that are open.
/// `None`: there are none, no lock is to be had that a child can have, too, or the caller is a sharer, whose
/// adjustments are not the process's.
#[cold]
pub fn lend() -> Option<Lent> {
    if sharers::is_one() {
        return None;
    }
    let _errno = ErrnoGuard::now();
    let mut lent = [(0, None); MAX_POOLS];
    for index in (0..MAX_POOLS).filter(|index| POOLS[*index].is_open()) {
        let Ok(caller) = caller_of(index) else { continue };
        let Ok(gate) = gate::enter() else { continue };
        let list = begin(&gate, &caller).and_then(|(list, is_new)| {
            // What was mapped of a device can't be lent again: a second child has a list of its own.
            // SAFETY: inside the gate; the process has the lock.
            let lock = unsafe { (*of(index)?.liveness.get()).filter(|lock| is_new || lock.lend()) }?;
            lent[index] = (pack(list, caller.may_go()), Some(lock));
            Some(list)
        });
        drop(gate);
        if let Some(list) = list {
            interrupted::mark(true);
            vshmem_ipc::hand_over(&caller.ctx, list);
        }
    }
    lent.iter().any(|(me, _)| *me != 0).then_some(lent)
}

/// The list that the process shares, and whether it is begun now, as there was none: then the next child has
/// its lock.
fn begin(gate: &Inside, caller: &Caller) -> Option<(ProcId, bool)> {
    let (index, list) = (caller.pool_index(), of(caller.pool_index())?);
    if let Some(me) = shared(index) {
        return Some((me, false));
    }
    let place = &POOLS[index];
    // SAFETY: a caller exists only of an open pool.
    let handle = unsafe { &place.opened().handle };
    let mut claim = Claim::new(handle, Handle::claim_liveness_for_child);
    let started = process::unknown_start(table::started_of(index));
    let take = &mut |slot| claim.take(slot);
    let me = liveness::claim(caller.pool(), place, caller.ctx.member, 0, started, take);
    let Some((me, lock)) = me.zip(claim.taken()) else {
        claim.give_back();
        return None;
    };
    publish(gate, list, pack(me, caller.may_go()), lock);
    Some((me, true))
}

/// Hands over what the calling process has on a set, if it shares a list in the pool.
pub fn hand_over(caller: &Caller, id: i32) {
    if let Some(list) = shared(caller.pool_index()) {
        sem::hand_over(&caller.ctx, id, list);
    }
}
