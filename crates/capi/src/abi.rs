//! The structures of `<sys/shm.h>`, `<sys/sem.h>` and `<sys/msg.h>`, byte for byte as libc and the kernel lay
//! them out on 64-bit Linux. `tests/capi/abi.c` compares them with the system's headers.
#![allow(missing_docs)] // the fields are documented in shmctl(2), semctl(2), msgctl(2)

use crate::ids;
use vshmem_ipc as ipc;

/// Implemented by structures that may be copied from and to the program's memory as bytes.
///
/// # Safety
/// No padding that would leak, and every bit pattern valid.
pub unsafe trait Plain: Copy {}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct IpcPerm {
    pub key: i32,
    pub uid: u32,
    pub gid: u32,
    pub cuid: u32,
    pub cgid: u32,
    pub mode: u32,
    pub seq: u16,
    pub pad2: u16,
    pub pad3: u32,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ShmidDs {
    pub perm: IpcPerm,
    pub segsz: u64,
    pub atime: i64,
    pub dtime: i64,
    pub ctime: i64,
    pub cpid: i32,
    pub lpid: i32,
    pub nattch: u64,
    pub reserved: [u64; 2],
}

/// x86-64 keeps a word beside each time from its 32-bit days; other 64-bit machines don't.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SemidDs {
    pub perm: IpcPerm,
    pub otime: i64,
    pub reserved1: u64,
    pub ctime: i64,
    pub reserved2: u64,
    pub nsems: u64,
    pub reserved: [u64; 2],
}

#[cfg(not(target_arch = "x86_64"))]
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SemidDs {
    pub perm: IpcPerm,
    pub otime: i64,
    pub ctime: i64,
    pub nsems: u64,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct MsqidDs {
    pub perm: IpcPerm,
    pub stime: i64,
    pub rtime: i64,
    pub ctime: i64,
    pub cbytes: u64,
    pub qnum: u64,
    pub qbytes: u64,
    pub lspid: i32,
    pub lrpid: i32,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Shminfo {
    pub shmmax: u64,
    pub shmmin: u64,
    pub shmmni: u64,
    pub shmseg: u64,
    pub shmall: u64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ShmInfo {
    pub used_ids: i32,
    pub pad: i32,
    pub tot: u64,
    pub rss: u64,
    pub swp: u64,
    pub swap_attempts: u64,
    pub swap_successes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Seminfo {
    pub semmap: i32,
    pub semmni: i32,
    pub semmns: i32,
    pub semmnu: i32,
    pub semmsl: i32,
    pub semopm: i32,
    pub semume: i32,
    pub semusz: i32,
    pub semvmx: i32,
    pub semaem: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
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

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Timespec {
    pub sec: i64,
    pub nsec: i64,
}

macro_rules! plain {
    ($($name:ident: $size:expr),* $(,)?) => { $(
        const _: () = assert!(size_of::<$name>() == $size);
        // SAFETY: integers only, and the size leaves no room for padding.
        unsafe impl Plain for $name {}
    )* };
}
plain!(IpcPerm: 48, ShmidDs: 112, MsqidDs: 120, Shminfo: 72, ShmInfo: 48, Seminfo: 40, Msginfo: 32, Timespec: 16);
#[cfg(target_arch = "x86_64")]
plain!(SemidDs: 104);
#[cfg(not(target_arch = "x86_64"))]
plain!(SemidDs: 88);
// SAFETY: an integer.
unsafe impl Plain for u16 {}

impl IpcPerm {
    /// Owner and group as pools call them.
    pub fn owner(&self) -> (u32, u32) {
        (ids::users().outside(self.uid), ids::groups().outside(self.gid))
    }
}

impl From<&ipc::Perm> for IpcPerm {
    fn from(p: &ipc::Perm) -> IpcPerm {
        IpcPerm {
            key: p.key,
            uid: ids::users().inside(p.uid),
            gid: ids::groups().inside(p.gid),
            cuid: ids::users().inside(p.cuid),
            cgid: ids::groups().inside(p.cgid),
            mode: p.mode,
            seq: p.seq as u16,
            ..IpcPerm::default()
        }
    }
}
