//! The one place where threads wait: `wait(word, expected, deadline)` and `wake(word, n)`, with a futex's
//! meaning.
//!
//! | scope | who may wake | how it waits |
//! | --- | --- | --- |
//! | [`Scope::Kernel`] | processes of this kernel | futex |
//! | [`Scope::Machines`] | also other kernels | on a waiter's record until the kernel's doorbell is rung, where all members ring; else by naps that grow ([`across`]) |
//!
//! The caller spins before that, since only it knows the words to look at; [`spin`] says how long that is
//! worth it.
//!
//! Nothing here uses the heap or keeps a lock.
#![deny(unsafe_op_in_unsafe_fn)]
#![no_std]

#[cfg(test)]
extern crate std;

pub mod across;
mod futex;
mod nap;
pub mod spin;
mod wakeups;

use core::time::Duration;
use vshmem_pool::atomic::{AtomicU32, Ordering};
use vshmem_pool::tuning::FEWEST_SPIN_ROUNDS;

pub use across::{Across, Heartbeat};
pub use nap::Waited;

/// The processes that may wake a waiter.
#[derive(Clone, Copy)]
pub enum Scope<'a> {
    /// Processes of this kernel only.
    Kernel,
    /// Processes of any kernel that shares the word, which is in this pool.
    Machines(Across<'a>),
}

/// Sleeps while `word` holds `expected`, `timeout` at the most. The word may be in memory shared by
/// processes.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>, scope: Scope<'_>) -> Waited {
    if word.load(Ordering::Acquire) != expected {
        return Waited::Woken;
    }
    let waited = match scope {
        Scope::Kernel => futex::wait(word, expected, timeout),
        Scope::Machines(across) => across.wait(word, expected, timeout),
    };
    spin::slept();
    waited
}

/// Wakes up to `n` waiters of `word`; returns how many, 0 where that can't be known.
pub fn wake(word: &AtomicU32, n: u32, scope: Scope<'_>) -> u32 {
    match scope {
        Scope::Kernel => {
            let woken = futex::wake(word, n);
            if woken > 0 {
                spin::woke();
            }
            woken
        }
        Scope::Machines(across) => across.wake(word, n),
    }
}

/// Rounds of looking at a word (and a [`spin::pause`]) that are worth it now; 0: sleep at once.
pub fn rounds(scope: Scope<'_>) -> u32 {
    match scope {
        Scope::Kernel => spin::rounds(),
        Scope::Machines(_) => spin::rounds_across(),
    }
}

/// Rounds that tell whether a word changes all the time, where none are worth it.
pub fn glance(scope: Scope<'_>) -> u32 {
    match scope {
        Scope::Kernel => spin::glance(),
        Scope::Machines(_) => FEWEST_SPIN_ROUNDS,
    }
}

/// Rounds that are worth it now where words change in a flow, as messages come.
pub fn rounds_in_flow(scope: Scope<'_>) -> u32 {
    match scope {
        Scope::Kernel => spin::rounds_in_flow(),
        Scope::Machines(_) => spin::rounds_in_flow_across(),
    }
}

/// Does a thread certainly sleep on `word` now? Then its process lives. False where that can't be known.
pub fn has_sleeper(word: &AtomicU32, scope: Scope<'_>) -> bool {
    matches!(scope, Scope::Kernel) && futex::has_sleeper(word)
}

/// Can a futex be had on this word? Not on memory of a PCI device.
pub fn can_futex(word: &AtomicU32) -> bool {
    futex::works_on(word)
}
