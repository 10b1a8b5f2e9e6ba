//! Giving the memory of removed segments back to the host while machines run. A machine can't: it sees the
//! pool as a device's memory, so what it removes stays in the heap as pages that may not read as zeros. A
//! process that has the pool as a file empties them here.
//!
//! The pages stay in the heap all the time, and are emptied under the pool's lock, a little at a time: so
//! nobody can be taking them, a request never fails because they are away, and a death at any moment leaves
//! pages that may not read as zeros, as they were. A piece counts as empty when it reads as zeros from the
//! first such page to the last one, whatever was emptied before.

use crate::{directory as dir, Ctx, Errno};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::heap::Range;
use vshmem_pool::lock::SignalsBlocked;

/// Less than 128 KiB in a row stays as it is: that is what is kept for the next small segment.
const LEAST: u32 = 32;

/// What a [`step`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to give back.
    Nothing,
    /// So many bytes that were not empty were emptied, at the most; there may be more.
    Emptied(u64),
    /// The memory can't be given back.
    Impossible,
}

/// How far the piece is that is being emptied, between two steps. Only a hint: pages that were given memory
/// but never written read as zeros, so their memory is found nowhere but by emptying the whole piece.
#[derive(Debug, Default)]
pub struct Cursor {
    piece: Option<Range>,
    done: u64,
}

impl Cursor {
    /// How much of this piece is done.
    fn of(&mut self, piece: Range) -> &mut u64 {
        if self.piece != Some(piece) {
            (self.piece, self.done) = (Some(piece), 0);
        }
        &mut self.done
    }
}

/// Empties `most` bytes of one free piece, at the most. `data` tells where in a range (offset, length) the
/// first memory is that may not be empty; `None`: it reads as zeros. It must take
/// [`vshmem_pool::Kernel::release`] into account.
pub fn step(
    c: &Ctx,
    most: u64,
    cursor: &mut Cursor,
    data: impl Fn(u64, u64) -> Option<u64>,
) -> Result<Step, Errno> {
    let signals = SignalsBlocked::new(c.kernel);
    let guard = dir::lock(c, &signals)?;
    let heap = &c.pool.geometry().pages;
    let Some(range) = heap.soiled(c.pool, LEAST) else {
        return Ok(Step::Nothing);
    };
    let (at, len) = (heap.offset(range.soil.from), u64::from(range.soil.count()) * heap.block());
    let done = cursor.of(range);
    let (from, window) = (at + *done, most.min(len - *done));
    let emptied = data(from, window).map_or(0, |_| window);
    if !c.release(from, window) || data(from, window).is_some() {
        return Ok(Step::Impossible);
    }
    *done += window;
    if *done < len {
        return Ok(Step::Emptied(emptied));
    }
    // Somebody may have had it since the first step, and written to it.
    *done = 0;
    if data(at, len).is_none() {
        let mut txn = guard.txn();
        heap.set_clean(&mut txn, range)?;
        let kept = &c.pool.root().kept;
        txn.put(kept, kept.load(Relaxed).saturating_sub(range.soil.count().into()))?;
        txn.commit()?;
    }
    Ok(Step::Emptied(emptied))
}
