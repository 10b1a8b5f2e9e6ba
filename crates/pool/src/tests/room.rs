//! How much of a heap can be used, and what that costs, however many pieces there are.

use super::Memory;
use crate::budget::{Budget, CALL};
use crate::heap::{Heap, Range};
use crate::layout::{POOL_LOG, POOL_LOG_ENTRIES};
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
    dearest: u64,
    random: u64,
}

impl<'a> Room<'a> {
    fn new(pool: &'a Pool, heap: &'a Heap, seed: u64) -> Room<'a> {
        Room { pool, heap, held: Vec::new(), blocks: 0, dearest: 0, random: seed }
    }

    /// A random number below another one (xorshift64).
    fn below(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % most
    }

    /// From 1 to `most`, as many of each order.
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
        let range = self.change(|heap, txn| heap.allocate(txn, count, &mut |_, _| true).unwrap());
        self.held.extend(range);
        self.blocks += range.map_or(0, |range| u64::from(range.count));
        range.is_some()
    }

    fn give(&mut self, which: usize) {
        let range = self.held.swap_remove(which);
        self.blocks -= u64::from(range.count);
        self.change(|heap, txn| heap.free(txn, range).unwrap());
    }

    fn used(&self) -> f64 {
        self.blocks as f64 / f64::from(self.heap.count)
    }

    fn give_all(&mut self) {
        while !self.held.is_empty() {
            self.give(0);
        }
        assert!(self.take(self.heap.count), "all of it is one piece again");
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

/// In a pool of 1 GiB.
fn in_both_heaps(test: impl Fn(&mut Room)) {
    let memory = Memory::new(1 << 30);
    Pool::format(memory.mem(), &Params::default()).unwrap();
    let pool = Pool::open(memory.mem()).unwrap();
    for heap in [pool.geometry().pages, pool.geometry().small] {
        let mut room = Room::new(&pool, &heap, 88172645463325252);
        test(&mut room);
        room.give_all();
        assert!(room.dearest < MOST, "{} units", room.dearest);
    }
}

#[test]
fn segments_of_all_lengths_use_it_nearly_up() {
    in_both_heaps(|room| {
        let all = room.heap.count;
        let goal = u64::from(all) * 95 / 100;
        for most in [all, all / 2, all / 5, all / 64, all / 1000] {
            for _ in 0..20 {
                while room.blocks < goal {
                    let count = room.length(most).min((goal - room.blocks) as u32);
                    assert!(room.take(count), "{count} of {all} at {}", room.used());
                }
                room.give_all();
            }
        }
        // As many of one length as there is room for.
        for count in [all / 3 + 1, all / 2, all / 4, all / 17, 20_001, 16_385, 513, 3] {
            for n in 0..all / count {
                assert!(room.take(count), "{n} of {count}");
            }
            room.give_all();
        }
    });
}

/// What comes and goes at random, of lengths up to 1 MiB in pages, has nine tenths of all on average when the
/// first one is refused.
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

/// What long ones leave unused when they come and go is there for short ones.
#[test]
fn random_long_ones_leave_room_for_short_ones() {
    in_both_heaps(|room| {
        for _ in 0..1_000_000 {
            let count = room.length(room.heap.count / 4);
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
        let most = 300.min(room.heap.count / 300);
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
