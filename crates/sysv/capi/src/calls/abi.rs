//! The structures of `<sys/shm.h>`, `<sys/sem.h>` and `<sys/msg.h>`: how they are filled, and those that the
//! crate `libc` lacks, byte for byte as the kernel lays them out on 64-bit Linux. `tests/capi/abi.c` compares
//! their sizes with the system's headers.
#![allow(missing_docs)] // the fields are documented in shmctl(2) and msgctl(2)

use crate::thread::ids;
use libc::{ipc_perm, msqid_ds, semid_ds, seminfo, shmid_ds};
use vshmem_ipc as ipc;

/// Structures that may be copied from and to the program's memory as bytes.
///
/// # Safety
/// No padding between fields that would leak, and every bit pattern valid.
pub unsafe trait Plain: Copy {
    /// A structure whose bytes are all zero, those of reserved fields included.
    fn blank() -> Self {
        // SAFETY: every bit pattern is valid.
        unsafe { core::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Shminfo {
    pub shmmax: u64,
    pub shmmin: u64,
    pub shmmni: u64,
    pub shmseg: u64,
    pub shmall: u64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ShmInfo {
    pub used_ids: i32,
    pub pad: i32,
    pub tot: u64,
    pub rss: u64,
    pub swp: u64,
    pub swap_attempts: u64,
    pub swap_successes: u64,
}

/// `struct msginfo`; libc's ends in padding.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Msginfo {
    pub msgpool: i32,
    pub msgmap: i32,
    pub msgmax: i32,
    pub msgmnb: i32,
    pub msgmni: i32,
    pub msgssz: i32,
    pub msgtql: i32,
    pub msgseg: u16,
    pub pad: u16,
}

macro_rules! plain {
    ($($name:ident: $size:expr),* $(,)?) => { $(
        const _: () = assert!(size_of::<$name>() == $size);
        // SAFETY: integers only, and the size leaves no room for padding.
        unsafe impl Plain for $name {}
    )* };
}
plain!(ipc_perm: 48, shmid_ds: 112, msqid_ds: 120, Shminfo: 72, ShmInfo: 48, seminfo: 40, Msginfo: 32);
// x86-64 keeps a word beside each time from its 32-bit days; other 64-bit machines don't.
plain!(semid_ds: if cfg!(target_arch = "x86_64") { 104 } else { 88 });

/// The owner and group of an IPC object, as pools call them.
pub fn owner(perm: &ipc_perm) -> (u32, u32) {
    (ids::users().outside(perm.uid), ids::groups().outside(perm.gid))
}

/// The permissions of an IPC object, with users and groups as this kernel calls them.
pub fn perm(p: &ipc::Perm) -> ipc_perm {
    let mut perm = ipc_perm::blank();
    perm.__key = p.key;
    perm.uid = ids::users().inside(p.uid);
    perm.gid = ids::groups().inside(p.gid);
    perm.cuid = ids::users().inside(p.cuid);
    perm.cgid = ids::groups().inside(p.cgid);
    perm.mode = p.mode as _;
    perm.__seq = p.seq as u16;
    perm
}
