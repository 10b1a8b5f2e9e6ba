//! Giving the memory of removed segments back to the host while machines run. A machine can't: it sees the
//! pool as a device's memory, so what it removes stays in the heap as pages that may not read as zeros. A
//! process that has the pool as a file empties them here.
//!
//! The pages stay in the heap all the time, and are emptied under the pool's lock, a little at a time: so
//! nobody can be taking them, a request never fails because they are away, and a death at any moment leaves
//! pages that may not read as zeros, as they were. A call that finds no memory does the same with all of
//! them.

use crate::{directory as dir, Ctx, Errno};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::heap::{Range, Soil};
use vshmem_pool::lock::{Guard, SignalsBlocked};

/// Pages in a row below which they stay as they are, 128 KiB: they are kept for the next small segment.
const LEAST: u32 = 32;

/// The outcome of a [`step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to give back.
    Nothing,
    /// Bytes that were emptied, at the most; there may be more, if only further on.
    Emptied(u64),
    /// The memory can't be given back.
    Impossible,
}

/// The place where the next step looks for pages. Only pages that were given memory but never written can't
/// be told from others that read as zeros, so all are gone through; what becomes free meanwhile may have to
/// wait for the next round.
#[derive(Debug, Default)]
pub struct Cursor(u32);

/// The part that comes next: a free piece, the pages that are to be emptied there, from one up to another,
/// and those that may not read as zeros then.
struct Part {
    piece: Range,
    from: u32,
    to: u32,
    left: Soil,
}

impl Part {
    /// Offset and length.
    fn bytes(&self, c: &Ctx) -> (u64, u64) {
        let heap = &c.pool.geometry().pages;
        (heap.offset(self.from), u64::from(self.to - self.from) * heap.block())
    }
}

/// The next part of pieces with `least` pages in a row, which has not many more than `most` bytes. `None`: it
/// is further on, or there is none, and the cursor back at the beginning.
fn next(c: &Ctx, least: u32, most: u64, cursor: &mut Cursor) -> Option<Part> {
    let heap = &c.pool.geometry().pages;
    let Some(piece) = heap.soiled(c.pool, least, &mut cursor.0, |units| c.pay(units).is_some()) else {
        cursor.0 = if cursor.0 < heap.count { cursor.0 } else { 0 };
        return None;
    };
    let most = u32::try_from(most / heap.block()).unwrap_or(u32::MAX).max(1);
    // Common pages keep their memory. What is left besides is found again.
    let kept = piece.soil.within(0, heap.common);
    let soil = piece.soil.within(heap.common, heap.count);
    let is_all = soil.count() < most.saturating_add(least);
    let (from, to, left) = match (is_all, kept.is_empty()) {
        (true, _) => (soil.from, soil.to, kept),
        (false, true) => (soil.from, soil.from + most, Soil { from: soil.from + most, to: soil.to }),
        // The rest lies beside what is kept, in one piece with it.
        (false, false) => {
            let from = soil.to - most;
            (from, soil.to, Soil { from: kept.from, to: from })
        }
    };
    Some(Part { piece, from, to, left })
}

/// Says that a part reads as zeros now.
fn set_clean(c: &Ctx, guard: &Guard, part: &Part) -> Result<(), Errno> {
    let mut txn = guard.txn();
    c.pool.geometry().pages.set_clean(&mut txn, part.piece, part.left)?;
    let kept = &c.pool.root().kept;
    txn.put(kept, kept.load(Relaxed).saturating_sub((part.to - part.from).into()))?;
    Ok(txn.commit()?)
}

/// Empties about `most` bytes of one free piece, at the most, or only looks for one. `data` tells where in a
/// range (offset, length) the first memory is that may not be empty; `None`: it reads as zeros. It must take
/// [`vshmem_pool::Kernel::release`] into account.
pub fn step(
    c: &Ctx,
    most: u64,
    cursor: &mut Cursor,
    data: impl Fn(u64, u64) -> Option<u64>,
) -> Result<Step, Errno> {
    let signals = SignalsBlocked::new(c.kernel);
    let guard = dir::lock(c, &signals)?;
    let Some(part) = next(c, LEAST, most, cursor) else {
        return Ok(if cursor.0 == 0 { Step::Nothing } else { Step::Emptied(0) });
    };
    let (at, len) = part.bytes(c);
    let emptied = data(at, len).map_or(0, |_| len);
    if c.release(at, len) > 0 || data(at, len).is_some() {
        return Ok(Step::Impossible);
    }
    set_clean(c, &guard, &part)?;
    Ok(Step::Emptied(emptied))
}

/// Bytes that a call empties before it lets others have the lock: a fraction of a millisecond.
const AT_ONCE: u64 = 2 << 20;

/// Empties all free pages, if that can be done, for a call that found no memory. If it is too much for one
/// call, the next one goes on. Returns whether something was emptied.
pub(crate) fn empty_all(c: &Ctx, signals: &SignalsBlocked) -> bool {
    empty(c, signals, 1)
}

/// Empties all free pages but those that are kept for small segments.
pub(crate) fn empty_long(c: &Ctx, signals: &SignalsBlocked) -> bool {
    empty(c, signals, LEAST)
}

/// Empties free pages where at least so many are in a row.
fn empty(c: &Ctx, signals: &SignalsBlocked, least: u32) -> bool {
    let all = c.pool.geometry().pages.count;
    // Others may use pages again as fast as they are emptied.
    let (mut cursor, mut left) = (Cursor::default(), all);
    while let (1.., Ok(guard)) = (left, dir::lock(c, signals)) {
        if let Some(part) = next(c, least, AT_ONCE, &mut cursor) {
            let (at, len) = part.bytes(c);
            if c.release(at, len) > 0 || set_clean(c, &guard, &part).is_err() {
                break;
            }
            left = left.saturating_sub(part.to - part.from);
        } else if cursor.0 == 0 || c.budget.is_spent() {
            break;
        }
    }
    left < all
}
