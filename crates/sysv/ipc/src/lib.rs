//! The upper half: System V shared memory, semaphores and message queues on a pool.
//!
//! Semantics are Linux's (`ipc/shm.c`, `ipc/sem.c`, `ipc/msg.c` as described in shmget(2), semop(2), msgop(2)
//! and their neighbours), down to errno values and the order in which waiters are served. Nothing here knows
//! how a pool comes to be shared, and nothing makes a system call but through [`Kernel`].
#![deny(unsafe_op_in_unsafe_fn)]
#![no_std]

#[cfg(test)]
extern crate std;

pub mod census;
pub mod check;
mod directory;
mod end_waits;
pub mod errno;
mod give_way;
pub mod liveness;
pub mod msg;
mod perm;
pub mod reclaim;
pub mod sem;
pub mod shm;
pub mod stats;
mod waiters;

#[cfg(all(test, feature = "model"))]
mod modelled;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::Proc;

pub use directory::await_lock;
pub use end_waits::interrupt;
pub use errno::Errno;
pub use liveness::{hand_over, leave, undo};
pub use perm::Granted;
pub use vshmem_pool::{Budget, Cred, Ctx, Kernel, Pool, ProcId, Waited};

/// `IPC_PRIVATE`.
pub const IPC_PRIVATE: i32 = 0;
/// `IPC_CREAT`.
pub const IPC_CREAT: i32 = 0o1000;
/// `IPC_EXCL`.
pub const IPC_EXCL: i32 = 0o2000;
/// `IPC_NOWAIT`.
pub const IPC_NOWAIT: i32 = 0o4000;

/// Owner, creator and permissions of an IPC object, as in `struct ipc_perm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perm {
    /// Key, 0 if private or removed.
    pub key: i32,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Creator.
    pub cuid: u32,
    /// Creator's group.
    pub cgid: u32,
    /// Permissions and, for segments, `SHM_DEST` and `SHM_LOCKED`.
    pub mode: u32,
    /// Sequence number.
    pub seq: u32,
}

/// The caller's pid as the pool keeps it: `name spaces << 32 | member << 22 | pid`.
pub(crate) fn pid_word(c: &Ctx) -> u64 {
    u64::from(c.namespace) << 32 | short_pid_word(c.member, c.pid)
}

/// The pid word of any process, by its slot.
pub(crate) fn pid_word_in(slot: &Proc, member: u16, pid: u32) -> u64 {
    slot.started.load(Relaxed) & !0xffff_ffff | short_pid_word(member, pid)
}

/// The pid of a process that may be dead, as records keep it; 0 if the slot has another owner by now.
pub(crate) fn pid_word_of(c: &Ctx, who: ProcId) -> u64 {
    match (c.process(who.slot), c.proc(who.slot)) {
        (Some((id, member, pid)), Some(slot)) if id == who => pid_word_in(slot, member, pid),
        _ => 0,
    }
}

/// The part of a pid word that a semaphore has room for: `member << 22 | pid`.
pub(crate) const fn short_pid_word(member: u16, pid: u32) -> u64 {
    (member as u64 & 0x3ff) << 22 | pid as u64 & 0x3f_ffff
}
// As docs/layout.md has it.
const _: () = assert!(short_pid_word(0x3ff, 0) == 0x3ff << 22 && short_pid_word(0, u32::MAX) == 0x3f_ffff);

/// The pid in a pid word.
pub fn pid_of(word: u64) -> i32 {
    (word & 0x3f_ffff) as i32
}

/// The member in a pid word as the `*_ds` records of this crate give it.
pub fn member_of(word: u64) -> u16 {
    (word >> 22 & 0x3ff) as u16
}

/// Does an id come from Vshmem?
pub fn is_ours(id: i32) -> bool {
    id >= 0 && id as u32 & vshmem_pool::layout::ID_BIT != 0
}
