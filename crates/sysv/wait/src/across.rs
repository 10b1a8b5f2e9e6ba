//! Waiting across machines: a thread sleeps until its kernel's doorbell is rung, where all members ring; else
//! it naps.
//!
//! A futex can't wake a thread of another kernel. So a waker changes the word, and has the sleeper's kernel
//! look at it again: a machine rings the other's doorbell through its device (vshmem.ko), and the host
//! through the back end. Threads sleep so on a waiter record's status alone, because the record tells whose
//! it is: the waker rings exactly that member's doorbell. A thread that waits for another word, a lock for
//! instance, naps and is woken by its own kernel only: locks are held for microseconds, and a nap grows to 2
//! ms at most.
//!
//! # Why no wake-up is lost
//! * *The word*: the waker stores the status, then comes a full fence, then it rings the doorbell. The driver
//!   whose doorbell it is, or the kernel at a futex's wake-up, takes its lock before it reads the words of
//!   sleepers; a sleeper compares the word and becomes one under the same lock. If it comes first, it is
//!   found with a word that has changed; if it comes later, it reads the new word itself. The status is never
//!   set back while its thread sleeps.
//! * *Whose doorbell*: the record names its owner, the owner's slot its member, the member its number; all of
//!   them are written before the record is put into a queue under the IPC object's lock, and a waker takes it
//!   from there under the same lock. A waker that reads another owner is late: the waiter has seen its
//!   status, and given the record back.
//! * *By the back end* (doorbells that the host rings): the waker sets the member's bit, then changes a word,
//!   then wakes the thread that sleeps on that. The back end reads the word, takes the bits, and sleeps while
//!   the word is what it was: a bit that it did not take changes the word after it was read. A back end that
//!   dies leaves the bits to the next one.
//! * *Members that don't ring*: a thread sleeps only if all members, its own included, say that they ring
//!   doorbells, and the back end lives. A member says so before its first process registers anywhere, so
//!   before it can serve; where ringing fails, it takes that back. In between (a member joins that does not
//!   ring, the back end is killed for good) a wake-up is late: by the waiter's next look around, a quarter of
//!   a second at most.
//!
//! `model` has this code under a model checker.

mod memory;
#[cfg(all(test, feature = "model"))]
mod model;

use crate::nap::{self, Waited};
use crate::spin;
use crate::wakeups::Wakeups;
use core::time::Duration;
use vshmem_pool::atomic::{fence, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use vshmem_pool::tuning::SILENCE_NS;
use vshmem_pool::{Pool, Sleeper};
use vshmem_transport::Handle;

/// A pool that several kernels use, as seen from one of them.
pub struct Across<'a, H = Handle> {
    /// Its structures.
    pub pool: &'a Pool,
    /// Its memory, and the device behind it.
    pub handle: &'a H,
    /// This kernel.
    pub member: u16,
    /// The back end's heartbeat, as this process has seen it.
    pub heartbeat: &'a Heartbeat,
}

impl<H> Clone for Across<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Across<'_, H> {}

/// The back end's heartbeat in one pool, as a process remembers it.
#[derive(Debug, Default)]
pub struct Heartbeat {
    count: AtomicU64,
    /// The time at which the count had changed, in nanoseconds of this kernel's clock; 0: never looked.
    since: AtomicU64,
}

impl Heartbeat {
    /// A heartbeat of which nothing is known yet.
    pub const fn new() -> Heartbeat {
        Heartbeat { count: AtomicU64::new(0), since: AtomicU64::new(0) }
    }

    /// Has the count changed within the last seconds? At the first look it counts as changed.
    fn is_alive(&self, count: u64, now: u64) -> bool {
        let since = self.since.load(Relaxed);
        if since == 0 || self.count.load(Relaxed) != count {
            self.count.store(count, Relaxed);
            self.since.store(now.max(1), Relaxed);
            return true;
        }
        now.saturating_sub(since) < SILENCE_NS
    }
}

impl<H: Wakeups> Across<'_, H> {
    /// Writes down this kernel's number, and that it rings the doorbells of others. To be called when the
    /// pool was opened, before it is used.
    pub fn join(&self) {
        if let Some(peer) = self.handle.peer() {
            self.pool.join_doorbells(self.member, peer);
        }
    }

    /// Sleeps while `word` holds `expected`, `timeout` at the most.
    pub fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        if self.pool.waiter_of(word).is_some() && self.is_rung() {
            if let Some(waited) = self.sleep(word, expected, timeout) {
                return waited;
            }
        }
        nap::wait(word, expected, timeout, |this| self.sleep(word, expected, Some(this)))
    }

    /// Will this kernel's doorbell be rung for a word that another member changes, whichever that is?
    fn is_rung(&self) -> bool {
        (self.handle.can_futex() || self.handle.has_driver())
            && self.pool.is_rung_by_all(self.member)
            && self.pool.last_heartbeat().is_none_or(|(count, _)| self.heartbeat.is_alive(count, spin::now()))
    }

    /// One sleep by this kernel's own means, if it has any for this word.
    fn sleep(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Option<Waited> {
        if self.handle.can_futex() {
            return Some(self.handle.sleep_by_futex(word, expected, timeout));
        }
        self.handle.sleep_in_driver(word, expected, timeout)
    }

    /// Wakes up to `n` waiters of `word`, which was changed before; returns how many, 0 where that can't be
    /// known.
    pub fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        match self.pool.sleeper_of(word) {
            Sleeper::Gone => return 0,
            Sleeper::Of(member) if member != self.member => {
                self.ring_doorbell(member);
                return 0;
            }
            Sleeper::Of(_) | Sleeper::Anybody => {}
        }
        let woken = if self.handle.can_futex() {
            self.handle.wake_by_futex(word, n)
        } else {
            self.wake_in_driver(word, n)
        };
        if woken > 0 {
            spin::woke();
        }
        woken
    }

    /// Without the driver, threads nap and find out alone. A process that has lost it would leave others
    /// asleep.
    fn wake_in_driver(&self, word: &AtomicU32, n: u32) -> u32 {
        self.handle.wake_in_driver(word, n).unwrap_or_else(|| {
            if self.handle.has_driver() {
                self.pool.leave_doorbells(self.member);
            }
            0
        })
    }

    /// Rings another member's doorbell, so that it looks at the words that its threads sleep on. A member
    /// without a number looks by itself.
    fn ring_doorbell(&self, member: u16) {
        let Some((peer, _)) = self.pool.member_peer(member) else {
            return;
        };
        // What was changed must be seen before the doorbell is.
        fence(SeqCst);
        if self.handle.can_futex() {
            self.handle.wake_by_futex(self.pool.request_doorbell(member), 1);
        } else if !self.handle.ring_doorbell(peer) {
            self.pool.leave_doorbells(self.member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_seen_while_it_changes() {
        let heartbeat = Heartbeat::new();
        assert!(heartbeat.is_alive(7, 1), "the first look");
        assert!(heartbeat.is_alive(7, SILENCE_NS), "not silent for long");
        assert!(!heartbeat.is_alive(7, SILENCE_NS + 1));
        assert!(heartbeat.is_alive(8, SILENCE_NS + 2), "it heartbeats again");
        assert!(heartbeat.is_alive(8, 2 * SILENCE_NS + 1));
        assert!(!heartbeat.is_alive(8, 2 * SILENCE_NS + 2));
    }
}
