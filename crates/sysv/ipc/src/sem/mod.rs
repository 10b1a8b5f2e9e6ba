//! V-sem: semaphore sets (semget(2), semop(2), semctl(2)).
//!
//! A semaphore is a [`Pair`](vshmem_pool::pair::Pair): `{value:16, SLOW:1, generation:15, pid word:32}` and
//! `{undo owner's slot + 1:16, its generation:16, adjustment:16}`.
//!
//! # Why it is correct
//! * *Fast path* ([`fast`]): one compare-and-swap of the pair. Value, last pid and the adjustment of the one
//!   process that has one change together, so a death before or after it leaves nothing half done. The
//!   generation keeps a late comer off a new set in the same memory.
//! * *Slow path* ([`slow`]): under the set's lock. It sets SLOW before it reads a semaphore; from then on
//!   fast paths leave that semaphore alone, so what was read stays true until it is written through the redo
//!   log, which also clears SLOW unless a waiter needs it.
//! * *Waiters*: a semaphore that a waiter's operations name is SLOW for as long as the waiter stands in the
//!   queue. Every change of it hence goes through the lock, and the changer serves the queue before it lets
//!   go. A waiter registers under the same lock, after it found that it can't proceed. So none is missed.
//! * *Waiters that died* are not served: whether a waiter lives is asked under the lock, before it is given
//!   anything.

mod cancel;
pub(crate) mod check;
mod contend;
mod ctl;
mod fast;
mod get;
mod hand_over;
mod lock;
#[cfg(all(test, feature = "model"))]
mod model;
mod perform;
mod remove;
mod repay;
mod serve;
mod set;
pub mod shortcut;
mod slow;
mod undo;
mod waiter;

pub(crate) use cancel::{drop_waiter, interrupt};
pub(crate) use ctl::finish_removals;
pub use ctl::{
    getall, getncnt, getpid, getval, getzcnt, highest, info, nsems, set, setall, setval, stat, stat_index,
    SemDs, SemInfo,
};
pub use fast::op;
pub use get::get;
pub use hand_over::hand_over;
pub(crate) use hand_over::hand_over_at;
pub use remove::remove;
pub(crate) use repay::{reap_process, undo_own};

/// `SEM_UNDO`.
pub const SEM_UNDO: i16 = 0x1000;
/// Largest value of a semaphore (`SEMVMX`).
pub const SEMVMX: i32 = 32767;

/// One operation, as `struct sembuf`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sembuf {
    /// Semaphore.
    pub num: u16,
    /// The number to add; 0: wait for zero.
    pub op: i16,
    /// `IPC_NOWAIT`, `SEM_UNDO`.
    pub flg: i16,
}

impl Sembuf {
    fn word(self) -> u64 {
        self.num as u64 | (self.op as u16 as u64) << 16 | (self.flg as u16 as u64) << 32
    }
    fn of_word(word: u64) -> Sembuf {
        Sembuf { num: word as u16, op: (word >> 16) as i16, flg: (word >> 32) as i16 }
    }
    /// Does it fail where it would have to wait?
    #[inline(always)]
    pub fn nowait(self) -> bool {
        self.flg as i32 & crate::IPC_NOWAIT != 0
    }
    /// Does it change the value, without `SEM_UNDO`?
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        (self.op != 0) & !self.undo()
    }
    /// Is it taken back when the process ends?
    #[inline(always)]
    pub fn undo(self) -> bool {
        self.flg & SEM_UNDO != 0
    }
}

/// The outcome of an attempt by the fast path.
enum Attempt {
    /// The operations were performed.
    Done,
    /// A value is in the way. The semaphore's low word was this.
    Blocked(u64),
    /// Not a matter for the fast path.
    Slow,
}
