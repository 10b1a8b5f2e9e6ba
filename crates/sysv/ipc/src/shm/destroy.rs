//! Destroying removed segments with their last attachment, and cleaning up after dead processes.

use super::extent::range_of;
use super::holds::{self, Heirs, Off, FEW};
use super::{kept, pending, SHM_DEST};
use crate::directory as dir;
use crate::{Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::heap::Range;
use vshmem_pool::layout::{Head, Hold, Kind, Shm};
use vshmem_pool::lock::{Guard, SignalsBlocked};

/// Was the segment removed, while somebody had it attached?
pub fn is_removed(head: &Head) -> bool {
    head.mode.load(Relaxed) & SHM_DEST != 0
}

/// Whether a removed segment is still there depends on who of those that have it attached is alive. Returns
/// whether it found something of the dead.
pub fn reap_if_removed(c: &Ctx, signals: &SignalsBlocked, id: i32) -> bool {
    let found = dir::lookup(c, Kind::Shm, id);
    found.is_ok_and(|(_, head)| is_removed(head)) && reap_one(c, signals, id).unwrap_or(false)
}

/// Takes attachments off a segment, which is destroyed if it is removed and those were the last.
pub fn drop_holds(
    c: &Ctx,
    signals: &SignalsBlocked,
    id: i32,
    told: Option<u64>,
    take: impl FnOnce(&Guard, &'static Shm, u32) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let guard = dir::lock(c, signals)?;
    let (index, head) = dir::lookup(c, Kind::Shm, id)?;
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    take(&guard, shm, index)?;
    if is_unmapped(shm) && is_removed(head) {
        destroy(c, signals, guard, index, told)?;
    }
    Ok(())
}

/// Does nobody have it attached, nor a mapping of it that is not counted?
pub fn is_unmapped(shm: &Shm) -> bool {
    shm.nattch.load(Relaxed) == 0 && shm.holds.load(Relaxed) == 0
}

/// Frees a segment that is removed and not attached. Its memory goes back outside of the lock. `told`: so
/// many bytes of it were mapped here.
pub fn destroy(
    c: &Ctx,
    signals: &SignalsBlocked,
    guard: Guard,
    index: u32,
    told: Option<u64>,
) -> Result<(), Errno> {
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    let told = c.kernel.told(shm.head.id.load(Relaxed) as i32).or(told);
    let range = range_of(c, shm).ok_or(Errno::EINVAL)?;
    let mut txn = guard.txn();
    dir::unhash(c, &mut txn, Kind::Shm, index)?;
    dir::retire(c, &mut txn, Kind::Shm, index)?;
    let total = &c.pool.kind_root(Kind::Shm).total;
    txn.put(total, total.load(Relaxed).saturating_sub(range.count.into()))?;
    let fate = kept::fate(c, range);
    if !matches!(fate, kept::Fate::Returned) {
        let is_kept = matches!(fate, kept::Fate::Kept);
        c.pool.geometry().pages.free(&mut txn, Range::new(range.first, range.count, is_kept))?;
        if is_kept {
            let kept = &c.pool.root().kept;
            txn.put(kept, kept.load(Relaxed).saturating_add(range.count.into()))?;
        }
        txn.commit()?;
        return Ok(());
    }
    let Ok(pending) = pending::add(c, &mut txn, range) else {
        // There is no entry free for them: the pages go back as they are, and are zeroed when they are used
        // again.
        c.pool.geometry().pages.free(&mut txn, range)?;
        txn.commit()?;
        return Ok(());
    };
    txn.commit()?;
    drop(guard);
    let soil = kept::give_back(c, signals, range, told);
    // Without the lock it is destroyed too: others find the pages.
    match pending::lock(c, signals, pending) {
        Ok(guard) if pending::is_mine(c, pending) => pending::release(c, &guard, pending, soil),
        _ => Ok(()),
    }
}

/// Takes the attachments of dead processes from all removed segments. Returns whether there was something.
pub fn reap_removed(c: &Ctx, signals: &SignalsBlocked) -> bool {
    let mut any = false;
    for (_, head) in dir::used(c, Kind::Shm).filter(|(_, head)| is_removed(head)) {
        if signals.has_failed() {
            break;
        }
        any |= reap_if_removed(c, signals, head.id.load(Acquire) as i32);
    }
    any
}

/// Frees removed segments that only heirs had, and have no more.
pub fn reap_inherited(c: &Ctx, signals: &SignalsBlocked) {
    for (index, head) in dir::used(c, Kind::Shm).filter(|(_, head)| is_removed(head)) {
        let is_unattached = |shm: &Shm| shm.nattch.load(Relaxed) == 0;
        if !signals.has_failed() && c.shm(index).is_some_and(is_unattached) {
            reap_if_removed(c, signals, head.id.load(Acquire) as i32);
        }
    }
}

/// Takes the attachments of dead processes from a segment. Returns whether there was something.
///
/// # Errors
/// The lock was not to be had.
pub fn reap_one(c: &Ctx, signals: &SignalsBlocked, id: i32) -> Result<bool, Errno> {
    let dropped = drop_dead_holds(c, signals, id)?;
    Ok(dropped | destroy_unattached(c, signals, id)?)
}

fn drop_dead_holds(c: &Ctx, signals: &SignalsBlocked, id: i32) -> Result<bool, Errno> {
    let guard = dir::lock(c, signals)?;
    let found = dir::lookup(c, Kind::Shm, id).map(|(index, _)| (index, c.shm(index)));
    let Ok((index, Some(shm))) = found else {
        return Ok(false);
    };
    // One step for each record, kept or dropped: a list that leads back to itself comes to an end too.
    let dropped = holds::drop_dead_among(c, &guard, shm, index, holds::MOST_RECORDS);
    Ok(dropped.unwrap_or(false))
}

/// Destroys a removed segment that nobody has attached: the process that dropped the last attachment may have
/// died just then.
fn destroy_unattached(c: &Ctx, signals: &SignalsBlocked, id: i32) -> Result<bool, Errno> {
    let guard = dir::lock(c, signals)?;
    let Ok((index, head)) = dir::lookup(c, Kind::Shm, id) else {
        return Ok(false);
    };
    let unattached = c.shm(index).is_some_and(is_unmapped);
    Ok(unattached && is_removed(head) && destroy(c, signals, guard, index, None).is_ok())
}

/// Removes what a dead process holds of a segment.
pub fn reap_process(c: &Ctx, signals: &SignalsBlocked, index: u32, dead: ProcId) {
    // Most of very many are attached by nobody. What the dead did under the lock is done if that is free.
    let is_free = dead != c.me && c.pool.root().lock.load(Acquire) == 0;
    let is_nobodys = |shm: &Shm| shm.holds.load(Acquire) == 0;
    let shm = c.pool.shm(index); // unpaid
    if is_free && shm.is_none_or(is_nobodys) {
        return;
    }
    let id = c.head(Kind::Shm, index).map_or(0, |h| h.id.load(Acquire));
    let all = Off::all(match (dead == c.me, c.kernel.has_heirs()) {
        (false, _) => Heirs::Unknown,
        (true, true) => Heirs::Suspected,
        (true, false) => Heirs::None,
    });
    let _ = drop_holds(c, signals, id as i32, None, |guard, shm, index| {
        if dead == c.me {
            holds::drop_dead_among(c, guard, shm, index, FEW)?;
        }
        let has = |hold: &Hold| hold.count.load(Relaxed) > 0;
        holds::take_from(c, guard, (shm, index), dead, |hold| has(hold).then_some(all))
    });
}
