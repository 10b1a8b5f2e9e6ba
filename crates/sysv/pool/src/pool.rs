//! A pool that was opened: its memory, and the places of its tables and heaps.

use crate::atomic::Ordering::Relaxed;
use crate::ids::Ids;
use crate::layout::*;
use crate::mem::{Mem, Shared};
use crate::uuid::Uuid;

/// System V limits of a pool, chosen when it is made (`ipcs -l` shows the kernel's). Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest segment.
    pub shmmax: u64,
    /// Pages of all segments.
    pub shmall: u64,
    /// Segments.
    pub shmmni: u32,
    /// Semaphores in a set.
    pub semmsl: u32,
    /// Semaphores in all sets.
    pub semmns: u32,
    /// Operations in a `semop`.
    pub semopm: u32,
    /// Semaphore sets.
    pub semmni: u32,
    /// Largest message.
    pub msgmax: u32,
    /// Bytes in a new queue.
    pub msgmnb: u32,
    /// Queues.
    pub msgmni: u32,
}

impl Default for Limits {
    /// Linux's defaults.
    fn default() -> Self {
        Limits {
            shmmax: u64::MAX - (1 << 24),
            shmall: u64::MAX - (1 << 24),
            shmmni: 4096,
            semmsl: 32000,
            semmns: 1_024_000_000,
            semopm: 500,
            semmni: 32000,
            msgmax: 8192,
            msgmnb: 16384,
            msgmni: 32000,
        }
    }
}

/// One of the two heaps of a pool: `count` blocks from `base` on, described by `count` words from `table` on.
/// They overlap: the small heap has all of its blocks but those that are still pages, see [`Heap::common`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Offset of the words.
    pub table: u64,
    /// Offset of the first block.
    pub base: u64,
    /// Blocks.
    pub count: u32,
    /// Pages, or small blocks.
    pub pages: bool,
    /// The alignment in blocks: a range that is taken begins at a multiple of it, and is a multiple of it
    /// long.
    pub align: u32,
    /// The number of pages, from the first one on, that are the small heap's, or common pages, which it may
    /// take. 0 in the small heap.
    pub common: u32,
}

impl Heap {
    /// Bytes in a block.
    pub fn block(&self) -> u64 {
        if self.pages {
            PAGE
        } else {
            BLOCK
        }
    }

    /// Blocks that `len` bytes need.
    pub fn blocks_for(&self, len: u64) -> Option<u32> {
        let blocks = len.max(1).div_ceil(self.block()).checked_next_multiple_of(self.align.into())?;
        u32::try_from(blocks).ok().filter(|n| *n <= self.count)
    }

    /// Offset of a block.
    pub fn offset(&self, block: u32) -> u64 {
        self.base + block as u64 * self.block()
    }

    /// Offset of what is behind its last block.
    pub fn end(&self) -> u64 {
        self.offset(self.count)
    }

    /// The block at an offset, if one begins there.
    pub fn block_at(&self, offset: u64) -> Option<u32> {
        let from = offset.checked_sub(self.base)?;
        let block = u32::try_from(from / self.block()).ok()?;
        (from % self.block() == 0 && block < self.count).then_some(block)
    }
}

/// Offsets and counts of everything in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Members: offset, count.
    pub members: (u64, u32),
    /// Process slots.
    pub procs: (u64, u32),
    /// Waiter records.
    pub waiters: (u64, u32),
    /// Entries by kind.
    pub entries: [(u64, u32); 3],
    /// Hash buckets by kind; the count is a power of two.
    pub buckets: [(u64, u32); 3],
    /// The heap of small blocks.
    pub small: Heap,
    /// The heap of pages.
    pub pages: Heap,
}

/// A pool that was opened: its memory and a checked copy of every constant.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    pub(crate) mem: Mem,
    pub(crate) geometry: Geometry,
    pub(crate) limits: Limits,
    pub(crate) uuid: Option<Uuid>,
    pub(crate) ids: Ids,
}

impl Pool {
    /// The memory.
    #[inline]
    pub fn mem(&self) -> &Mem {
        &self.mem
    }

    /// The alignment of segments, in bytes: each has whole multiples of it to itself.
    pub fn segment_align(&self) -> u64 {
        u64::from(self.geometry.pages.align) * PAGE
    }

    /// The limits.
    #[inline]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The pool's UUID; `None` if a library made it that gave pools none.
    pub fn uuid(&self) -> Option<Uuid> {
        self.uuid
    }

    /// The rule by which its ids are made.
    #[inline(always)]
    pub fn ids(&self) -> Ids {
        self.ids
    }

    /// The places of tables and heaps.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The changing part of the head.
    #[inline]
    pub fn root(&self) -> &'static Root {
        // Checked: open() refuses anything smaller than MIN_POOL.
        self.fixed(ROOT)
    }

    /// Counts and free list of a kind.
    pub fn kind_root(&self, kind: Kind) -> &'static KindRoot {
        &self.root().kinds[kind as usize]
    }

    /// The pages that are not the small heap's: index of the first one in the page heap, and how many. They
    /// stay so only under the pool's lock.
    pub fn pages_for_segments(&self) -> (u32, u32) {
        let Geometry { small, pages, .. } = &self.geometry;
        let end = self.root().small_end.load(Relaxed).min(small.count.into());
        let first = ((small.offset(end as u32) - pages.base) / PAGE) as u32;
        (first, pages.count - first)
    }

    /// Entries that a kind has room for.
    #[inline]
    pub fn capacity(&self, kind: Kind) -> u32 {
        self.geometry.entries[kind as usize].1
    }

    /// Offset of an entry; `None` if there is no such index.
    #[inline]
    pub fn entry_offset(&self, kind: Kind, index: u32) -> Option<u64> {
        let (offset, count) = self.geometry.entries[kind as usize];
        (index < count).then(|| offset + index as u64 * kind.entry_size())
    }

    /// The common part of an entry.
    pub fn head(&self, kind: Kind, index: u32) -> Option<&'static Head> {
        self.entry_offset(kind, index).and_then(|o| self.mem.at(o))
    }

    /// A segment's entry.
    #[inline]
    pub fn shm(&self, index: u32) -> Option<&'static Shm> {
        self.record(self.geometry.entries[Kind::Shm as usize], index)
    }

    /// A semaphore set's entry.
    #[inline]
    pub fn sem(&self, index: u32) -> Option<&'static Sem> {
        self.record(self.geometry.entries[Kind::Sem as usize], index)
    }

    /// A queue's entry.
    #[inline]
    pub fn msg(&self, index: u32) -> Option<&'static Msg> {
        self.record(self.geometry.entries[Kind::Msg as usize], index)
    }

    /// A waiter record.
    #[inline]
    pub fn waiter(&self, index: u32) -> Option<&'static Waiter> {
        self.record(self.geometry.waiters, index)
    }

    /// The offset that a reference into the pool has.
    #[inline]
    pub fn offset_of<T>(&self, r: &T) -> u64 {
        (r as *const T as usize - self.mem.base() as usize) as u64
    }

    /// A record of a table (offset, count), if there is such an index and memory for it. The tables are those
    /// that `open` has checked.
    #[inline]
    pub(crate) fn record<T: Shared>(&self, (table, count): (u64, u32), index: u32) -> Option<&'static T> {
        let len = size_of::<T>() as u64;
        let at = table + u64::from(index) * len;
        // Tables begin on pages.
        let one_page = len.is_power_of_two();
        // SAFETY: `Geometry::read` found all of the table to lie inside the mapping.
        let is_there = index < count && unsafe { self.mem.has_memory(at, len, one_page) };
        is_there.then(|| self.fixed(at))
    }

    /// A record at an offset that `open` has checked, or that was computed from checked tables.
    #[inline]
    fn fixed<T: Shared>(&self, offset: u64) -> &'static T {
        debug_assert!(offset as usize + size_of::<T>() <= self.mem.len());
        // SAFETY: callers pass offsets of tables that `Geometry::read` found to lie inside the mapping, plus
        // an index below the table's count; the tables are page-aligned and T's size is a multiple of its
        // alignment.
        unsafe { &*self.mem.base().add(offset as usize).cast::<T>() }
    }
}
