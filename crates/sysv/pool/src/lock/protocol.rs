//! The lock's algorithm, apart from what it needs of a pool and of the kernel.

use crate::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use crate::tuning::{FIRST_LOCK_SLEEP, LOCK_AWAKE_NS, LONGEST_LOCK_SLEEP};
use core::time::Duration;

/// The bit of a lock that is held.
pub const HELD: u32 = 1 << 30;
/// The bit of a lock on which somebody may sleep.
pub const CONTENDED: u32 = 1 << 31;
// As docs/layout.md has it.
const _: () = assert!(HELD == 1 << 30 && CONTENDED == 1 << 31);

/// Reasons for which a lock was not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// The lock's owner lives but has not let go for [`LOCK_NS`](crate::tuning::LOCK_NS).
    Owner,
    /// The lock's owner lives but has not let go for [`DEAF_NS`](crate::tuning::DEAF_NS), and a signal waits
    /// for the caller.
    Signal,
    /// The call's budget is spent.
    Spent,
    /// The caller must not wait here ([`Kernel::is_inside`](crate::Kernel::is_inside)).
    Inside,
    /// The call's own time is up.
    Late,
}

/// A pool and a kernel, as far as the algorithm needs them.
pub trait World {
    /// Is the owner that a word names certainly dead?
    fn is_dead(&self, word: u32) -> bool;
    /// Is the owner that a word names known to be stopped, and waited for as long as it is?
    fn is_stopped(&self, _word: u32) -> bool {
        false
    }
    /// Decides whether to give up, and why, after `waited` nanoseconds for owners that are not stopped, and
    /// `here` in all.
    fn gives_up(&self, waited: u64, here: u64) -> Option<Stuck>;
    /// Counts the nanoseconds that were waited for this lock.
    fn has_waited(&self, _waited: u64) {}
    /// Finishes or drops what a dead owner had begun.
    fn recover(&self);
    /// Sleeps while the word is `expected`, for `pause` at the most. False: it is not the caller's to wait
    /// any more.
    fn wait(&self, word: &AtomicU32, expected: u32, pause: Duration) -> bool;
    /// Wakes one sleeper.
    fn wake_one(&self, word: &AtomicU32);
    /// Nanoseconds of a clock.
    fn now(&self) -> u64;
    /// Rounds to spin before sleeping.
    fn spin_rounds(&self) -> u32;
    /// Pauses for a round of spinning.
    fn relax(&self);
    /// Lets others have the processor; false if that can't be done without sleeping.
    fn give_way(&self) -> bool {
        false
    }
}

/// Replaces `old` by `new`, acquiring; whether it was `old`.
#[inline]
fn replace(word: &AtomicU32, old: u32, new: u32) -> bool {
    word.compare_exchange(old, new, Acquire, Relaxed).is_ok()
}

/// Takes the lock for `mine`; returns whether it was taken over from the dead.
#[inline]
pub fn acquire<X: World>(world: &X, word: &AtomicU32, mine: u32) -> Result<bool, Stuck> {
    if replace(word, 0, mine) {
        return Ok(false);
    }
    acquire_slowly(world, word, mine)
}

/// Lets the lock go.
#[inline]
pub fn release<X: World>(world: &X, word: &AtomicU32) {
    if word.swap(0, AcqRel) & CONTENDED != 0 {
        world.wake_one(word);
    }
}

#[cold]
fn acquire_slowly<X: World>(world: &X, word: &AtomicU32, mine: u32) -> Result<bool, Stuck> {
    // A call that has waited enough for other locks does not begin again with this one.
    if let Some(stuck) = world.gives_up(0, 0) {
        return Err(stuck);
    }
    for _ in 0..world.spin_rounds() {
        if word.load(Relaxed) == 0 && replace(word, 0, mine) {
            return Ok(false);
        }
        world.relax();
    }
    let mut waited = 0;
    let result = wait_for(world, word, mine, &mut waited);
    world.has_waited(waited);
    result
}

/// `waited` becomes how many nanoseconds it took, without those in which the owner was stopped.
fn wait_for<X: World>(world: &X, word: &AtomicU32, mine: u32, waited: &mut u64) -> Result<bool, Stuck> {
    let mut pause = FIRST_LOCK_SLEEP;
    let mut seen = word.load(Relaxed);
    let begun = world.now();
    while world.give_way() {
        if word.load(Relaxed) == 0 && replace(word, 0, mine) {
            return Ok(false);
        }
        if world.now().saturating_sub(begun) > LOCK_AWAKE_NS {
            break;
        }
    }
    let mut looked = begun;
    loop {
        let now = word.load(Relaxed);
        if now == 0 && replace(word, 0, mine | CONTENDED) {
            return Ok(false);
        }
        let has_moved = now & !CONTENDED != seen & !CONTENDED;
        if has_moved {
            (seen, pause) = (now, FIRST_LOCK_SLEEP);
        } else if pause > FIRST_LOCK_SLEEP
            // No owner writes a word that is neither 0 nor held.
            && (now & HELD == 0 || world.is_dead(now))
            && replace(word, now, mine | CONTENDED)
        {
            world.recover();
            return Ok(true);
        }
        let clock = world.now();
        let stands_still = !has_moved && pause == LONGEST_LOCK_SLEEP && world.is_stopped(now);
        if !stands_still {
            *waited += clock.saturating_sub(looked);
        }
        looked = clock;
        if let Some(stuck) = world.gives_up(*waited, clock.saturating_sub(begun)) {
            return Err(stuck);
        }
        if now == 0 || now & CONTENDED == 0 && !replace(word, now, now | CONTENDED) {
            continue;
        }
        if !world.wait(word, now | CONTENDED, pause) {
            return Err(Stuck::Signal);
        }
        pause = (pause * 2).min(LONGEST_LOCK_SLEEP);
    }
}
