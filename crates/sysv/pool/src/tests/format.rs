//! Making pools, and refusing what is not one.

use super::Memory;
use crate::atomic::Ordering::Relaxed;
use crate::layout::*;
use crate::{FormatError, Limits, OpenError, Params, Pool, Uuid, MIN_POOL};
use core::mem::offset_of;
use std::string::ToString;

const MIN: usize = MIN_POOL as usize;

fn formatted(len: usize) -> Memory {
    let memory = Memory::new(len);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    memory
}

fn head(memory: &Memory) -> &'static Superblock {
    memory.mem().at(0).unwrap()
}

fn open(memory: &Memory) -> Result<Pool, OpenError> {
    Pool::open(memory.mem())
}

#[test]
fn sizes_have_bounds() {
    let memory = Memory::new(MIN);
    let small = Pool::format(memory.first(MIN - 4096), &Params::default());
    assert_eq!(small, Err(FormatError::TooSmall));
    assert_eq!(open(&memory).unwrap_err(), OpenError::NotAPool);
    assert_eq!(Pool::format(memory.mem(), &Params::default()), Ok(()));
    assert!(open(&memory).is_ok());
    assert_eq!(Pool::open(memory.first(MIN - 4096)).unwrap_err(), OpenError::Truncated);
    assert_eq!(Pool::open(memory.first(0)).unwrap_err(), OpenError::Truncated);
}

#[test]
fn everything_has_its_place() {
    for len in [MIN, MIN + 4096, 3 << 20, (64 << 20) - 4096, 64 << 20, 200 << 20] {
        let memory = formatted(len);
        let pool = open(&memory).unwrap();
        let g = pool.geometry();
        let mut ranges = std::vec![
            (0, TABLES),
            (g.members.0, g.members.1 as u64 * size_of::<Member>() as u64),
            (g.procs.0, g.procs.1 as u64 * size_of::<Proc>() as u64),
            (g.waiters.0, g.waiters.1 as u64 * size_of::<Waiter>() as u64),
            (g.small.table, g.small.count as u64 * 8),
            (g.pages.table, g.pages.count as u64 * 8),
            (g.small.base, g.pages.end() - g.small.base),
        ];
        for kind in Kind::ALL {
            let (at, count) = g.entries[kind as usize];
            ranges.push((at, count as u64 * kind.entry_size()));
            let (at, count) = g.buckets[kind as usize];
            assert!(count.is_power_of_two());
            ranges.push((at, count as u64 * 8));
        }
        ranges.sort();
        for pair in ranges.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{len}: {pair:x?} overlap");
        }
        let (at, bytes) = ranges[ranges.len() - 1];
        assert!(at + bytes <= len as u64);
        let (first, pages) = pool.pages_for_segments();
        assert_eq!(g.small.offset(g.small.free_blocks(&pool) as u32), g.pages.offset(first));
        assert_eq!(g.pages.free_blocks(&pool), u64::from(pages));
        assert_eq!(g.small.end(), g.pages.offset(g.pages.common));
        // Most of a pool is for segments.
        assert!(u64::from(pages) * PAGE >= len as u64 * 2 / 3, "{len}: {pages}");
    }
}

#[test]
fn limits_are_kept_and_lowered_to_what_there_is_room_for() {
    let memory = Memory::new(MIN);
    let limits = Limits { shmmax: 12345, semmsl: 70_000, semopm: 0, msgmax: u32::MAX, ..Limits::default() };
    Pool::format(memory.mem(), &Params { limits, ..Params::default() }).unwrap();
    let pool = open(&memory).unwrap();
    let l = pool.limits();
    assert_eq!((l.shmmax, l.semmsl, l.semopm, l.msgmax), (12345, 65535, 1, MSGMAX_MOST));
    assert_eq!(l.shmmni, pool.capacity(Kind::Shm));
    assert_eq!(l.semmni, pool.capacity(Kind::Sem));
    assert!(l.semmni < Limits::default().semmni);
}

#[test]
fn strangers_are_refused_with_the_reason() {
    let memory = formatted(MIN);
    let sb = head(&memory);
    sb.magic.store(MAGIC + 1, Relaxed);
    assert_eq!(open(&memory).unwrap_err(), OpenError::NotAPool);
    sb.magic.store(MAGIC, Relaxed);
    sb.version.store(VERSION + 1, Relaxed);
    let refused = open(&memory).unwrap_err();
    assert_eq!(refused, OpenError::Version(VERSION + 1));
    assert!(refused.to_string().contains(&(VERSION + 1).to_string()));
    sb.version.store(VERSION, Relaxed);
    sb.incompatible.store(4, Relaxed);
    let refused = open(&memory).unwrap_err();
    assert_eq!(refused, OpenError::Features(4));
    assert!(refused.to_string().contains("0x4"));
    sb.incompatible.store(0, Relaxed);
    sb.compatible.store(u32::MAX, Relaxed);
    assert!(open(&memory).is_ok());
}

#[test]
fn segments_are_aligned_to_what_the_pool_was_made_for() {
    let memory = Memory::new(16 << 20);
    let format = |align| Pool::format(memory.mem(), &Params { align, ..Params::default() });
    for align in [PAGE + 1, 3 * PAGE, 2 << 30, u64::MAX] {
        assert_eq!(format(align), Err(FormatError::Alignment), "{align}");
    }
    assert_eq!(format(16 << 20), Err(FormatError::TooSmall));
    let plain = formatted(MIN);
    assert_eq!((head(&plain).incompatible.load(Relaxed), head(&plain).align.load(Relaxed)), (0, 0));
    assert_eq!(open(&plain).unwrap().segment_align(), PAGE);
    format(2 << 20).unwrap();
    let pool = open(&memory).unwrap();
    let heap = pool.geometry().pages;
    assert_eq!((pool.segment_align(), heap.base % (2 << 20)), (2 << 20, 0));
    assert_eq!([1, 2 << 20, (2 << 20) + 1].map(|len| heap.blocks_for(len)), [512, 512, 1024].map(Some));
    let (first, count) = pool.pages_for_segments();
    assert_eq!(heap.free_blocks(&pool), count as u64);
    assert!(first % 512 == 0 && count % 512 == 0 && count >= 4 * 512);
    let sb = head(&memory);
    // A base that is no multiple of it, nor a number that is no power of two.
    for align in [0, 3, 1 << 19, u32::MAX] {
        sb.align.store(align, Relaxed);
        assert_eq!(open(&memory).unwrap_err(), OpenError::Damaged, "{align}");
    }
    sb.align.store(512, Relaxed);
    sb.incompatible.store(ALIGNED | 8, Relaxed);
    assert_eq!(open(&memory).unwrap_err(), OpenError::Features(8));
    sb.incompatible.store(ALIGNED, Relaxed);
    sb.geometry.pages.base.store(heap.base + PAGE, Relaxed);
    assert_eq!(open(&memory).unwrap_err(), OpenError::Damaged);
}

#[test]
fn a_pool_whose_limits_ask_for_it_has_ids_with_more_bits_of_index() {
    const FEW: u32 = 1 << LEAST_INDEX_BITS;
    let made = |len: usize, semmni| {
        let memory = Memory::new(len);
        let limits = Limits { semmni, ..Limits::default() };
        Pool::format(memory.mem(), &Params { limits, ..Params::default() }).unwrap();
        let pool = open(&memory).unwrap();
        let features = (head(&memory).incompatible.load(Relaxed), head(&memory).index_bits.load(Relaxed));
        assert_eq!(pool.limits().semmni, pool.capacity(Kind::Sem));
        (memory, features, pool.ids().bits(), pool.limits().semmni)
    };
    for (len, asked, features, bits, given) in [
        (448 << 20, FEW, (0, 0), 17, FEW),
        (448 << 20, FEW + 1, (MANY, 18), 18, FEW + 1),
        // As many as the pool has room for.
        (48 << 20, u32::MAX, (0, 0), 17, 16384),
        (3 << 30, u32::MAX, (MANY, 20), 20, MAX_ENTRIES),
    ] {
        let (_memory, f, b, g) = made(len, asked);
        assert_eq!((f, b, g), (features, bits, given), "{len} {asked}");
    }
    let (memory, ..) = made(448 << 20, FEW + 1);
    let sb = head(&memory);
    for bits in [18, 19, 20] {
        sb.index_bits.store(bits, Relaxed);
        assert_eq!(open(&memory).unwrap().ids().bits(), bits);
    }
    // Fewer than the largest table needs; none that a pool can have.
    for bits in [0, 1, 16, 17, 21, 30, u32::MAX] {
        sb.index_bits.store(bits, Relaxed);
        assert_eq!(open(&memory).unwrap_err(), OpenError::Damaged, "{bits}");
    }
    sb.index_bits.store(18, Relaxed);
    sb.incompatible.store(0, Relaxed);
    assert_eq!(open(&memory).unwrap_err(), OpenError::Damaged);
}

#[test]
fn a_pool_has_the_uuid_that_its_maker_drew() {
    let memory = Memory::new(MIN);
    let uuid = Uuid::from_random([0xff; 16]);
    assert_eq!(uuid.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    let mut bytes = core::array::from_fn(|i| i as u8);
    let drawn = Uuid::from_random(bytes);
    (bytes[6], bytes[8]) = (0x46, 0x88);
    assert_eq!(drawn.bytes(), bytes);
    assert_eq!(drawn.to_string(), "00010203-0405-4607-8809-0a0b0c0d0e0f");
    Pool::format(memory.mem(), &Params { uuid: Some(drawn), ..Params::default() }).unwrap();
    assert_eq!(open(&memory).unwrap().uuid(), Some(drawn));
    let sb = head(&memory);
    let at = offset_of!(Superblock, uuid) as u64;
    let words: [u64; 2] = [at, at + 8].map(|at| memory.mem().word(at).unwrap().load(Relaxed));
    assert_eq!(words.map(u64::to_le_bytes).concat(), bytes);
    // Not a random UUID, so none.
    for (index, bit) in [(0, 0x40 << 48), (0, 0x80 << 48), (1, 0x80), (1, 0x40)] {
        let word = sb.uuid[index].load(Relaxed);
        sb.uuid[index].store(word ^ bit, Relaxed);
        assert_eq!(open(&memory).unwrap().uuid(), None, "{index} {bit:#x}");
        sb.uuid[index].store(word, Relaxed);
    }
    // A pool of an older library: whatever lies there, it has none.
    sb.compatible.store(!HAS_UUID, Relaxed);
    assert_eq!(open(&memory).unwrap().uuid(), None);
    let none = formatted(MIN);
    assert_eq!((head(&none).compatible.load(Relaxed), open(&none).unwrap().uuid()), (0, None));
}

#[test]
fn a_size_that_is_not_there_is_refused() {
    let memory = formatted(2 * MIN);
    let sb = head(&memory);
    for (size, refused) in [
        (0, OpenError::Damaged),
        (MIN_POOL - 1, OpenError::Damaged),
        (2 * MIN_POOL + 1, OpenError::Truncated),
        (1 << 40, OpenError::Truncated),
        ((1 << 40) + 1, OpenError::Damaged),
        (u64::MAX, OpenError::Damaged),
        // Smaller than what lies in it.
        (MIN_POOL, OpenError::Damaged),
    ] {
        sb.size.store(size, Relaxed);
        assert_eq!(open(&memory).unwrap_err(), refused, "size {size}");
    }
    assert_eq!(Pool::open(memory.first(MIN)).unwrap_err(), OpenError::Damaged);
}

#[test]
fn no_word_of_the_geometry_leads_out_of_the_pool() {
    let memory = formatted(MIN);
    let len = MIN as u64;
    let at = offset_of!(Superblock, geometry) as u64;
    let words = memory.mem().words(at, 24).unwrap();
    for (i, word) in words.iter().enumerate() {
        let good = word.load(Relaxed);
        let near = [good - 1, good + 1, good - 8, good + 8, good * 2, good + PAGE];
        let far = [0, 1, len - 1, len, len + 1, 1 << 32, 1 << 63, u64::MAX - 4095, u64::MAX];
        for bad in near.into_iter().chain(far) {
            word.store(bad, Relaxed);
            let Ok(pool) = open(&memory) else { continue };
            let g = pool.geometry();
            let inside = |at: u64, count: u32, each: u64| {
                let end = at.checked_add(count as u64 * each);
                assert!(
                    at >= TABLES && end.is_some_and(|e| e <= len),
                    "word {i} = {bad:#x} leads to {at:#x} + {count} * {each}"
                );
            };
            inside(g.members.0, g.members.1, size_of::<Member>() as u64);
            inside(g.procs.0, g.procs.1, size_of::<Proc>() as u64);
            inside(g.waiters.0, g.waiters.1, size_of::<Waiter>() as u64);
            for kind in Kind::ALL {
                let (entries, buckets) = (g.entries[kind as usize], g.buckets[kind as usize]);
                inside(entries.0, entries.1, kind.entry_size());
                inside(buckets.0, buckets.1, 8);
            }
            for heap in [g.small, g.pages] {
                inside(heap.table, heap.count, 8);
            }
            inside(g.small.base, g.small.count, BLOCK);
            assert!(g.pages.base <= g.small.base && g.small.end() <= g.pages.end());
            assert!(g.pages.end() <= len && g.pages.common <= g.pages.count);
        }
        word.store(good, Relaxed);
    }
    assert!(open(&memory).is_ok());
}
