//! Growth of the small heap into pages, and what segments have of the common ones.

use super::Memory;
use crate::atomic::Ordering::Relaxed;
use crate::budget::Budget;
use crate::heap::audit::Audit;
use crate::heap::{Heap, Range};
use crate::layout::{BLOCK, PAGE, POOL_LOG, POOL_LOG_ENTRIES};
use crate::log::{Log, Txn};
use crate::{Params, Pool};
use std::vec::Vec;

const LOG: Log = Log { at: POOL_LOG, entries: POOL_LOG_ENTRIES as u32 };
const SIZE: u64 = 64 << 20;

/// A pool, and how often one that was changing it has died.
struct Scene {
    pool: Pool,
    deaths: u32,
    _memory: Memory,
}

impl Scene {
    fn new(params: &Params) -> Scene {
        let memory = Memory::new(SIZE as usize);
        Pool::format(memory.mem(), params).unwrap();
        Scene { pool: Pool::open(memory.mem()).unwrap(), deaths: 0, _memory: memory }
    }

    /// A change that somebody dies in each time: before it is committed, and then between two of its stores.
    fn change<T: PartialEq + core::fmt::Debug>(&mut self, act: impl Fn(&mut Txn) -> T) -> T {
        let budget = Budget::default();
        let dropped = act(&mut Txn::new(&self.pool, &budget, LOG));
        let mut change = Txn::new(&self.pool, &budget, LOG);
        let result = act(&mut change);
        assert_eq!(dropped, result);
        let word = |at| self.pool.mem.word(at).unwrap();
        let count = change.entries();
        word(POOL_LOG).store(count.into(), Relaxed);
        self.deaths += 1;
        for entry in 0..self.deaths % (count + 1) {
            let at = POOL_LOG + 16 + u64::from(entry) * 16;
            word(word(at).load(Relaxed)).store(word(at + 8).load(Relaxed), Relaxed);
        }
        LOG.recover(&self.pool, &budget);
        result
    }

    fn blocks(&mut self, count: u32) -> Option<Range> {
        let pool = self.pool;
        self.change(|txn| pool.allocate_blocks(txn, count, &mut |_, _| true).unwrap())
    }

    fn pages(&mut self, count: u32) -> Option<Range> {
        let heap = self.pool.geometry().pages;
        self.change(|txn| heap.allocate(txn, count, &mut |_, _| true).unwrap())
    }

    fn free(&mut self, heap: Heap, range: Range) {
        self.change(|txn| heap.free(txn, range).unwrap());
    }

    /// Every page is free, or held, or the small heap's, and so is every block.
    fn is_sound(&self, blocks: &[Range], pages: &[Range]) {
        let (first, count) = self.pool.pages_for_segments();
        let geometry = self.pool.geometry();
        let end = self.pool.root().small_end.load(Relaxed) as u32;
        assert_eq!(geometry.small.offset(end), geometry.pages.offset(first));
        assert_eq!(first + count, geometry.pages.count);
        let beyond = Range::new(end, geometry.small.count - end, false);
        let before = Range::new(0, first, false);
        for (heap, held, others) in [(geometry.small, blocks, beyond), (geometry.pages, pages, before)] {
            let mut known = std::vec![0; heap.audit_words()];
            let mut audit = Audit::new(&self.pool, &heap, &mut known).unwrap();
            audit.walk(|block, fault| panic!("block {block}: {fault:?}"));
            for range in held.iter().chain([&others]).filter(|range| range.count > 0) {
                assert!(audit.claim(range.first, range.count), "{range:?}");
            }
            audit.nobodys(|first, count| panic!("{count} blocks from {first} on are nobody's"));
        }
    }
}

#[test]
fn the_small_heap_takes_pages_as_it_needs_them() {
    for align in [PAGE, 2 << 20] {
        let mut scene = Scene::new(&Params { align, ..Params::default() });
        let heap = scene.pool.geometry().small;
        let (_, pages_at_first) = scene.pool.pages_for_segments();
        let mut held = Vec::new();
        while let Some(range) = scene.blocks(700) {
            held.push(range);
            scene.is_sound(&held, &[]);
        }
        let taken: u32 = held.iter().map(|range| range.count).sum();
        assert!(heap.count - taken < 700, "{taken} of {}", heap.count);
        let (common, pages) = scene.pool.pages_for_segments();
        assert_eq!(common, scene.pool.geometry().pages.common);
        let grown = u64::from(pages_at_first - pages) * PAGE;
        assert!(grown >= SIZE / 16 && grown % align == 0, "{grown}");
        // What it took it keeps.
        held.drain(..).for_each(|range| scene.free(heap, range));
        scene.is_sound(&[], &[]);
        assert_eq!(scene.pool.pages_for_segments().1, pages);
        assert!(scene.blocks(heap.count).is_some());
    }
}

/// Segments leave common pages alone as long as there are others, and then take them from the far end.
#[test]
fn segments_have_common_pages_last() {
    let mut scene = Scene::new(&Params::default());
    let heap = scene.pool.geometry().pages;
    let mut held = Vec::new();
    for count in [100, 3, 900].into_iter().cycle() {
        let range = scene.pages(count).unwrap();
        if range.first < heap.common {
            assert_eq!(range.first + range.count, held.iter().map(|held: &Range| held.first).min().unwrap());
            held.push(range);
            break;
        }
        held.push(range);
    }
    let taken: u32 = held[..held.len() - 1].iter().map(|range| range.count).sum();
    assert!(heap.count - heap.common - taken < 900, "{taken}");
    // A set still has room.
    let blocks = scene.blocks(3000).unwrap();
    scene.is_sound(&[blocks], &held);
    while let Some(range) = scene.pages(1) {
        held.push(range);
    }
    let end = scene.pool.root().small_end.load(Relaxed) as u32;
    assert_eq!(scene.blocks(end), None);
    scene.is_sound(&[blocks], &held);
    // As soon as the pages behind it are given back, it may have them.
    let next = held.iter().position(|held| held.first == scene.pool.pages_for_segments().0).unwrap();
    let given = held.swap_remove(next);
    scene.free(heap, given);
    let free = scene.pool.geometry().small.free_blocks(&scene.pool) as u32;
    let more = scene.blocks(free + (u64::from(given.count) * PAGE / BLOCK) as u32).unwrap();
    scene.is_sound(&[blocks, more], &held);
}

/// The end of the small heap stands in the pool, where a member may write anything.
#[test]
fn an_end_that_can_not_be_is_not_followed() {
    let mut scene = Scene::new(&Params::default());
    let small = scene.pool.geometry().small;
    let end = scene.pool.root().small_end.load(Relaxed);
    for lie in [0, 1, end - 16, end + 16, end + 1, small.count.into(), u64::from(small.count) + 1, u64::MAX] {
        scene.pool.root().small_end.store(lie, Relaxed);
        let (first, count) = scene.pool.pages_for_segments();
        assert_eq!(first + count, scene.pool.geometry().pages.count);
        scene.change(|txn| scene_blocks(txn, small.count));
        let after = scene.pool.root().small_end.load(Relaxed);
        assert!(after == lie || after <= small.count.into(), "{lie}: {after}");
    }
}

fn scene_blocks(txn: &mut Txn, count: u32) -> bool {
    let pool = txn.pool();
    matches!(pool.allocate_blocks(txn, count, &mut |_, _| true), Ok(Some(_)))
}
