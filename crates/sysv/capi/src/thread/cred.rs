//! The caller's credentials, as the kernel has them at the moment.
//!
//! A program may change them between two calls. A process that is not privileged and whose real, effective
//! and saved ids agree can't, so they are read once per thread. Of any other the kernel is asked each time.
//! Shortcuts ask less, see [`crate::thread::permit`].

use crate::process::raw::syscall;
use crate::process::tls::{self, CredCache};
use crate::thread::ids;
use core::sync::atomic::{compiler_fence, Ordering::SeqCst};
use vshmem_pool::Cred;
use vshmem_transport::ids::NOBODYS;

const UNREAD: u32 = 0;
/// The state of a cache: the credentials can't change any more.
const FIXED: u32 = 1;
/// They may have changed since they were read.
const CHANGING: u32 = 2;

/// The time stamp counter; 0 where there is none.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the counter; Linux lets user space read it unless a process forbade
    // itself to.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The calling thread's effective credentials now.
#[inline]
pub fn now() -> Cred {
    // SAFETY: the thread's own block.
    let cache = unsafe { &mut (*tls::thread()).cred };
    match cache.state {
        FIXED => Cred { uid: cache.uid, gid: cache.gid, caps: cache.caps },
        _ => read(cache),
    }
}

/// The calling thread's effective user now, as pools call it.
#[inline]
pub fn uid() -> u32 {
    // SAFETY: the thread's own block.
    let cache = unsafe { &mut (*tls::thread()).cred };
    match cache.state {
        FIXED => cache.uid,
        CHANGING => read_uid(cache),
        _ => read(cache).uid,
    }
}

/// The calling thread's effective user as the kernel says now, and whether it can't change any more. One that
/// can't need not be asked about.
pub fn asked_uid() -> (u32, bool) {
    // SAFETY: the thread's own block.
    let cache = unsafe { &mut (*tls::thread()).cred };
    let uid = if cache.state == FIXED { cache.uid } else { read(cache).uid };
    (uid, cache.state == FIXED)
}

/// The calling thread's effective group now, as pools call it.
fn effective_gid() -> u32 {
    // SAFETY: the thread's own block.
    let cache = unsafe { &(*tls::thread()).cred };
    match cache.state {
        FIXED => cache.gid,
        // SAFETY: a plain question.
        _ => ids::groups().outside(unsafe { syscall!(libc::SYS_getegid) } as u32),
    }
}

/// The user, if it is the one that was read: that takes one system call instead of three.
#[cold]
fn read_uid(cache: &mut CredCache) -> u32 {
    let (uid, kernel_uid) = (cache.uid, cache.kernel_uid);
    // A handler that reads it anew meanwhile changes what was loaded before.
    compiler_fence(SeqCst);
    // SAFETY: a plain question.
    if unsafe { syscall!(libc::SYS_geteuid) } as u32 == kernel_uid {
        uid
    } else {
        read(cache).uid
    }
}

#[cold]
fn read(cache: &mut CredCache) -> Cred {
    let (cred, fixed) = ask_kernel();
    cache.state = UNREAD; // a handler that interrupts must not take half of it
    compiler_fence(SeqCst);
    cache.kernel_uid = cred.uid;
    cache.uid = ids::users().outside(cred.uid);
    cache.gid = ids::groups().outside(cred.gid);
    cache.caps = cred.caps;
    compiler_fence(SeqCst);
    cache.state = if fixed { FIXED } else { CHANGING };
    Cred { uid: cache.uid, gid: cache.gid, caps: cred.caps }
}

/// The effective credentials, and whether they can never change.
fn ask_kernel() -> (Cred, bool) {
    let (mut uids, mut gids) = ([0u32; 3], [0u32; 3]);
    // Version 3 of the interface: two 32-bit halves of {effective, permitted, inheritable}.
    let header = [0x2008_0522u32, 0];
    let mut sets = [[0u32; 3]; 2];
    let (u, g) = (uids.as_mut_ptr(), gids.as_mut_ptr());
    // SAFETY: three words each are written; the capability sets are as long as version 3 says.
    unsafe {
        syscall!(libc::SYS_getresuid, u, u.add(1), u.add(2));
        syscall!(libc::SYS_getresgid, g, g.add(1), g.add(2));
        syscall!(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr());
    }
    let caps = u64::from(sets[0][0]) | u64::from(sets[1][0]) << 32;
    let permitted = u64::from(sets[0][1]) | u64::from(sets[1][1]) << 32;
    let same = |ids: [u32; 3]| ids[0] == ids[1] && ids[1] == ids[2];
    (Cred { uid: uids[1], gid: gids[1], caps }, same(uids) && same(gids) && permitted == 0)
}

/// Linux's limit on supplementary groups.
const MOST_GROUPS: usize = 65536;

/// Is the calling thread in the group that pools call `gid`, by its effective group or a supplementary one?
pub fn in_group(gid: u32) -> bool {
    if gid == NOBODYS {
        return false;
    }
    if effective_gid() == gid {
        return true;
    }
    let is_it = |group: &u32| ids::groups().outside(*group) == gid;
    let mut few = [0u32; 64];
    // SAFETY: the kernel writes at most as many groups as the first argument says.
    let n = unsafe { syscall!(libc::SYS_getgroups, few.len(), few.as_mut_ptr()) };
    if n >= 0 {
        return few[..n as usize].iter().any(is_it);
    }
    in_many_groups(is_it)
}

/// For a process in more groups than fit on the stack.
#[cold]
fn in_many_groups(is_it: impl Fn(&u32) -> bool) -> bool {
    let bytes = MOST_GROUPS * size_of::<u32>();
    let memory = crate::process::raw::map_private(bytes);
    if memory.is_null() {
        return false;
    }
    // SAFETY: the mapping holds MOST_GROUPS words; the kernel says how many it wrote; it is unmapped after
    // its last use.
    unsafe {
        let n = syscall!(libc::SYS_getgroups, MOST_GROUPS, memory);
        let groups = core::slice::from_raw_parts(memory.cast::<u32>(), n.max(0) as usize);
        let found = groups.iter().any(is_it);
        crate::process::raw::unmap(memory, bytes);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_those_of_the_kernel() {
        // SAFETY: plain questions.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        for _ in 0..3 {
            let cred = now();
            assert_eq!((cred.uid, cred.gid), (uid, gid));
        }
        assert!(in_group(gid));
        assert_eq!(in_many_groups(|group| *group == 0xfff0_1234), in_group(0xfff0_1234));
        assert!(!in_group(NOBODYS));
    }
}
