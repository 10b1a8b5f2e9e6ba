//! The lock's algorithm under loom: every interleaving of a few threads.

use super::protocol::{acquire, release, Word, World, HELD};
use core::time::Duration;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::vec::Vec;

impl Word for AtomicU32 {
    fn read(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
    fn replace(&self, old: u32, new: u32) -> bool {
        self.compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    fn exchange(&self, new: u32) -> u32 {
        self.swap(new, Ordering::AcqRel)
    }
}

/// A futex and a few owners, of which one may die.
struct Small {
    futex: Mutex<()>,
    sleepers: Condvar,
    /// Owner 1 is dead.
    dead: AtomicBool,
    /// Somebody finished what the dead had begun.
    recovered: AtomicU32,
    /// Sleeps end by themselves: only where nobody wakes, because death wakes nobody.
    timeouts: bool,
}

impl Small {
    fn new(timeouts: bool) -> Small {
        Small {
            futex: Mutex::new(()),
            sleepers: Condvar::new(),
            dead: AtomicBool::new(false),
            recovered: AtomicU32::new(0),
            timeouts,
        }
    }
}

impl World<AtomicU32> for Small {
    fn is_dead(&self, word: u32) -> bool {
        word & 0xffff == 1 && self.dead.load(Ordering::Acquire)
    }
    fn gives_up(&self, _waited: u64, _here: u64) -> Option<super::Stuck> {
        None
    }
    fn recover(&self) {
        self.recovered.fetch_add(1, Ordering::Relaxed);
    }
    fn wait(&self, word: &AtomicU32, expected: u32, _pause: Duration) -> bool {
        if self.timeouts {
            thread::yield_now();
            return true;
        }
        let held = self.futex.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(self.sleepers.wait(held).unwrap());
        }
        true
    }
    fn wake_one(&self, _word: &AtomicU32) {
        drop(self.futex.lock().unwrap());
        self.sleepers.notify_one();
    }
    fn now(&self) -> u64 {
        0
    }
    fn spin_rounds(&self) -> u32 {
        0
    }
    fn relax(&self) {
        thread::yield_now();
    }
}

/// Two owners exclude each other, and none sleeps for ever: sleeps have no timeout here, so a lost wake-up is
/// a deadlock, which loom reports.
#[test]
fn excludes_and_loses_no_wake_up() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((AtomicU32::new(0), UnsafeCell::new(0u32), Small::new(false)));
        let threads: Vec<_> = (2..4)
            .map(|slot| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (word, data, world) = &*shared;
                    assert_eq!(acquire(world, word, HELD | slot), Ok(false));
                    // SAFETY: the lock is held, which is what is being tested: loom reports a concurrent
                    // access.
                    data.with_mut(|d| unsafe { *d += 1 });
                    release(world, word);
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        // SAFETY: the threads are gone.
        assert_eq!(shared.1.with(|d| unsafe { *d }), 2);
        assert_eq!(shared.0.load(Ordering::Relaxed), 0);
    });
}

/// An owner dies at some point; of two others exactly one takes the lock over and repairs, and both get it.
#[test]
fn is_taken_over_from_the_dead_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let shared = Arc::new((AtomicU32::new(HELD | 1), UnsafeCell::new(0u32), Small::new(true)));
        shared.2.dead.store(true, Ordering::Release);
        let threads: Vec<_> = (2..4)
            .map(|slot| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (word, data, world) = &*shared;
                    assert!(acquire(world, word, HELD | slot).is_ok());
                    // SAFETY: as above.
                    data.with_mut(|d| unsafe { *d += 1 });
                    release(world, word);
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(shared.2.recovered.load(Ordering::Relaxed), 1);
        // SAFETY: the threads are gone.
        assert_eq!(shared.1.with(|d| unsafe { *d }), 2);
    });
}
