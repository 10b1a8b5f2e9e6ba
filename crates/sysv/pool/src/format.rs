//! Making pools and opening them.

use crate::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::ids::Ids;
use crate::layout::*;
use crate::mem::Mem;
use crate::pool::{Geometry, Heap, Limits, Pool};
use crate::uuid::Uuid;
use core::fmt;

/// Smallest pool, in bytes.
pub const MIN_POOL: u64 = 1 << 20;
/// The size of a pool that is made without being asked for one. A power of two, so that machines can be given
/// it.
pub const DEFAULT_POOL: u64 = 1 << 30;
/// The part of a pool that a table of records takes at the most: one in so many bytes.
const USUAL_SHARE: u64 = 128;
/// The part of a pool that a table of IPC objects takes at the most if more are asked for than Linux has: one
/// in so many bytes.
const LARGEST_SHARE: u64 = 16;
/// Blocks that a heap may have: they are named by 28 bits, and 0 is none.
const MOST_BLOCKS: u32 = (1 << 28) - 1;
/// Largest pool, in bytes: pages are named by 28 bits.
pub const MAX_POOL: u64 = 1 << 40;

impl Limits {
    fn write(&self, to: &LimitWords) {
        let small = |word: &AtomicU64, limit: u32| word.store(limit.into(), Relaxed);
        to.shmmax.store(self.shmmax, Relaxed);
        to.shmall.store(self.shmall, Relaxed);
        small(&to.shmmni, self.shmmni);
        small(&to.semmsl, self.semmsl);
        small(&to.semmns, self.semmns);
        small(&to.semopm, self.semopm);
        small(&to.semmni, self.semmni);
        small(&to.msgmax, self.msgmax);
        small(&to.msgmnb, self.msgmnb);
        small(&to.msgmni, self.msgmni);
    }

    fn read(from: &LimitWords) -> Limits {
        let small = |word: &AtomicU64| word.load(Relaxed).min(i32::MAX as u64) as u32;
        Limits {
            shmmax: from.shmmax.load(Relaxed),
            shmall: from.shmall.load(Relaxed),
            shmmni: small(&from.shmmni),
            semmsl: small(&from.semmsl),
            semmns: small(&from.semmns),
            semopm: small(&from.semopm),
            semmni: small(&from.semmni),
            msgmax: small(&from.msgmax),
            msgmnb: small(&from.msgmnb),
            msgmni: small(&from.msgmni),
        }
        .clamped()
    }

    /// Brings the limits into the range that the layout can represent.
    fn clamped(mut self) -> Limits {
        self.semmsl = self.semmsl.min(65535);
        self.semopm = self.semopm.clamp(1, 4096);
        self.msgmax = self.msgmax.min(MSGMAX_MOST);
        self.msgmnb = self.msgmnb.min(64 << 20);
        self
    }
}

/// Parameters of a pool that can be chosen when it is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params {
    /// The limits; counts of IPC objects are lowered to what the pool has room for.
    pub limits: Limits,
    /// The alignment of segments, in bytes: each member's memory is mapped in multiples of it. 0: pages.
    pub align: u64,
    /// The pool's UUID.
    pub uuid: Option<Uuid>,
}

/// The reason for which a pool could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// The memory is too small.
    TooSmall,
    /// The memory is larger than a pool may be.
    TooLarge,
    /// Segments can't be aligned to that.
    Alignment,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FormatError::TooSmall => {
                "a pool needs at least 1 MiB, and room for a few aligned segments; choose a larger size"
            }
            FormatError::TooLarge => "a pool can't be larger than 1 TiB; choose a smaller size",
            FormatError::Alignment => "segments are aligned to a power of two from 4 KiB to 1 GiB",
        })
    }
}
impl core::error::Error for FormatError {}

/// The reason for which a pool could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The file is shorter than a pool, or than this pool says it is.
    Truncated,
    /// It does not begin like a pool.
    NotAPool,
    /// It has another version of the layout (the number it has).
    Version(u32),
    /// It uses features that this library does not know (the bits).
    Features(u32),
    /// Its description of itself makes no sense.
    Damaged,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Truncated => {
                f.write_str("the pool is shorter than it should be; remove it and make it anew")
            }
            OpenError::NotAPool => f.write_str("this is not a pool of Vshmem; check the name or path"),
            OpenError::Version(v) => {
                write!(f, "the pool has layout version {v}, this library knows {VERSION}; use the library that made it")
            }
            OpenError::Features(b) => {
                write!(
                    f,
                    "the pool uses features {b:#x} that this library does not know; use a newer library"
                )
            }
            OpenError::Damaged => {
                f.write_str("the head of the pool is damaged; remove the pool and make it anew")
            }
        }
    }
}
impl core::error::Error for OpenError {}

impl Geometry {
    /// Shares `size` bytes out. Returns how many blocks the small heap has at first, too.
    fn plan(size: u64, params: &Params) -> Result<(Geometry, u32), FormatError> {
        let (limits, align) = (&params.limits, params.align.max(PAGE));
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(FormatError::Alignment);
        }
        if size < MIN_POOL {
            return Err(FormatError::TooSmall);
        }
        if size > MAX_POOL {
            return Err(FormatError::TooLarge);
        }
        let mut at = TABLES;
        // `want` records of `each` bytes, but not more than a share of the pool, and at least `least`.
        let take_from = |at: &mut u64, want: u32, least: u32, each: u64, share: u64| {
            let room = (size / share / each).min(u32::MAX as u64) as u32;
            let count = want.min(room).max(least);
            let offset = at.next_multiple_of(PAGE);
            *at = offset + count as u64 * each;
            (offset, count)
        };
        let mut take = |want, least, each, share| take_from(&mut at, want, least, each, share);
        let members = take(MAX_MEMBERS, MAX_MEMBERS, size_of::<Member>() as u64, 1);
        let procs = take(MAX_PROCS, 128, size_of::<Proc>() as u64, 2 * USUAL_SHARE);
        let waiters = take(131072, 128, size_of::<Waiter>() as u64, USUAL_SHARE);
        let usual = Limits::default();
        let wants =
            [(limits.shmmni, usual.shmmni), (limits.semmni, usual.semmni), (limits.msgmni, usual.msgmni)];
        let mut entries = [(0, 0); 3];
        for (kind, (want, usual)) in Kind::ALL.into_iter().zip(wants) {
            let share = if want > usual { LARGEST_SHARE } else { USUAL_SHARE };
            let want = want.min(MAX_ENTRIES);
            entries[kind as usize] = take(want, want.clamp(1, 128), kind.entry_size(), share);
        }
        let mut buckets = [(0, 0); 3];
        for kind in Kind::ALL {
            let count = entries[kind as usize].1.next_power_of_two();
            buckets[kind as usize] = take(count, count, 8, 1);
        }
        // What the small heap has at first, in any case, and what it may grow to.
        let small_first = (size / 512).max(64 << 10);
        let small_most = (size / 8).min(1 << 33).max(small_first + align);
        let (page_table, _) = take((size / PAGE) as u32, 0, 8, 1);
        let (small_table, _) = take((small_most / BLOCK) as u32, 0, 8, 1);
        let small_base = at.next_multiple_of(PAGE);
        // Large pages behind the pool are of use only to segments that are aligned to them.
        let unit = if size >= 64 << 20 { align.max(2 << 20) } else { align };
        let page_base = small_base / unit * unit;
        let page_count = size.saturating_sub(page_base) / align * (align / PAGE);
        let small_end = (small_base + small_first).next_multiple_of(align);
        let common_end = ((small_base + small_most) / unit * unit).max(small_end);
        let common = (common_end - page_base) / PAGE;
        if common + 16 > page_count {
            return Err(FormatError::TooSmall);
        }
        let small = Heap {
            table: small_table,
            base: small_base,
            count: ((common_end - small_base) / BLOCK) as u32,
            pages: false,
            align: 1,
            common: 0,
        };
        let pages = Heap {
            table: page_table,
            base: page_base,
            count: page_count as u32,
            pages: true,
            align: (align / PAGE) as u32,
            common: common as u32,
        };
        let geometry = Geometry { members, procs, waiters, entries, buckets, small, pages };
        Ok((geometry, ((small_end - small_base) / BLOCK) as u32))
    }

    fn write(&self, to: &GeometryWords) {
        let table = |words: &TableWords, (offset, count): (u64, u32)| {
            words.offset.store(offset, Relaxed);
            words.count.store(count.into(), Relaxed);
        };
        let heap = |words: &HeapWords, heap: &Heap| {
            words.words.store(heap.table, Relaxed);
            words.base.store(heap.base, Relaxed);
            words.count.store(heap.count.into(), Relaxed);
        };
        table(&to.members, self.members);
        table(&to.procs, self.procs);
        table(&to.waiters, self.waiters);
        for kind in 0..3 {
            table(&to.entries[kind], self.entries[kind]);
            table(&to.buckets[kind], self.buckets[kind]);
        }
        heap(&to.small, &self.small);
        heap(&to.pages, &self.pages);
    }

    /// Copies a geometry, each word once, and checks that everything lies inside `size` bytes, and that no
    /// table has more entries than ids have indices. Segments are aligned to `align` pages.
    fn read(from: &GeometryWords, size: u64, align: u32, ids: Ids) -> Option<Geometry> {
        let count = |word: &AtomicU64, max: u32| {
            let count = u32::try_from(word.load(Relaxed)).ok();
            count.filter(|c| *c >= 1 && *c <= max)
        };
        // All but segments lies before the small heap's last block.
        let (small_base, small_count) =
            (from.small.base.load(Relaxed), count(&from.small.count, MOST_BLOCKS)?);
        let structures = small_base.checked_add(u64::from(small_count) * BLOCK)?;
        let fits = |offset: u64, count: u32, each: u64, most: u64| {
            let end = (count as u64).checked_mul(each)?.checked_add(offset)?;
            (offset >= TABLES && end <= most).then_some(())
        };
        let table = |words: &TableWords, max: u32, each: u64| {
            let (offset, count) = (words.offset.load(Relaxed), count(&words.count, max)?);
            fits(offset, count, each, structures)?;
            // Tables of aligned records must be aligned themselves.
            (offset % PAGE == 0).then_some((offset, count))
        };
        fits(small_base, small_count, BLOCK, size)?;
        let words = |words: &HeapWords, count| {
            let table = words.words.load(Relaxed);
            fits(table, count, 8, structures)?;
            (table % 8 == 0).then_some(table)
        };
        let table_of_small = words(&from.small, small_count)?;
        let (page_base, page_count) = (from.pages.base.load(Relaxed), count(&from.pages.count, MOST_BLOCKS)?);
        let table_of_pages = words(&from.pages, page_count)?;
        let page_end = page_base.checked_add(u64::from(page_count) * PAGE)?;
        // The common pages end with a multiple of the alignment, as all ranges of pages do.
        let unit = u64::from(align) * PAGE;
        let is_aligned = page_base % unit == 0 && page_count % align == 0 && structures % unit == 0;
        let is_in_order = page_base <= small_base && structures <= page_end && page_end <= size;
        if !is_aligned || !is_in_order || small_base % PAGE != 0 {
            return None;
        }
        let common = ((structures - page_base) / PAGE) as u32;
        let mut entries = [(0, 0); 3];
        let mut buckets = [(0, 0); 3];
        for kind in Kind::ALL {
            let k = kind as usize;
            entries[k] = table(&from.entries[k], 1 << ids.bits(), kind.entry_size())?;
            buckets[k] = table(&from.buckets[k], 1 << ids.bits(), 8)?;
            if !buckets[k].1.is_power_of_two() {
                return None;
            }
        }
        let procs = table(&from.procs, MAX_PROCS, size_of::<Proc>() as u64)?;
        // One of them is spare.
        let has_spare = procs.1 >= 2;
        has_spare.then_some(Geometry {
            members: table(&from.members, MAX_MEMBERS, size_of::<Member>() as u64)?,
            procs,
            waiters: table(&from.waiters, 1 << 20, size_of::<Waiter>() as u64)?,
            entries,
            buckets,
            small: Heap {
                table: table_of_small,
                base: small_base,
                count: small_count,
                pages: false,
                align: 1,
                common: 0,
            },
            pages: Heap {
                table: table_of_pages,
                base: page_base,
                count: page_count,
                pages: true,
                align,
                common,
            },
        })
    }
}

impl Pool {
    /// Writes an empty pool into zeroed memory. The magic number comes last.
    pub fn format(mem: Mem, params: &Params) -> Result<(), FormatError> {
        let size = mem.len() as u64;
        let mut limits = params.limits.clamped();
        let (geometry, small_end) = Geometry::plan(size, &Params { limits, ..*params })?;
        limits.shmmni = limits.shmmni.min(geometry.entries[0].1);
        limits.semmni = limits.semmni.min(geometry.entries[1].1);
        limits.msgmni = limits.msgmni.min(geometry.entries[2].1);
        if geometry.small.end() > mem.mapped() as u64 {
            return Err(FormatError::TooLarge);
        }
        let sb = mem.at::<Superblock>(0).ok_or(FormatError::TooSmall)?;
        sb.version.store(VERSION, Relaxed);
        sb.size.store(size, Relaxed);
        let mut features = 0;
        if geometry.pages.align > 1 {
            features |= ALIGNED;
            sb.align.store(geometry.pages.align, Relaxed);
        }
        let ids = Ids::for_entries(geometry.entries.iter().map(|table| table.1).max().unwrap_or(0));
        if ids.bits() > LEAST_INDEX_BITS {
            features |= MANY;
            sb.index_bits.store(ids.bits(), Relaxed);
        }
        sb.incompatible.store(features, Relaxed);
        if let Some(uuid) = params.uuid {
            sb.compatible.store(HAS_UUID, Relaxed);
            uuid.write(&sb.uuid);
        }
        geometry.write(&sb.geometry);
        limits.write(&sb.limits);
        let pool = Pool { mem, geometry, limits, uuid: params.uuid, ids };
        pool.root().small_end.store(small_end.into(), Relaxed);
        geometry.small.format(&pool, 0, small_end);
        let (first, count) = pool.pages_for_segments();
        geometry.pages.format(&pool, first, count);
        // The root, its log and the members are touched so that they have memory from the start; all else
        // gets it at its first use.
        let members_len = geometry.members.1 as u64 * size_of::<Member>() as u64;
        for (from, len) in [(0, TABLES), (geometry.members.0, members_len)] {
            for at in (from..from + len).step_by(PAGE as usize) {
                let word = mem.word(at).ok_or(FormatError::TooSmall)?;
                word.store(word.load(Relaxed), Relaxed);
            }
        }
        sb.magic.store(MAGIC, Release);
        Ok(())
    }

    /// The number of bytes of a pool that have to be mapped, as its head says: all but segments lies before.
    pub fn to_be_mapped(head: Mem) -> Option<u64> {
        let small = &head.at::<Superblock>(0)?.geometry.small;
        small.count.load(Relaxed).checked_mul(BLOCK)?.checked_add(small.base.load(Relaxed))
    }

    /// Checks the head of a pool and copies what it says. Nothing of the head is read again later.
    pub fn open(mem: Mem) -> Result<Pool, OpenError> {
        if (mem.len() as u64) < MIN_POOL {
            return Err(OpenError::Truncated);
        }
        let sb = mem.at::<Superblock>(0).ok_or(OpenError::Truncated)?;
        if sb.magic.load(Acquire) != MAGIC {
            return Err(OpenError::NotAPool);
        }
        match sb.version.load(Relaxed) {
            VERSION => {}
            other => return Err(OpenError::Version(other)),
        }
        let features = sb.incompatible.load(Relaxed);
        if features & !(ALIGNED | MANY) != 0 {
            return Err(OpenError::Features(features & !(ALIGNED | MANY)));
        }
        let align = if features & ALIGNED != 0 { sb.align.load(Relaxed) } else { 1 };
        let index_bits = if features & MANY != 0 { sb.index_bits.load(Relaxed) } else { LEAST_INDEX_BITS };
        let ids = Ids::new(index_bits).ok_or(OpenError::Damaged)?;
        if !align.is_power_of_two() || u64::from(align) > MAX_ALIGN / PAGE {
            return Err(OpenError::Damaged);
        }
        let size = sb.size.load(Relaxed);
        if !(MIN_POOL..=MAX_POOL).contains(&size) {
            return Err(OpenError::Damaged);
        }
        if size > mem.len() as u64 {
            return Err(OpenError::Truncated);
        }
        let geometry = Geometry::read(&sb.geometry, size, align, ids).ok_or(OpenError::Damaged)?;
        if geometry.small.end() > mem.mapped() as u64 {
            return Err(OpenError::Damaged);
        }
        let limits = Limits::read(&sb.limits);
        let has_uuid = sb.compatible.load(Relaxed) & HAS_UUID != 0;
        let uuid = has_uuid.then(|| Uuid::read(&sb.uuid)).flatten();
        Ok(Pool { mem: mem.below(geometry.small.end()), geometry, limits, uuid, ids })
    }
}
