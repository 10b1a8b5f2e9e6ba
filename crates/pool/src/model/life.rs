//! Who lives, who sleeps, and who wakes whom.

use super::turn::{self, switching};
use core::cell::Cell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use std::vec::Vec;

std::thread_local! {
    /// Whom the kernel says to be dead, where there is one thread.
    static DEAD: Cell<u64> = const { Cell::new(0) };
}

/// How a thread ends whose process dies.
pub struct Died;

/// What a run has of the kernel.
pub struct Life {
    dead: AtomicU64,
    /// Who sleeps, in order: the word's address, and the actor.
    sleepers: Mutex<Vec<(usize, usize)>>,
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
    pub fn sleep(&self, at: usize, is_expected: impl Fn() -> bool) {
        let me = turn::actor();
        let mut sleepers = switching(|| self.sleepers.lock().unwrap());
        if !is_expected() {
            return;
        }
        sleepers.push((at, me));
        while sleepers.iter().any(|(_, who)| *who == me) {
            sleepers = switching(|| self.woken[me].wait(sleepers).unwrap());
        }
    }

    /// Wakes up to so many who sleep on the word at an address; returns how many.
    pub fn wake(&self, at: usize, n: u32) -> u32 {
        let mut sleepers = switching(|| self.sleepers.lock().unwrap());
        let mut left = n;
        sleepers.retain(|(word, who)| {
            let wakes = *word == at && left > 0;
            if wakes {
                left -= 1;
                switching(|| self.woken[*who].notify_one());
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
