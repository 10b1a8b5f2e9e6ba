//! V-shmem: segments (shmget(2), shmat(2), shmctl(2)).
//!
//! A segment is a range of pages. Mapping it into an address space is the caller's business ([`attach()`]
//! says which bytes to map); here are the attachments, process by process. All of it runs under the pool's
//! lock: none of it is on a data path.

mod attach;
mod ctl;
mod destroy;
mod extent;
mod get;
mod holds;
mod kept;
mod pending;

pub use attach::{
    attach, attach_by, detach, detach_by, fork, inherit, look, note_detached, settle, settle_all,
};
pub use ctl::{highest, info, lock, maker_of_removed, remove, set, size, stat, stat_index, ShmDs, ShmInfo};
pub(crate) use destroy::{is_removed, is_unmapped, reap_inherited, reap_process, reap_removed};
pub use extent::Extent;
pub use get::get;
pub(crate) use holds::each as each_hold;
pub use holds::Detached;
pub(crate) use kept::leave;
pub(crate) use pending::reap as reap_pending_pages;

/// `SHM_RDONLY`.
pub const SHM_RDONLY: i32 = 0o10000;
/// `SHM_EXEC`.
pub const SHM_EXEC: i32 = 0o100000;
/// `SHM_HUGETLB`.
pub const SHM_HUGETLB: i32 = 0o4000;
/// `SHM_NORESERVE`.
pub const SHM_NORESERVE: i32 = 0o10000;
/// Mode bit: removed, destroyed with the last detach.
pub const SHM_DEST: u32 = 0o1000;
/// Mode bit: locked in memory.
pub const SHM_LOCKED: u32 = 0o2000;
