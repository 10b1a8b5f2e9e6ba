//! Waiting across machines: a thread sleeps until it is rung, where everybody rings; else it naps.
//!
//! Who sleeps in another kernel can't be woken by a futex. So a waker changes the word, and has the sleeper's kernel look at it again:
//! a machine rings the other through its device (vshmem.ko), and the host through the back end. Only a waiter record's status
//! is slept on so, because the record tells whose it is: exactly that member is rung. Who waits for another word, a lock
//! for instance, naps and is woken by its own kernel only: locks are held for microseconds, and a nap grows to 2 ms at most.
//!
//! # Why no wake-up is lost
//! * *The word*: the waker stores the status, then a full fence, then it rings. The driver that was rung, or the kernel at a futex's
//!   wake-up, takes its lock before it reads the words of sleepers; a sleeper compares the word and becomes one under the
//!   same lock. If it comes first, it is found with a word that has changed; if it comes later, it reads the new word itself. The status
//!   is never set back while its thread sleeps.
//! * *Whom to ring*: the record names its owner, the owner's slot its member, the member its number; all of them are written before the
//!   record is put into a queue under the construct's lock, and a waker takes it from there under the same lock. Who reads another owner
//!   is late: then the waiter has seen its status, and given the record back.
//! * *By the back end* (who is to be rung by the host): the waker sets the member's bit, then changes a word, then wakes who
//!   sleeps on that. The back end reads the word, then takes the bits, then sleeps while the word is what it was: whatever bit it did not
//!   take changes the word after it was read. A back end that dies leaves the bits to the next one.
//! * *Who does not ring*: a thread sleeps only if all members, its own included, say that they ring, and the back end lives. A member says so before its
//!   first process registers anywhere, so before it can serve; where ringing fails, it takes that back. In between (somebody joins who
//!   does not ring, the back end is killed for good) a wake-up is late: by the waiter's next look around, a quarter of a second at most.
//!
//! `model` has the first three under loom.

mod memory;
#[cfg(test)]
mod model;

use crate::{futex, nap, spin, Waited};
use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use core::time::Duration;
use vshmem_pool::{Pool, Sleeper};
use vshmem_port::{Handle, Slept};

/// A pool that several kernels use, as seen from one of them.
#[derive(Clone, Copy)]
pub struct Across<'a> {
    /// Its structures.
    pub pool: &'a Pool,
    /// Its memory, and the device behind it.
    pub handle: &'a Handle,
    /// This kernel.
    pub member: u16,
    /// What this process knows of the back end's life.
    pub pulse: &'a Pulse,
}

/// What a process remembers of the back end's beat in one pool.
#[derive(Debug, Default)]
pub struct Pulse {
    count: AtomicU64,
    /// When the count had changed, in nanoseconds of this kernel's clock; 0: never looked.
    since: AtomicU64,
}

/// A back end that has not beaten for so many nanoseconds is dead.
const SILENCE: u64 = 3_000_000_000;

impl Pulse {
    /// Nothing is known yet.
    pub const fn new() -> Pulse {
        Pulse {
            count: AtomicU64::new(0),
            since: AtomicU64::new(0),
        }
    }

    /// Has the count changed within the last seconds? Who looks for the first time takes it that it has.
    fn is_felt(&self, count: u64, now: u64) -> bool {
        let since = self.since.load(Relaxed);
        if since == 0 || self.count.load(Relaxed) != count {
            self.count.store(count, Relaxed);
            self.since.store(now.max(1), Relaxed);
            return true;
        }
        now.saturating_sub(since) < SILENCE
    }
}

impl Across<'_> {
    /// This kernel's number, and that it rings others, written down for them. To be called when the pool was opened, before it is used.
    pub fn join(&self) {
        if let Some(peer) = self.handle.peer() {
            self.pool.join_bells(self.member, peer);
        }
    }

    /// Sleeps while `word` holds `expected`, `timeout` at the most.
    pub fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
        if self.pool.waiter_of(word).is_some() && self.is_rung() {
            if let Some(waited) = self.sleep(word, expected, timeout) {
                return waited;
            }
        }
        nap::wait(word, expected, timeout, |this| {
            self.sleep(word, expected, Some(this))
        })
    }

    /// Will this kernel hear of a word that somebody else changes, whoever that is?
    fn is_rung(&self) -> bool {
        (self.handle.can_futex() || self.handle.has_driver())
            && self.pool.is_rung_by_all(self.member)
            && self
                .pool
                .last_beat()
                .is_none_or(|(count, _)| self.pulse.is_felt(count, spin::now()))
    }

    /// One sleep by this kernel's own means, if it has any for this word.
    fn sleep(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Option<Waited> {
        if self.handle.can_futex() {
            return Some(futex::wait(word, expected, timeout));
        }
        Some(match self.handle.sleep(word, expected, timeout)? {
            Slept::Woken => Waited::Woken,
            Slept::TimedOut => Waited::TimedOut,
            Slept::Interrupted => Waited::Interrupted,
        })
    }

    /// Wakes up to `n` waiters of `word`, which was changed before; returns how many, 0 where that can't be known.
    pub fn wake(&self, word: &AtomicU32, n: u32) -> u32 {
        match self.pool.sleeper_of(word) {
            Sleeper::Gone => return 0,
            Sleeper::Of(member) if member != self.member => {
                self.ring(member);
                return 0;
            }
            Sleeper::Of(_) | Sleeper::Anybody => {}
        }
        let woken = if self.handle.can_futex() {
            futex::wake(word, n)
        } else {
            self.wake_in_driver(word, n)
        };
        if woken > 0 {
            spin::woke();
        }
        woken
    }

    /// Who naps without the driver finds out alone; who has lost it leaves others asleep.
    fn wake_in_driver(&self, word: &AtomicU32, n: u32) -> u32 {
        self.handle.wake(word, n).unwrap_or_else(|| {
            if self.handle.has_driver() {
                self.pool.leave_bells(self.member);
            }
            0
        })
    }

    /// Has another member look at the words that its threads sleep on. One that has no number looks by itself.
    fn ring(&self, member: u16) {
        let Some((peer, _)) = self.pool.member_peer(member) else {
            return;
        };
        // What was changed must be seen before the ring is.
        fence(SeqCst);
        if self.handle.can_futex() {
            futex::wake(self.pool.ask_for_ring(member), 1);
        } else if !self.handle.ring(peer) {
            self.pool.leave_bells(self.member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_is_felt_while_it_changes() {
        let pulse = Pulse::new();
        assert!(pulse.is_felt(7, 1), "the first look");
        assert!(pulse.is_felt(7, SILENCE), "not silent for long");
        assert!(!pulse.is_felt(7, SILENCE + 1));
        assert!(pulse.is_felt(8, SILENCE + 2), "it beats again");
        assert!(pulse.is_felt(8, 2 * SILENCE + 1));
        assert!(!pulse.is_felt(8, 2 * SILENCE + 2));
    }
}
