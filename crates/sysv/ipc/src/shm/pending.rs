//! Pending pages: on their way between a segment and the heap while the pool's lock is free, for what takes
//! long. An entry of a short table names them and their owner, so that they are found if that dies, or does
//! not get the lock again.

use crate::{directory as dir, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::{Relaxed, Release};
use vshmem_pool::heap::{Range, Soil};
use vshmem_pool::layout::{PendingPages, ABANDONED};
use vshmem_pool::lock::{Guard, SignalsBlocked};
use vshmem_pool::log::Txn;

/// Enters pages into the table.
pub fn add(c: &Ctx, txn: &mut Txn, range: Range) -> Result<&'static PendingPages, Errno> {
    let pending =
        c.pool.root().pending_pages.iter().find(|l| l.owner.load(Relaxed) == 0).ok_or(Errno::ENOMEM)?;
    txn.put(&pending.owner, c.me.word())?;
    txn.put(&pending.first, range.first.into())?;
    txn.put(&pending.count, range.count.into())?;
    Ok(pending)
}

/// Is it the caller's still? Not if its machine was taken for dead meanwhile.
pub fn is_mine(c: &Ctx, pending: &PendingPages) -> bool {
    pending.owner.load(Relaxed) == c.me.word()
}

/// The lock again, for pending pages. If it is not to be had, the next owner of the lock that needs memory
/// finds the pages in the table.
pub fn lock<'a>(c: &'a Ctx, signals: &SignalsBlocked, pending: &PendingPages) -> Result<Guard<'a>, Errno> {
    dir::lock(c, signals).inspect_err(|_| {
        // Without the lock, for nobody else writes the word of an owner that is not taken for dead.
        let mine = c.me.word();
        let _ = (pending.owner).compare_exchange(mine, ABANDONED, Release, Relaxed);
    })
}

/// Gives pending pages to the heap, of which some may not read as zeros.
pub fn release(c: &Ctx, guard: &Guard, pending: &PendingPages, soil: Soil) -> Result<(), Errno> {
    let word = |w: &vshmem_pool::atomic::AtomicU64| u32::try_from(w.load(Relaxed)).map_err(|_| Errno::EINVAL);
    let mut txn = guard.txn();
    let range = Range { first: word(&pending.first)?, count: word(&pending.count)?, soil };
    c.pool.geometry().pages.free(&mut txn, range)?;
    txn.put(&pending.owner, 0)?;
    txn.commit()?;
    Ok(())
}

/// Gives pending pages of dead processes to the heap, and those that were abandoned. Returns whether there
/// were any.
pub fn reap(c: &Ctx, signals: &SignalsBlocked) -> bool {
    let Ok(guard) = dir::lock(c, signals) else {
        return false;
    };
    let mut found = false;
    for pending in &c.pool.root().pending_pages {
        let owner = pending.owner.load(Relaxed);
        let is_dead = |o| o != c.me && c.owner_is_dead(o);
        if owner == ABANDONED || ProcId::of_word(owner).is_some_and(is_dead) {
            found |= release(c, &guard, pending, Soil::ALL).is_ok();
        }
    }
    found
}
