//! The allocator against a plain list of who has what.

use super::Memory;
use crate::budget::{Budget, CALL};
use crate::heap::{Heap, Range};
use crate::layout::{POOL_LOG, POOL_LOG_ENTRIES};
use crate::log::{Full, Log, Txn};
use crate::{Params, Pool, MIN_POOL};
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

fn txn_log() -> Log {
    Log { at: POOL_LOG, entries: POOL_LOG_ENTRIES as u32 }
}

fn txn(pool: &Pool) -> Txn<'_> {
    // A transaction borrows it for as long as the pool.
    Txn::new(pool, Box::leak(Box::default()), txn_log())
}

fn allocate(pool: &Pool, heap: &Heap, count: u32) -> Option<Range> {
    let mut change = txn(pool);
    let range = heap.allocate(&mut change, count, &mut |_, _| true).unwrap();
    change.commit().unwrap();
    range
}

fn free(pool: &Pool, heap: &Heap, range: Range) {
    let mut change = txn(pool);
    heap.free(&mut change, range).unwrap();
    change.commit().unwrap();
}

/// Which blocks are taken, and which may not read as zeros.
struct Model {
    taken: Vec<bool>,
    dirty: Vec<bool>,
}

impl Model {
    fn take(&mut self, range: Range) {
        for b in range.first..range.first + range.count {
            assert!(!self.taken[b as usize], "block {b} was given twice");
            self.taken[b as usize] = true;
            assert!(range.dirty || !self.dirty[b as usize], "block {b} is said to read as zeros");
        }
    }

    fn give(&mut self, range: Range) {
        for b in range.first..range.first + range.count {
            self.taken[b as usize] = false;
            self.dirty[b as usize] = range.dirty;
        }
    }

    fn clean(&mut self, range: Range) {
        for b in range.first..range.first + range.count {
            assert!(!self.taken[b as usize], "block {b} is somebody's");
            self.dirty[b as usize] = false;
        }
    }

    fn nothing_soiled(&self) -> bool {
        let mut blocks = self.taken.iter().zip(&self.dirty);
        blocks.all(|(taken, dirty)| *taken || !dirty)
    }

    /// Is there a piece of so many blocks, if all that is free is merged?
    fn has_room(&self, count: u32) -> bool {
        let mut pieces = self.taken.chunks_exact(count as usize);
        pieces.any(|piece| piece.iter().all(|taken| !taken))
    }

    fn free(&self) -> u64 {
        self.taken.iter().filter(|t| !**t).count() as u64
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take(u32),
    Give { which: usize, dirty: bool },
    Merge { clean: bool },
    Clean { least: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u32..40).prop_map(Step::Take),
        1 => (40u32..200).prop_map(Step::Take),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(which, dirty)| Step::Give { which, dirty }),
        1 => any::<bool>().prop_map(|clean| Step::Merge { clean }),
        2 => (0u32..4).prop_map(|least| Step::Clean { least }),
    ]
}

fn run(pool: &Pool, heap: &Heap, steps: &[Step]) {
    let mut model =
        Model { taken: std::vec![false; heap.count as usize], dirty: std::vec![false; heap.count as usize] };
    let mut held: Vec<Range> = Vec::new();
    for step in steps {
        match *step {
            Step::Take(count) => {
                let Some(range) = allocate(pool, heap, count) else {
                    let room = !heap.pages && model.has_room(count.next_power_of_two());
                    assert!(!room, "{count} blocks are refused");
                    continue;
                };
                assert_eq!(range.count, count);
                assert!(range.first + count <= heap.count);
                model.take(range);
                held.push(range);
            }
            Step::Give { which, dirty } => {
                if held.is_empty() {
                    continue;
                }
                let range = held.swap_remove(which % held.len());
                let range = Range { dirty, ..range };
                model.give(range);
                free(pool, heap, range);
            }
            Step::Merge { clean } => {
                let mut released = Vec::new();
                let release = |at, len: u64| {
                    released.push((at, len));
                    clean
                };
                heap.merge_all(pool, || txn(pool), release).unwrap();
                for (at, len) in released {
                    let first = heap.block_at(at).unwrap() as usize;
                    for b in first..first + (len / heap.block()) as usize {
                        assert!(!model.taken[b], "block {b} was released while taken");
                        model.dirty[b] &= !clean;
                    }
                }
            }
            Step::Clean { least } => {
                let Some(range) = heap.soiled(pool, least) else {
                    assert!(least > 0 || model.nothing_soiled(), "it is not found");
                    continue;
                };
                assert!(range.dirty && range.count >= 1 << least);
                model.clean(range);
                let mut change = txn(pool);
                heap.set_clean(&mut change, range).unwrap();
                change.commit().unwrap();
            }
        }
        assert_eq!(heap.free_blocks(pool), model.free());
    }
    for range in held.drain(..) {
        let dirty = true;
        free(pool, heap, Range { dirty, ..range });
    }
    if !heap.pages {
        let all = allocate(pool, heap, heap.count).expect("all of it, without further ado");
        free(pool, heap, all);
    }
    heap.merge_all(pool, || txn(pool), |_, _| true).unwrap();
    assert_eq!(heap.free_blocks(pool), heap.count as u64);
    // All in as few pieces as at the beginning: the largest one can be had, and reads as zeros.
    let largest = 1 << heap.count.ilog2();
    let range = allocate(pool, heap, largest).expect("the largest piece is whole again");
    assert!(!range.dirty);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_given_twice_and_everything_comes_back(
        steps in proptest::collection::vec(step(), 1..150),
        pages in any::<bool>(),
    ) {
        let memory = Memory::new(MIN_POOL as usize);
        Pool::format(memory.mem(), &Params::default()).unwrap();
        let pool = Pool::open(memory.mem()).unwrap();
        let heap = if pages { pool.geometry().pages } else { pool.geometry().small };
        run(&pool, &heap, &steps);
    }
}

#[test]
fn impossible_requests_are_refused() {
    let memory = Memory::new(MIN_POOL as usize);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    let pool = Pool::open(memory.mem()).unwrap();
    let heap = pool.geometry().pages;
    assert_eq!(allocate(&pool, &heap, 0), None);
    assert_eq!(allocate(&pool, &heap, heap.count + 1), None);
    assert_eq!(allocate(&pool, &heap, u32::MAX), None);
    assert_eq!(heap.blocks_for(u64::MAX), None);
    assert_eq!(heap.blocks_for(0), Some(1));
    assert_eq!(heap.block_at(heap.base - 4096), None);
    assert_eq!(heap.block_at(heap.base + 1), None);
    assert_eq!(heap.block_at(heap.offset(heap.count)), None);
    // Giving back what never was in the heap changes nothing.
    let before = heap.free_blocks(&pool);
    for (first, count) in [(heap.count, 1), (0, heap.count + 1), (u32::MAX, u32::MAX)] {
        free(&pool, &heap, Range { first, count, dirty: false });
    }
    assert_eq!(heap.free_blocks(&pool), before);
}

#[test]
fn what_was_not_committed_did_not_happen() {
    let memory = Memory::new(MIN_POOL as usize);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    let pool = Pool::open(memory.mem()).unwrap();
    let heap = pool.geometry().small;
    let before = heap.free_blocks(&pool);
    let range = heap.allocate(&mut txn(&pool), 5, &mut |_, _| true).unwrap().unwrap();
    assert_eq!(heap.free_blocks(&pool), before);
    assert_eq!(allocate(&pool, &heap, 5), Some(range));
}

#[test]
fn what_is_not_free_is_not_cleaned() {
    let memory = Memory::new(MIN_POOL as usize);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    let pool = Pool::open(memory.mem()).unwrap();
    let heap = pool.geometry().pages;
    assert_eq!(heap.soiled(&pool, 0), None);
    let taken = allocate(&pool, &heap, 8).unwrap();
    free(&pool, &heap, Range { dirty: true, ..taken });
    let found = heap.soiled(&pool, 3).unwrap();
    assert!(found.first <= taken.first && found.count >= 8);
    // Somebody has taken it since it was found.
    let again = allocate(&pool, &heap, 8).unwrap();
    assert!(again.dirty);
    assert!(heap.set_clean(&mut txn(&pool), found).is_err());
    free(&pool, &heap, again);
    // What it says of itself is not believed.
    let found = heap.soiled(&pool, 3).unwrap();
    let longer = Range { count: found.count * 2, ..found };
    assert!(heap.set_clean(&mut txn(&pool), longer).is_err());
    let mut change = txn(&pool);
    heap.set_clean(&mut change, found).unwrap();
    change.commit().unwrap();
    assert_eq!(heap.soiled(&pool, 0), None);
    assert_eq!(allocate(&pool, &heap, 8).map(|r| r.dirty), Some(false));
}

#[test]
fn a_large_piece_comes_of_mixed_ones() {
    let memory = Memory::new(MIN_POOL as usize);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    let pool = Pool::open(memory.mem()).unwrap();
    let heap = pool.geometry().pages;
    let largest = 1 << heap.count.ilog2();
    let taken: Vec<Range> = std::iter::from_fn(|| allocate(&pool, &heap, 1)).collect();
    for range in taken {
        let dirty = range.first % 16 == 0;
        free(&pool, &heap, Range { dirty, ..range });
    }
    assert_eq!(allocate(&pool, &heap, largest), None);
    heap.merge_all(&pool, || txn(&pool), |_, _| false).unwrap();
    assert_eq!(allocate(&pool, &heap, largest).map(|r| r.dirty), Some(true));
}

/// Two sizes in turn, of which one does not fit into what the other has left.
#[test]
fn sizes_in_turn_leave_no_pieces() {
    let memory = Memory::new(MIN_POOL as usize);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    let pool = Pool::open(memory.mem()).unwrap();
    for (heap, dirty) in
        [(pool.geometry().small, true), (pool.geometry().small, false), (pool.geometry().pages, false)]
    {
        for round in 0..20_000u32 {
            for count in [19, 2, 1 + round % 7] {
                let range = allocate(&pool, &heap, count).expect("all of it is free");
                free(&pool, &heap, Range { dirty, ..range });
            }
        }
        let largest = 1 << heap.count.ilog2();
        let range = allocate(&pool, &heap, largest).expect("all of it is free");
        free(&pool, &heap, range);
    }
}

/// Taking and giving one size splits and merges no other.
#[test]
fn the_same_size_again_and_again_is_cheap() {
    let memory = Memory::new(MIN_POOL as usize);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    let pool = Pool::open(memory.mem()).unwrap();
    const MOST: u64 = 150;
    let heap = pool.geometry().small;
    let budget = Budget::default();
    let log = txn_log();
    for round in 0..100 {
        let mut change = Txn::new(&pool, &budget, log);
        let range = heap.allocate(&mut change, 1, &mut |_, _| true).unwrap().unwrap();
        change.commit().unwrap();
        let mut change = Txn::new(&pool, &budget, log);
        heap.free(&mut change, range).unwrap();
        change.commit().unwrap();
        if round == 0 {
            budget.renew();
        }
    }
    assert!(budget.spend(CALL - 99 * MOST), "more than {MOST} units each");
}

/// A budget that is spent ends it, but not for nothing.
#[test]
fn who_merges_goes_on_where_the_last_one_ended() {
    let memory = Memory::new(8 << 20);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    let pool = Pool::open(memory.mem()).unwrap();
    let heap = pool.geometry().pages;
    let taken: Vec<Range> = std::iter::from_fn(|| allocate(&pool, &heap, 1)).collect();
    for range in taken {
        let dirty = range.first % 2 == 0;
        free(&pool, &heap, Range { dirty, ..range });
    }
    assert_eq!(allocate(&pool, &heap, 2), None);
    let merge = || {
        let budget = Budget::new(10_000);
        heap.merge_all(&pool, || Txn::new(&pool, &budget, txn_log()), |_, _| false)
    };
    assert_eq!(merge(), Err(Full));
    let some = allocate(&pool, &heap, 32).expect("much of it is merged");
    free(&pool, &heap, some);
    let more = (0..100).take_while(|_| merge() == Err(Full)).count();
    assert!((1..99).contains(&more), "{more} times more");
    let largest = 1 << heap.count.ilog2();
    assert!(allocate(&pool, &heap, largest).is_some());
}
