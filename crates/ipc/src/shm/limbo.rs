//! Pages on their way between a segment and the heap, while the pool's lock is free: what takes long with them is done meanwhile. A place in a
//! short table names them and whose they are, so that they are found if who has them dies, or does not get the lock again.

use crate::{directory as dir, Ctx, Errno, ProcId};
use core::sync::atomic::Ordering::{Relaxed, Release};
use vshmem_pool::heap::Range;
use vshmem_pool::layout::{Limbo, ABANDONED};
use vshmem_pool::lock::{Guard, Quiet};
use vshmem_pool::log::Txn;

/// Notes that pages are on their way, so that they can be found if the caller dies.
pub fn park(c: &Ctx, txn: &mut Txn, range: Range) -> Result<&'static Limbo, Errno> {
    let limbo = c
        .pool
        .root()
        .limbo
        .iter()
        .find(|l| l.owner.load(Relaxed) == 0)
        .ok_or(Errno::ENOMEM)?;
    txn.put(&limbo.owner, c.me.word())?;
    txn.put(&limbo.first, range.first.into())?;
    txn.put(&limbo.count, range.count.into())?;
    Ok(limbo)
}

/// Is it the caller's still? Not if its machine was taken for dead meanwhile.
pub fn is_mine(c: &Ctx, limbo: &Limbo) -> bool {
    limbo.owner.load(Relaxed) == c.me.word()
}

/// The lock again, for what is in limbo. If it is not to be had, whoever has it next and needs room finds the pages there.
pub fn lock<'a>(c: &'a Ctx, quiet: &Quiet, limbo: &Limbo) -> Result<Guard<'a>, Errno> {
    dir::lock(c, quiet).inspect_err(|_| {
        // Without the lock, for nobody else writes the word of one who is not taken for dead.
        let mine = c.me.word();
        let _ = (limbo.owner).compare_exchange(mine, ABANDONED, Release, Relaxed);
    })
}

/// Gives pages in limbo to the heap.
pub fn unpark(c: &Ctx, guard: &Guard, limbo: &Limbo, dirty: bool) -> Result<(), Errno> {
    let word = |w: &core::sync::atomic::AtomicU64| {
        u32::try_from(w.load(Relaxed)).map_err(|_| Errno::EINVAL)
    };
    let mut txn = guard.txn();
    let range = Range {
        first: word(&limbo.first)?,
        count: word(&limbo.count)?,
        dirty,
    };
    c.pool.geometry().pages.free(&mut txn, range)?;
    txn.put(&limbo.owner, 0)?;
    txn.commit()?;
    Ok(())
}

/// Gives back what dead processes had in limbo, and what was abandoned. Returns whether there was something.
pub fn reap(c: &Ctx, quiet: &Quiet) -> bool {
    let Ok(guard) = dir::lock(c, quiet) else {
        return false;
    };
    let mut found = false;
    for limbo in &c.pool.root().limbo {
        let owner = limbo.owner.load(Relaxed);
        let is_dead = |o| o != c.me && c.owner_is_dead(o);
        if owner == ABANDONED || ProcId::of_word(owner).is_some_and(is_dead) {
            found |= unpark(c, &guard, limbo, true).is_ok();
        }
    }
    found
}
