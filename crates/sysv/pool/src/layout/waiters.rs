//! Waiter records: the threads that wait at IPC objects.

use crate::atomic::{AtomicI64, AtomicU32, AtomicU64};
use crate::mem::Shared;

/// A waiter record: a thread that waits for semaphores or at a queue.
#[repr(C, align(256))]
pub struct Waiter {
    /// Process slot + 1 and generation; 0: unused.
    pub owner: AtomicU64,
    /// The word that the thread sleeps on: [`WAITING`], or the end of the wait.
    pub status: AtomicU32,
    /// IPC object: `kind << 28 | index + 1`.
    pub object: AtomicU32,
    /// Next in the queue: index + 1; 0: none.
    pub next: AtomicU64,
    /// Previous in the queue: index + 1; 0: none.
    pub prev: AtomicU64,
    /// The wish of the thread: [`Waiter::semop`] or [`Waiter::message`].
    pub wanted: [AtomicU64; 5],
    /// The time when the thread began to wait, in seconds since the epoch; 0: unknown. It is shown to people,
    /// and nothing relies on it.
    pub since: AtomicI64,
    /// Zero.
    pub spare: [AtomicU64; 2],
    /// Semaphores: the operations, `num:16 | op:16 | flags:16` each.
    pub ops: [AtomicU64; 20],
}
// SAFETY: atomics only.
unsafe impl Shared for Waiter {}

/// The wish of a thread in `semop`.
#[repr(C)]
pub struct WaitingSemop {
    /// Operations.
    pub count: AtomicU64,
    /// Offset of the operations when they don't fit in [`Waiter::ops`], otherwise the set's id.
    pub at: AtomicU64,
    /// The operation that blocks, and bit 32 if any alters.
    pub blocked: AtomicU64,
    /// Low half of the caller's pid word.
    pub pid: AtomicU64,
    /// Bytes in the block at `at`; 0: there is none.
    pub block_len: AtomicU64,
}

/// The wish of a thread in `msgrcv` or `msgsnd`.
#[repr(C)]
pub struct WaitingMessage {
    /// The type asked for.
    pub kind: AtomicU64,
    /// Bytes that a receiver has room for, or that a sender has.
    pub len: AtomicU64,
    /// Flags of `msgrcv`.
    pub flags: AtomicU64,
    /// Position of the message that was handed over.
    pub position: AtomicU64,
    /// The caller's pid word.
    pub pid: AtomicU64,
}

impl Waiter {
    /// The wish of a thread that waits for semaphores.
    #[inline]
    pub fn semop(&self) -> &WaitingSemop {
        // SAFETY: five 64-bit atomics, as these are, at the same alignment.
        unsafe { &*self.wanted.as_ptr().cast() }
    }

    /// The wish of a thread that waits at a queue.
    #[inline]
    pub fn message(&self) -> &WaitingMessage {
        // SAFETY: as above.
        unsafe { &*self.wanted.as_ptr().cast() }
    }
}

/// [`Waiter::status`]: not served yet. Any other value is `DONE | errno`.
pub const WAITING: u32 = 1;
/// [`Waiter::status`]: served; the low bits are an errno or 0.
pub const DONE: u32 = 1 << 31;
/// [`Waiter::status`]: the bits that hold the errno.
pub const ERRNO: u32 = 0xffff;
