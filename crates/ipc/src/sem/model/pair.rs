//! The swap of a semaphore's low word beside the swap of both words: plain operations, some with `SEM_UNDO`,
//! a death, and a reaper.
//!
//! This models `attempt` of [`super::super::fast`], and `reap` with `take_back` of [`super::super::undo`] as
//! [`super::super::slow`] does it before an operation. Both words are halves of one of loom's, read one after
//! the other: so what is read may be torn, and either half or both can be swapped. Records of adjustments are
//! left out: who would need one gives up.

use super::{check, SLOW};
use loom::sync::atomic::{AtomicU64, Ordering::*};
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

const LOW: u64 = u32::MAX as u64;

fn value(lo: u64) -> i64 {
    (lo & 0xffff) as i64
}

/// An adjustment beside the semaphore: whose, and how much. Half 0: nobody's.
#[derive(Clone, Copy)]
struct Beside {
    owner: u64,
    adjust: i64,
}

impl Beside {
    fn of(hi: u64) -> Option<Beside> {
        let (owner, adjust) = (hi >> 32 & 0xff, (hi >> 40) as i64);
        (owner != 0).then_some(Beside { owner, adjust })
    }
    fn half(self) -> u64 {
        match self.adjust {
            0 => 0,
            adjust => self.owner << 32 | (adjust as u64) << 40,
        }
    }
}

enum Attempt {
    Done,
    Blocked,
    Slow,
}

struct Semaphore {
    pair: AtomicU64,
    lock: Mutex<()>,
    /// Processes that the kernel says to be dead: bits.
    dead: AtomicU64,
}

impl Semaphore {
    fn new(value: u64) -> Semaphore {
        Semaphore { pair: AtomicU64::new(value), lock: Mutex::new(()), dead: AtomicU64::new(0) }
    }

    fn load(&self) -> (u64, u64) {
        (self.pair.load(Acquire) & LOW, self.pair.load(Acquire) & !LOW)
    }

    /// Swaps the low half; returns what the high half was then.
    fn cas_low(&self, old: u64, new: u64, hi: u64) -> Option<u64> {
        let mut now = hi | old;
        loop {
            let next = now & !LOW | new;
            match self.pair.compare_exchange(now, next, SeqCst, Relaxed) {
                Ok(_) => return Some(now & !LOW),
                Err(other) if other & LOW == old => now = other,
                Err(_) => return None,
            }
        }
    }

    fn is_dead(&self, who: u64) -> bool {
        self.dead.load(Acquire) & 1 << who != 0
    }

    fn attempt(&self, me: u64, op: i64, undo: bool) -> Attempt {
        let known = self.dead.load(Acquire);
        loop {
            let (lo, hi) = self.load();
            if lo & SLOW != 0 {
                return Attempt::Slow;
            }
            if value(lo) + op < 0 {
                return Attempt::Blocked;
            }
            let by = if undo { -op } else { 0 };
            let new_hi = match Beside::of(hi) {
                None if !undo => 0,
                None => Beside { owner: me, adjust: by }.half(),
                Some(b) if b.owner == me => Beside { adjust: b.adjust + by, ..b }.half(),
                Some(b) if !undo && !self.is_dead(b.owner) => hi,
                Some(_) => return Attempt::Slow,
            };
            let new_lo = (lo as i64 + op) as u64;
            let done = if new_hi == hi {
                let then = self.cas_low(lo, new_lo, hi);
                // What was owed by somebody whose death was known before would have come first.
                let owes = |b: Beside| known & 1 << b.owner != 0;
                assert!(!then.and_then(Beside::of).is_some_and(owes), "passed by the dead");
                then.is_some()
            } else {
                let (old, new) = (lo | hi, new_lo | new_hi);
                self.pair.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
            };
            if done {
                return Attempt::Done;
            }
        }
    }

    /// Returns by how much the value was changed.
    fn op(&self, me: u64, op: i64, undo: bool) -> i64 {
        match self.attempt(me, op, undo) {
            Attempt::Done => op,
            Attempt::Blocked => 0,
            Attempt::Slow => self.slow(op, undo),
        }
    }

    fn slow(&self, op: i64, undo: bool) -> i64 {
        let _held = self.lock.lock().unwrap();
        self.pair.fetch_or(SLOW, AcqRel);
        let hi = self.pair.load(Relaxed);
        if let Some(b) = Beside::of(hi).filter(|b| self.is_dead(b.owner)) {
            let lo = self.pair.load(Acquire);
            // Two words of a transaction.
            self.pair.store((lo as i64 + b.adjust) as u64, Release);
            let lo = self.pair.load(Relaxed);
            self.pair.store(lo & LOW, Release);
        }
        let lo = self.pair.load(Acquire);
        let possible = !undo && value(lo) + op >= 0;
        if possible {
            self.pair.store((lo as i64 + op) as u64, Release);
        }
        self.pair.fetch_and(!SLOW, AcqRel);
        if possible {
            op
        } else {
            0
        }
    }

    /// The value when everybody is dead.
    fn last(&self) -> i64 {
        self.dead.store(!0, Release);
        self.slow(0, false);
        let (lo, hi) = self.load();
        assert_eq!(hi, 0);
        value(lo)
    }
}

/// What a process does, one after the other: the operation, and whether with `SEM_UNDO`. Then it may die.
type Deeds = (&'static [(i64, bool)], bool);

/// Processes act at the same time, the last of them in this thread. What they did without `SEM_UNDO` stays,
/// all else goes.
fn play(bound: usize, first: u64, deeds: &'static [Deeds]) {
    fn act(sem: &Semaphore, me: u64, (ops, dies): Deeds) -> i64 {
        let mut sum = 0;
        for (op, undo) in ops {
            let by = sem.op(me, *op, *undo);
            sum += if *undo { 0 } else { by };
        }
        if dies {
            sem.dead.fetch_or(1 << me, Release);
        }
        sum
    }
    check(bound, move || {
        let sem = Arc::new(Semaphore::new(first));
        let (mine, theirs) = deeds.split_last().unwrap();
        let threads: Vec<_> = (1..)
            .zip(theirs)
            .map(|(me, deeds)| {
                let sem = sem.clone();
                thread::spawn(move || act(&sem, me, *deeds))
            })
            .collect();
        let mut sum = first as i64 + act(&sem, deeds.len() as u64, *mine);
        threads.into_iter().for_each(|t| sum += t.join().unwrap());
        assert_eq!(sem.last(), sum, "tokens");
    });
}

#[test]
fn plain_operations_beside_one_with_an_adjustment() {
    play(3, 1, &[(&[(-1, true), (1, true)], false), (&[(1, false), (-1, false)], false)]);
}

#[test]
fn plain_operations_beside_one_that_dies() {
    play(3, 1, &[(&[(-1, true)], true), (&[(1, false), (-1, false), (1, false)], false)]);
}

#[test]
fn two_adjustments_and_a_plain_operation() {
    play(2, 2, &[(&[(-1, true)], true), (&[(-1, true), (1, true)], false), (&[(1, false)], false)]);
}

#[test]
fn what_the_dead_owe_is_paid_once_by_two() {
    play(2, 1, &[(&[(-1, true)], true), (&[(-1, false)], false), (&[(-1, false)], false)]);
}
