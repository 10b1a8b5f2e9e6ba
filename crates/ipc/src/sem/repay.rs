//! What the dead owe: their `SEM_UNDO` adjustments applied (`exit_sem` in Linux), and the queue served after
//! that.

use super::remove;
use super::serve::serve;
use super::set::{Beside, Set};
use super::undo::{owner_if_gone, records, sweep, take_back, Gone};
use crate::{directory as dir, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::Kind;
use vshmem_pool::lock::{Guard, SignalsBlocked};

/// Applies and forgets all adjustments of a process that is gone (`exit_sem` in Linux), then serves the
/// queue. Its record stays, empty.
pub fn repay(c: &Ctx, set: &Set, signals: &SignalsBlocked, guard: &Guard, who: ProcId) -> Result<(), Errno> {
    if take_back(c, set, guard, who)? {
        serve(c, set, signals, guard)?;
    }
    Ok(())
}

/// Applies what processes that are gone have in records, which stay, empty. Returns whether there was
/// something.
pub fn repay_recorded(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    gone: Gone,
) -> Result<bool, Errno> {
    let mut any = false;
    for (at, record) in records(c, set) {
        if let Some(owner) = owner_if_gone(c, set, at, record, gone) {
            repay(c, set, signals, guard, owner)?;
            any = true;
        }
    }
    Ok(any)
}

/// Applies everything that processes that are gone have on a set.
pub fn repay_all(c: &Ctx, set: &Set, signals: &SignalsBlocked, guard: &Guard) -> Result<(), Errno> {
    let mut alive = None;
    let mut any = false;
    for word in set.words(c)?.iter().skip(1).step_by(2) {
        // Many semaphores of one owner follow upon each other, as a rule.
        let owner = Beside::of(word.load(Relaxed)).map(|b| b.owner);
        let Some(owner) = owner.filter(|owner| alive != Some(*owner)) else {
            continue;
        };
        if Gone::Now.is(c, owner) {
            repay(c, set, signals, guard, owner)?;
            any = true;
        } else {
            alive = Some(owner);
        }
    }
    any |= repay_recorded(c, set, signals, guard, Gone::Now)?;
    if any {
        sweep(c, set, signals);
    }
    // A process that could not be asked about may be gone.
    if c.budget.is_spent() {
        return Err(Errno::EIDRM);
    }
    Ok(())
}

/// Takes from a set what a dead process has there.
pub(crate) fn reap_process(c: &Ctx, signals: &SignalsBlocked, index: u32, dead: ProcId) {
    let Ok(set) = Set::at(c, index) else { return };
    if set.id == 0 {
        return;
    }
    let Ok(guard) = set.lock(c, signals) else {
        return;
    };
    if dir::is_dying(&set.entry.head) {
        drop(guard);
        let _ = remove::finish_removal(c, signals, index, set.id);
    } else if set.still() {
        let _ = repay(c, &set, signals, &guard, dead);
        sweep(c, &set, signals);
        // What was not seen is left to who looks next.
        if !c.budget.is_spent() {
            c.pool.untouch(dead, Kind::Sem.reference(index));
        }
    }
}
