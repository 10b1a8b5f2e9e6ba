//! A pool's handle, as threads that wait see it: a trait, so that a model checker can stand in for it.

use crate::futex;
use crate::nap::Waited;
use core::time::Duration;
use vshmem_pool::atomic::AtomicU32;
use vshmem_transport::{Handle, Slept};

/// The ways in which threads of one kernel sleep on words of a pool and are woken, and in which other
/// kernels' doorbells are rung.
pub trait Wakeups {
    /// Can threads sleep by futex on the pool's words?
    fn can_futex(&self) -> bool;
    /// Sleeps by futex while a word is `expected`.
    fn sleep_by_futex(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited;
    /// Wakes up to `n` threads that sleep by futex; returns how many.
    fn wake_by_futex(&self, word: &AtomicU32, n: u32) -> u32;
    /// Has the process a driver by which threads sleep?
    fn has_driver(&self) -> bool;
    /// Sleeps in the driver while a word is `expected`; `None`: it can't.
    fn sleep_in_driver(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Option<Waited>;
    /// Wakes up to `n` threads that sleep in the driver; `None`: it can't.
    fn wake_in_driver(&self, word: &AtomicU32, n: u32) -> Option<u32>;
    /// This kernel's peer id, if it has doorbells.
    fn peer(&self) -> Option<u16>;
    /// Rings a peer's doorbell; false: it can't.
    fn ring_doorbell(&self, peer: u16) -> bool;
}

impl Wakeups for Handle {
    fn can_futex(&self) -> bool {
        self.can_futex()
    }
    fn sleep_by_futex(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        futex::wait(word, expected, timeout)
    }
    fn wake_by_futex(&self, word: &AtomicU32, n: u32) -> u32 {
        futex::wake(word, n)
    }
    fn has_driver(&self) -> bool {
        self.has_driver()
    }
    fn sleep_in_driver(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Option<Waited> {
        Some(match self.sleep(word, expected, timeout)? {
            Slept::Woken => Waited::Woken,
            Slept::TimedOut => Waited::TimedOut,
            Slept::Interrupted => Waited::Interrupted,
        })
    }
    fn wake_in_driver(&self, word: &AtomicU32, n: u32) -> Option<u32> {
        self.wake(word, n)
    }
    fn peer(&self) -> Option<u16> {
        self.peer()
    }
    fn ring_doorbell(&self, peer: u16) -> bool {
        self.ring_doorbell(peer)
    }
}
