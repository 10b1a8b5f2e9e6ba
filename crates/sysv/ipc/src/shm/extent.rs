//! Extents: where in the pool a segment lies.

use crate::{Ctx, Errno};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::heap::Range;
use vshmem_pool::layout::{Shm, PAGE};

/// The bytes of the pool that are a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the pool, a multiple of the page size.
    pub offset: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Bytes to map: `size` rounded up to pages. More up to what the pool's segments are aligned to is the
    /// segment's alone, too.
    pub len: u64,
}

/// The pages of a segment, if they are in the heap.
pub fn range_of(c: &Ctx, shm: &Shm) -> Option<Range> {
    let heap = &c.pool.geometry().pages;
    let first = u32::try_from(shm.first.load(Relaxed)).ok()?;
    let count = u32::try_from(shm.pages.load(Relaxed)).ok()?;
    let end = first.checked_add(count)?;
    (count > 0 && end <= heap.count).then_some(Range::new(first, count, true))
}

/// The extent of a segment; EINVAL if its entry is damaged.
pub fn extent_of(c: &Ctx, shm: &Shm) -> Result<Extent, Errno> {
    let range = range_of(c, shm).ok_or(Errno::EINVAL)?;
    let size = shm.size.load(Relaxed);
    let heap = &c.pool.geometry().pages;
    (heap.blocks_for(size) == Some(range.count) && range.first % heap.align == 0)
        .then(|| Extent { offset: heap.offset(range.first), size, len: size.next_multiple_of(PAGE) })
        .ok_or(Errno::EINVAL)
}
