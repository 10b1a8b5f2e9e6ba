//! The part of a heap that can be used, and the cost of that, however many pieces there are.

use super::Memory;
use crate::budget::{Budget, CALL};
use crate::heap::{Heap, Range};
use crate::layout::{PAGE, POOL_LOG, POOL_LOG_ENTRIES};
use crate::log::{Log, Txn};
use crate::{Params, Pool};
use std::vec::Vec;

const LOG: Log = Log { at: POOL_LOG, entries: POOL_LOG_ENTRIES as u32 };
/// Units of a budget that one request may cost, and giving back.
const MOST: u64 = 800;

/// A heap, who has what of it, and the most that a request has cost.
struct Room<'a> {
    pool: &'a Pool,
    heap: &'a Heap,
    held: Vec<Range>,
    blocks: u64,
    /// Blocks of it that are free at first, or may become so.
    all: u32,
    dearest: u64,
    random: u64,
}

impl<'a> Room<'a> {
    fn new(pool: &'a Pool, heap: &'a Heap, seed: u64) -> Room<'a> {
        let all = if heap.pages { pool.pages_for_segments().1 } else { heap.count };
        Room { pool, heap, held: Vec::new(), blocks: 0, all, dearest: 0, random: seed }
    }

    /// A random number below another one (xorshift64).
    fn below(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % most
    }

    /// A random length from 1 to `most`: all orders are equally frequent.
    fn length(&mut self, most: u32) -> u32 {
        let order = self.below(u64::from(most.ilog2()) + 1);
        ((1 << order) + self.below(1 << order) as u32).min(most)
    }

    fn change<T>(&mut self, act: impl FnOnce(&Heap, &mut Txn) -> T) -> T {
        let budget = Budget::default();
        let mut change = Txn::new(self.pool, &budget, LOG);
        let result = act(self.heap, &mut change);
        change.commit().unwrap();

        self.dearest = self.dearest.max(CALL - budget.left());
        result
    }

    fn take(&mut self, count: u32) -> bool {
        let pool = self.pool;
        let range = self.change(|heap, txn| match heap.pages {
            true => heap.allocate(txn, count, &mut |_, _| true).unwrap(),
            false => pool.allocate_blocks(txn, count, &mut |_, _| true).unwrap(),
        });
        self.held.extend(range);
        self.blocks += range.map_or(0, |range| u64::from(range.count));
        range.is_some()
    }

    fn give(&mut self, which: usize) {
        let range = self.held.swap_remove(which);
        self.blocks -= u64::from(range.count);
        self.change(|heap, txn| heap.free(txn, range).unwrap());
    }

    /// The part that is used: of the whole pool, or of what may be small blocks.
    fn used(&self) -> f64 {
        self.blocks as f64 / self.of()
    }

    fn of(&self) -> f64 {
        match self.heap.pages {
            true => (self.pool.mem().len() as u64 / PAGE) as f64,
            false => f64::from(self.all),
        }
    }

    fn give_all(&mut self) {
        while !self.held.is_empty() {
            self.give(0);
        }
        assert!(self.take(self.all), "all of it is one piece again");
        self.give(0);
    }

    /// Takes random lengths for as long as there is room.
    fn fill(&mut self, most: u32) {
        loop {
            let count = self.length(most);
            if !self.take(count) {
                return;
            }
        }
    }
}

fn in_pages_of(size: u64, test: impl Fn(&mut Room)) {
    in_heap(size, true, test);
}

fn in_heap(size: u64, pages: bool, test: impl Fn(&mut Room)) {
    let memory = Memory::new(size as usize);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    let pool = Pool::open(memory.mem()).unwrap();
    let geometry = pool.geometry();
    let heap = if pages { &geometry.pages } else { &geometry.small };
    let mut room = Room::new(&pool, heap, 88172645463325252);
    test(&mut room);
    room.give_all();
    assert!(room.dearest < MOST, "{} units", room.dearest);
}

/// Runs a test in both heaps of a pool of 1 GiB.
fn in_both_heaps(test: impl Fn(&mut Room)) {
    in_heap(1 << 30, true, &test);
    in_heap(1 << 30, false, &test);
}

/// Of a pool of 64 MiB and more, 95 in a hundred bytes can be segments, of whatever lengths.
#[test]
fn segments_of_all_lengths_use_a_pool_nearly_up() {
    for size in [64 << 20, 100 << 20, 1 << 30, 12_600_000_000 / PAGE * PAGE] {
        in_pages_of(size, |room| {
            let (all, goal) = (room.all, (room.of() * 0.95) as u64);
            for most in [all, all / 2, all / 5, all / 64, all / 1000] {
                for _ in 0..5 {
                    while room.blocks < goal {
                        let count = room.length(most).min((goal - room.blocks) as u32);
                        assert!(room.take(count), "{count} of {all} at {}", room.used());
                    }
                    room.give_all();
                }
            }
        });
    }
}

/// Segments of one length are as many as there is room for.
#[test]
fn segments_of_one_length_use_all_that_there_is() {
    in_both_heaps(|room| {
        let all = if room.heap.pages { (room.of() * 0.95) as u32 } else { room.all };
        for count in [all / 3 + 1, all / 2, all / 4, all / 17, 20_001, 16_385, 513, 3] {
            for n in 0..all / count {
                assert!(room.take(count), "{n} of {count}");
            }
            room.give_all();
        }
    });
    let as_many = |size, len: u64| {
        in_pages_of(size, |room| {
            let most = size / 100 * 95 / len;
            assert!((0..most).all(|_| room.take((len / PAGE) as u32)), "{most} of {len}");
        });
    };
    for mib in [128, 191, 258] {
        as_many(1 << 30, mib << 20);
    }
    as_many(12_600_000_000 / PAGE * PAGE, 5_000_000_000 / PAGE * PAGE);
}

/// Ranges that come and go at random, of lengths up to 1 MiB in pages, have nine tenths of the pool on
/// average when the first one is refused.
#[test]
fn random_lengths_leave_little_unused() {
    in_both_heaps(|room| {
        let (mut sum, mut refused) = (0.0, 0);
        for i in 0..1_000_000 {
            let count = room.length(256);
            while !room.take(count) {
                if i >= 500_000 {
                    (sum, refused) = (sum + room.used(), refused + 1);
                }
                let which = room.below(room.held.len() as u64);
                room.give(which as usize);
            }
        }
        let used = sum / f64::from(refused);
        assert!(refused > 1000 && used > 0.9, "{used} of {refused}");
    });
}

/// The room that long ranges leave unused when they come and go is there for short ones.
#[test]
fn random_long_ones_leave_room_for_short_ones() {
    in_both_heaps(|room| {
        for _ in 0..1_000_000 {
            let count = room.length(room.all / 4);
            while !room.take(count) {
                let which = room.below(room.held.len() as u64);
                room.give(which as usize);
            }
        }
        room.fill(256);
        assert!(room.used() > 0.9, "{}", room.used());
    });
}

/// However many pieces there are, nothing takes longer.
#[test]
fn many_pieces_cost_no_more() {
    in_both_heaps(|room| {
        let most = 300.min(room.all / 300);
        room.fill(most);
        // Pieces of all lengths, none beside another one.
        room.held.sort_by_key(|range| range.first);
        let every_other = (0..room.held.len()).rev().step_by(2);
        every_other.for_each(|which| room.give(which));
        let pieces = room.held.len();
        assert!(pieces > 1000, "{pieces}");
        for _ in 0..10_000 {
            let count = room.length(most);
            if room.take(count) {
                let which = room.below(room.held.len() as u64);
                room.give(which as usize);
            }
        }
    });
}
