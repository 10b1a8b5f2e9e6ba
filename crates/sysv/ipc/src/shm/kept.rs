//! Memory of destroyed segments that is kept for the next ones.
//!
//! To take pages away from a file and to give it others costs more than to write zeros to those that it has,
//! and processes that do so at once wait for each other in the kernel. So some memory stays with pages that
//! are free: of small segments, and of larger ones that have nearly all of theirs. It goes back when a
//! process leaves the pool and no segment is left, when a call finds no memory, or by the back end within
//! about a second.

use crate::{reclaim, Ctx};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::heap::{Range, Soil};
use vshmem_pool::layout::{Kind, PAGE};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::tuning::DEAF_NS;

/// Pages of a segment that keeps all its memory: to ask how much that is would cost more.
const UNASKED_PAGES: u32 = 16;
/// Pages of the largest segment that keeps memory, 8 MiB: to write more zeros, or to ask, would hold a call
/// up.
const LARGEST_KEPT: u32 = 2048;
/// Pages that are kept in any pool at the most, however small it is: 1 MiB.
const LEAST_KEPT: u64 = 256;
/// Pages that are kept in any pool at the most, however large it is: 64 MiB.
const MOST_KEPT: u64 = 16384;
/// Pages of the pool for each one that is kept, in between.
const KEPT_SHARE: u64 = 16;
/// Pages that are cleaned by one means, 1 MiB.
const CLEANED_PAGES: u32 = 256;
/// Bytes that are given back by one system call, 64 MiB: some ten milliseconds.
const RETURNED_BYTES: u64 = 64 << 20;
/// Time for giving back memory of which the process does not know how much it is, in nanoseconds.
const LONGEST_RETURN_NS: u64 = 1_000_000_000;

/// Offset and length in bytes of so many pages.
pub fn bytes_of(c: &Ctx, first: u32, count: u32) -> (u64, u64) {
    (c.pool.geometry().pages.offset(first), u64::from(count) * PAGE)
}

/// The fate of a destroyed segment's memory.
pub enum Fate {
    /// There is none: the pages read as zeros.
    None,
    /// The pages keep it, and may not read as zeros.
    Kept,
    /// The memory goes back to the host.
    Returned,
}

/// Decides about the memory of a range.
pub fn fate(c: &Ctx, range: Range) -> Fate {
    let heap = &c.pool.geometry().pages;
    let most = (u64::from(heap.count) / KEPT_SHARE).clamp(LEAST_KEPT, MOST_KEPT);
    let fits = c.pool.root().kept.load(Relaxed).saturating_add(range.count.into()) <= most;
    match range.count {
        ..=UNASKED_PAGES if fits => return Fate::Kept,
        ..=LARGEST_KEPT => (),
        _ => return Fate::Returned,
    }
    let (at, len) = bytes_of(c, range.first, range.count);
    match c.backed(at, len) {
        Some(0) => Fate::None,
        Some(bytes) if fits && is_dense(bytes / PAGE, range.count) => Fate::Kept,
        _ => Fate::Returned,
    }
}

/// Have nearly all of the pages memory? Else to write zeros to all of them would give memory to many.
fn is_dense(with_memory: u64, pages: u32) -> bool {
    with_memory >= u64::from(pages - pages / 8)
}

/// Sees to it that free pages which may not read as zeros do, for a segment that gets its memory when it is
/// touched: where hardly any have memory they are given back, elsewhere they are written to. Returns how many
/// were taken to have memory; `None`: there is none to write to.
pub fn clean(c: &Ctx, soil: Soil) -> Option<u64> {
    let (mut had, mut from) = (0, soil.from);
    while from < soil.to {
        let to = soil.to.min(from.saturating_add(CLEANED_PAGES));
        let (at, len) = bytes_of(c, from, to - from);
        let Some(bytes) = c.backed(at, len) else {
            // Not piece by piece, as nothing is known of any.
            let (at, len) = bytes_of(c, from, soil.to - from);
            let left = c.release(at, len);
            return zero(c, (at, left)).then_some(had + len / PAGE);
        };
        let left = match bytes {
            0 => 0,
            _ if is_dense(bytes / PAGE, to - from) => len,
            _ => c.release(at, len),
        };
        if !zero(c, (at, left)) {
            return None;
        }
        had += bytes / PAGE;
        from = to;
    }
    Some(had)
}

/// Gives the memory of a destroyed segment back to the host. Returns the pages that may not read as zeros
/// now.
///
/// How many there are only the pool says, and a member may have it say all of them: so no more is given back
/// of a segment than the process was `told`, and where it was told nothing, not for long.
pub fn give_back(c: &Ctx, signals: &SignalsBlocked, range: Range, told: Option<u64>) -> Soil {
    let told = told.map(|len| c.pool.geometry().pages.blocks_for(len) == Some(range.count));
    let (at, len) = bytes_of(c, range.first, range.count);
    let begun = c.kernel.monotonic();
    let goes_on = || match told {
        Some(is_so) => is_so,
        None => {
            let took = c.kernel.monotonic().saturating_sub(begun);
            took < c.kernel.patience().map_or(LONGEST_RETURN_NS, |most| most.min(LONGEST_RETURN_NS))
                && (took < DEAF_NS || !signals.signal_waits())
        }
    };
    // From the end on, since what can't be given back lies before the rest.
    let mut end = at + len;
    while end > at && goes_on() {
        let from = ((end - 1) / RETURNED_BYTES * RETURNED_BYTES).max(at);
        let left = c.release(from, end - from);
        end = from + left;
        if left > 0 {
            break;
        }
    }
    Soil { from: range.first, to: range.first + ((end - at) / PAGE) as u32 }
}

/// Writes zeros to pages, which get memory if they have none. False if there is none.
pub fn zero(c: &Ctx, (at, len): (u64, u64)) -> bool {
    len == 0 || c.reserve(at, len) && zero_backed(c, (at, len))
}

/// Writes zeros to pages that have memory.
pub fn zero_backed(c: &Ctx, (at, len): (u64, u64)) -> bool {
    c.pool.mem().zero(at, len) || c.kernel.zero(at, len)
}

/// Gives kept memory back to the host as a process leaves, but for what is kept in any pool, if no segment is
/// left.
pub fn leave(c: &Ctx, signals: &SignalsBlocked) {
    let is_empty = c.pool.kind_root(Kind::Shm).used.load(Relaxed) == 0;
    if is_empty && c.pool.root().kept.load(Relaxed) > LEAST_KEPT {
        c.apart(|c| reclaim::empty_long(c, signals));
    }
}
