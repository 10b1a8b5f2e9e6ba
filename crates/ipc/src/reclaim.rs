//! Giving the memory of removed segments back to the host while machines run. A machine can't: it sees the pool as a device's memory, so
//! what it removes stays in the heap as pages that may not read as zeros. Whoever has the pool as a file empties them here.
//!
//! The pages stay in the heap all the time, and are emptied under the pool's lock, a little at a time: so nobody can be taking them, a
//! request never fails because they are away, and a death at any moment leaves pages that may not read as zeros, as they were.
//! How far a piece is emptied already, its holes say.

use crate::{directory as dir, Ctx, Errno};
use core::sync::atomic::Ordering::Relaxed;
use vshmem_pool::lock::Quiet;

/// Pieces of less than 2^5 pages, 128 KiB, stay as they are: they are what is kept for the next small segment.
const LEAST: u32 = 5;

/// What a [`step`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to give back.
    Nothing,
    /// So many bytes were emptied at the most; there may be more.
    Emptied(u64),
    /// The memory can't be given back.
    Impossible,
}

/// Empties `most` bytes of one free piece, at the most. `data` tells where in a range (offset, length) the first memory is that may not
/// be empty; `None`: it reads as zeros. It must take [`vshmem_pool::Kernel::release`] into account.
pub fn step(c: &Ctx, most: u64, data: impl Fn(u64, u64) -> Option<u64>) -> Result<Step, Errno> {
    let quiet = Quiet::new(c.kernel);
    let guard = dir::lock(c, &quiet)?;
    let heap = &c.pool.geometry().pages;
    let Some(range) = heap.soiled(c.pool, LEAST) else {
        return Ok(Step::Nothing);
    };
    let (at, len) = (heap.offset(range.first), range.count as u64 * heap.block());
    let end = at + len;
    let mut emptied = 0;
    if let Some(from) = data(at, len) {
        let from = from.clamp(at, end - heap.block());
        emptied = most.min(end - from);
        if !c.kernel.release(from, emptied) {
            return Ok(Step::Impossible);
        }
        match data(from, end - from) {
            // The rest comes in the next step.
            Some(next) if next >= from + emptied => return Ok(Step::Emptied(emptied)),
            Some(_) => return Ok(Step::Impossible),
            None => {}
        }
    }
    // What was reserved but never written is a hole that has memory. In a long piece that would take too long to find, and is not much.
    if len <= most && !c.kernel.release(at, len) {
        return Ok(Step::Impossible);
    }
    let mut txn = guard.txn();
    heap.set_clean(&mut txn, range)?;
    let kept = &c.pool.root().kept;
    txn.put(kept, kept.load(Relaxed).saturating_sub(range.count.into()))?;
    txn.commit();
    Ok(Step::Emptied(emptied))
}
