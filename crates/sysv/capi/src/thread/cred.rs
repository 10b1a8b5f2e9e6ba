//! The caller's credentials, exact and cheap.
//!
//! The kernel checks the credentials of the moment; a program may change them between two calls. A process
//! that is not privileged and whose real, effective and saved ids agree can't, so they are read once per
//! thread. For any other, the cached ones count only if so little time has passed since they were last looked
//! at that no system call fits in. Shortcuts ask less, see [`crate::thread::permit`].

use crate::process::raw::syscall;
use crate::process::tls::{self, CredCache};
use crate::thread::ids;
use core::sync::atomic::{compiler_fence, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use vshmem_pool::Cred;
use vshmem_transport::ids::NOBODYS;

const UNREAD: u32 = 0;
/// The state of a cache: the credentials can't change any more.
const FIXED: u32 = 1;
/// The state of a cache: the credentials were right at `looked_at`.
const CHANGING: u32 = 2;

/// Ticks of the time stamp counter that are too few for a system call that changes credentials, which has to
/// allocate, copy, check and publish them: three times what it takes to ask for the user (where this was
/// measured: 290 ticks to ask, 3100 to change). 0 until that is measured; other processors' counters tick too
/// slowly to tell.
static SHORTEST_CHANGE_TICKS: AtomicU32 = AtomicU32::new(0);

/// Bounds for [`SHORTEST_CHANGE_TICKS`], should the measurement be disturbed.
#[cfg(target_arch = "x86_64")]
const BOUNDS: (u64, u64) = (250, 20_000);

/// Measures [`SHORTEST_CHANGE_TICKS`].
#[cfg(target_arch = "x86_64")]
fn measure() {
    let ask = || {
        let begun = ticks();
        // SAFETY: a plain question.
        unsafe { syscall!(libc::SYS_geteuid) };
        ticks().wrapping_sub(begun)
    };
    let least = (0..8).map(|_| ask()).min().unwrap_or(0);
    SHORTEST_CHANGE_TICKS.store((3 * least).clamp(BOUNDS.0, BOUNDS.1) as u32, Relaxed);
}
#[cfg(not(target_arch = "x86_64"))]
fn measure() {}

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

/// Reads the counter as [`ticks`] does, and not before all that was read before it has come.
#[inline(always)]
pub fn ticks_after_loads() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of SSE2, which every x86-64 processor has.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    ticks()
}

/// Was there no time for a change of credentials between two moments?
#[inline(always)]
fn is_short(from: u64, to: u64) -> bool {
    to.wrapping_sub(from) < u64::from(SHORTEST_CHANGE_TICKS.load(Relaxed))
}

/// The calling thread's effective credentials now.
#[inline]
pub fn now() -> Cred {
    // SAFETY: the thread's own block.
    let cache = unsafe { &mut (*tls::thread()).cred };
    // What is cached is loaded before the clock is read: a handler that changes it in between takes too long
    // for the check.
    let (state, looked_at) = (cache.state, cache.looked_at);
    let cred = Cred { uid: cache.uid, gid: cache.gid, caps: cache.caps };
    compiler_fence(SeqCst);
    if state == CHANGING {
        let now = ticks();
        if !is_short(looked_at, now) {
            return read(cache);
        }
        cache.looked_at = now;
        cache.uid_at = now;
    } else if state == UNREAD {
        return read(cache);
    }
    cred
}

/// The calling thread's effective user now, as pools call it.
#[inline]
pub fn uid() -> u32 {
    // SAFETY: the thread's own block.
    let cache = unsafe { &mut (*tls::thread()).cred };
    let (state, uid, uid_at) = (cache.state, cache.uid, cache.uid_at); // first, as in `now`
    compiler_fence(SeqCst);
    if state == CHANGING {
        let now = ticks();
        if !is_short(uid_at, now) {
            return find_uid();
        }
        cache.uid_at = now;
    } else if state == UNREAD {
        return find_uid();
    }
    uid
}

/// The calling thread's effective user as the kernel says now, and whether it can't change any more. One that
/// can't need not be asked about.
pub fn asked_uid() -> (u32, bool) {
    // SAFETY: the thread's own block.
    let cache = unsafe { &mut (*tls::thread()).cred };
    let uid = if cache.state == FIXED { cache.uid } else { read(cache).uid };
    (uid, cache.state == FIXED)
}

#[cold]
fn find_uid() -> u32 {
    // SAFETY: the thread's own block.
    let cache = unsafe { &mut (*tls::thread()).cred };
    if cache.state == UNREAD {
        read(cache).uid
    } else {
        read_uid(cache)
    }
}

/// Renews the cache for a thread that has done nothing but spin since it was last here. After a gap (it was
/// preempted, or a handler ran) it stays as it is. Reading the clock takes as long as a look at a semaphore
/// or longer, so that is done in every fourth round only; that is often enough.
#[inline]
pub fn keep() {
    // SAFETY: as in `now`.
    let cache = unsafe { &mut (*tls::thread()).cred };
    if cache.state != CHANGING {
        return;
    }
    cache.rounds = cache.rounds.wrapping_add(1);
    if cache.rounds % 4 != 0 {
        return;
    }
    let now = ticks();
    if is_short(cache.uid_at, now) {
        cache.uid_at = now;
    }
    if is_short(cache.looked_at, now) {
        cache.looked_at = now;
    }
}

/// The moment until which the kernel's answer to a question of the moment `begun` counts: now, unless a
/// signal handler had the time to change the credentials after the kernel had answered. Asking takes a third
/// of SHORTEST_CHANGE_TICKS a question; a signal and a change take much longer than that.
fn counts_until(begun: u64) -> u64 {
    let now = ticks();
    if now.wrapping_sub(begun) < 2 * u64::from(SHORTEST_CHANGE_TICKS.load(Relaxed)) {
        now
    } else {
        begun
    }
}

#[cold]
fn read_uid(cache: &mut CredCache) -> u32 {
    let begun = ticks();
    // SAFETY: a plain question.
    let uid = unsafe { syscall!(libc::SYS_geteuid) } as u32;
    if uid != cache.kernel_uid {
        return read(cache).uid;
    }
    cache.uid_at = counts_until(begun);
    cache.uid
}

#[cold]
fn read(cache: &mut CredCache) -> Cred {
    if SHORTEST_CHANGE_TICKS.load(Relaxed) == 0 {
        measure();
    }
    let begun = ticks();
    let (cred, fixed) = ask_kernel();
    cache.state = UNREAD; // a handler that interrupts must not take half of it
    compiler_fence(SeqCst);
    cache.kernel_uid = cred.uid;
    cache.uid = ids::users().outside(cred.uid);
    cache.gid = ids::groups().outside(cred.gid);
    cache.caps = cred.caps;
    cache.looked_at = counts_until(begun);
    cache.uid_at = cache.looked_at;
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
    if now().gid == gid {
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

/// Looks through the groups of a process that is in more than fit on the stack.
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
