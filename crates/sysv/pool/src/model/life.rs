//! Lives and sleeps of a scene's processes.

use super::turn::{self, switching};
use core::cell::Cell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use std::vec::Vec;

std::thread_local! {
    /// The actors whose processes the kernel says to be dead, where there is one thread: bits.
    static DEAD: Cell<u64> = const { Cell::new(0) };
}

/// The word on which threads sleep: a kernel's number, and an address.
pub type SleepWord = (u16, usize);

/// A thread that sleeps.
struct Sleeper {
    word: SleepWord,
    /// The value that the word was to hold.
    expected: u32,
    actor: usize,
}

/// The panic of a thread whose process dies.
pub struct Died;

/// The kernel's part in a run.
pub struct Life {
    dead: AtomicU64,
    /// Threads that sleep, in order.
    sleepers: Mutex<Vec<Sleeper>>,
    woken: Vec<Condvar>,
}

impl Life {
    pub fn new(actors: usize, dead: u64) -> Life {
        DEAD.set(dead);
        Life {
            dead: AtomicU64::new(dead),
            sleepers: Mutex::new(Vec::new()),
            woken: (0..=actors).map(|_| Condvar::new()).collect(),
        }
    }

    /// Does the kernel say that an actor's process is dead?
    pub fn is_dead(&self, actor: usize) -> bool {
        switching(|| self.dead.load(Ordering::Acquire)) >> actor & 1 == 1
    }

    /// An actor's process is dead from now on.
    pub fn kill(&self, actor: usize) {
        switching(|| self.dead.fetch_or(1 << actor, Ordering::Release));
        kill(actor);
    }

    /// Compares and falls asleep under one lock, as futex(2) does.
    pub fn sleep(&self, on: SleepWord, expected: u32, word: impl Fn() -> u32) {
        let me = turn::actor();
        let mut sleepers = switching(|| self.sleepers.lock().unwrap());
        if word() != expected {
            return;
        }
        sleepers.push(Sleeper { word: on, expected, actor: me });
        while sleepers.iter().any(|sleeper| sleeper.actor == me) {
            sleepers = switching(|| self.woken[me].wait(sleepers).unwrap());
        }
    }

    /// Wakes up to so many that sleep there, of those whose expected value `is_wanted` agrees to, under the
    /// same lock; returns how many.
    pub fn wake(&self, on: SleepWord, n: u32, is_wanted: impl Fn(u32) -> bool) -> u32 {
        let mut sleepers = switching(|| self.sleepers.lock().unwrap());
        let mut left = n;
        sleepers.retain(|sleeper| {
            let wakes = sleeper.word == on && left > 0 && is_wanted(sleeper.expected);
            if wakes {
                left -= 1;
                switching(|| self.woken[sleeper.actor].notify_one());
            }
            !wakes
        });
        n - left
    }
}

/// The process of an actor that has come to its end is dead.
pub fn kill(actor: usize) {
    DEAD.set(DEAD.get() | 1 << actor);
}

/// Is an actor's process dead, when all have come to their end?
pub fn was_killed(actor: usize) -> bool {
    DEAD.get() >> actor & 1 == 1
}
