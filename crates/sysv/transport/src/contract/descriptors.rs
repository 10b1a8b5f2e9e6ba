//! Checks: the transport stays out of the program's way, and works whatever the program does with its
//! descriptors.

use core::ffi::CStr;
use std::format;
use std::string::String;
use std::vec::Vec;

use super::child::in_child;
use super::subject::{ensure, same, Check, Open, Outcome, Subject, Verdict, READ_WRITE};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "descriptors: one high number, closed by exec, none left over", make: one_high },
    Check { name: "descriptors: closed standard ones stay closed", make: closed_standard },
    Check { name: "descriptors: a tiny limit is respected", make: tiny_limit },
    Check { name: "descriptors: everything works after the program closed all", make: closed_all },
    Check { name: "descriptors: a reused number is left alone", make: reused },
    Check { name: "descriptors: memory can be had with none at all", make: none_at_all },
    Check { name: "descriptors: everything but new locks works after chroot", make: chroot_kept },
    Check { name: "descriptors: memory can be had after chroot and closing all", make: chroot_lost },
    Check { name: "descriptors: memory can be had after setuid and closing all", make: setuid_lost },
    Check { name: "descriptors: errno is left alone", make: errno_kept },
];

/// A slot that nobody uses.
const SLOT: u32 = 65_000;
/// No descriptor below this may ever be kept.
const LOWEST: i32 = 10;

/// The open descriptors of this process, without the one by which they are read.
fn open_numbers() -> Result<Vec<i32>, String> {
    // Asked one by one, since reading /proc takes a descriptor itself. Beyond 4096 there is none in these
    // checks. SAFETY: a query.
    Ok((0..4096).filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1).collect())
}

/// Descriptors that were opened since `before`.
fn opened_since(before: &[i32]) -> Result<Vec<i32>, String> {
    Ok(open_numbers()?.into_iter().filter(|fd| !before.contains(fd)).collect())
}

/// Closes descriptors from `first` on.
pub(super) fn close_from(first: u32) -> Result<(), String> {
    // SAFETY: only called in children, which have no use for them.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    same(closed, 0, "close_range")
}

/// Memory can be mapped, reserved and released.
fn memory_works(pool: &Open) -> Result<(), String> {
    pool.fill(11, 11);
    let at = pool.map(11, libc::PROT_READ)?;
    // SAFETY: mapped above.
    let byte = unsafe { at.read_volatile() };
    same(byte, 11, "the byte of a mapped range")?;
    let other = pool.handle.map(pool.page_at(10), pool.page as usize, Some(at as usize), READ_WRITE);
    same(other.err(), Some(crate::MapError::AddressInUse), "mapping at an address in use")?;
    let beside = pool
        .handle
        .map_beside(None, pool.page_at(11), pool.page as usize, at as usize, READ_WRITE)
        .map_err(|error| format!("mapping beside: {error}"))?
        .ok_or("there is no descriptor")?;
    // SAFETY: nobody uses either.
    let moved = unsafe { (pool.handle).move_over(beside, pool.page as usize, at as usize) };
    same(moved.err(), None, "moving over what is there")?;
    // SAFETY: mapped above, for writing too.
    unsafe { at.write_volatile(12) };
    same(pool.get(pool.page_at(11)), 12, "the byte written through a mapped range")?;
    pool.unmap(at);
    reserve_and_release(pool)
}

/// Memory can be reserved and released.
fn reserve_and_release(pool: &Open) -> Result<(), String> {
    ensure(pool.handle.reserve(pool.page_at(11), 2 * pool.page), "could not reserve")?;
    let zeroed = pool.handle.release(pool.page_at(11), pool.page);
    same(zeroed, pool.handle.zeroes_on_release(), "whether a released page is zero")?;
    if zeroed {
        same(pool.get(pool.page_at(11)), 0, "a released byte")?;
    }
    Ok(())
}

/// Locks can be taken and seen.
fn liveness_works(pool: &Open) -> Result<(), String> {
    same(pool.handle.alive(SLOT), Some(false), "an unused slot")?;
    let liveness = pool.handle.claim_liveness(SLOT).ok_or("the slot could not be claimed")?;
    same(pool.handle.alive(SLOT), Some(true), "the slot after it was claimed")?;
    // SAFETY: claimed above, by this process.
    unsafe { liveness.end() };
    same(pool.handle.alive(SLOT), Some(false), "the slot after its end")
}

fn one_high(subject: &Subject) -> Outcome {
    in_child(|| {
        close_from(3)?;
        let before = open_numbers()?;
        let pool = subject.open()?;
        memory_works(&pool)?;
        liveness_works(&pool)?;
        let liveness = pool.handle.claim_liveness(SLOT).ok_or("the slot could not be claimed")?;
        let kept = opened_since(&before)?;
        ensure(kept.len() == 1, &format!("keeps {} descriptors: {kept:?}", kept.len()))?;
        let lowest = lowest_allowed();
        ensure(kept[0] >= lowest, &format!("keeps number {}, below {lowest}", kept[0]))?;
        // SAFETY: a query.
        let flags = unsafe { libc::fcntl(kept[0], libc::F_GETFD) };
        same(flags, libc::FD_CLOEXEC, "its flags")?;
        // SAFETY: claimed above.
        unsafe { liveness.end() };
        pool.close();
        same(opened_since(&before)?, Vec::new(), "what is open after closing the pool")
    })?;
    Ok(Verdict::Passed)
}

/// The lowest number that may be taken when most are free.
fn lowest_allowed() -> i32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills in one structure.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    ((limit.rlim_cur.min(1024) / 2) as i32).max(LOWEST)
}

fn closed_standard(subject: &Subject) -> Outcome {
    in_child(|| {
        close_from(0)?;
        let pool = subject.open()?;
        memory_works(&pool)?;
        liveness_works(&pool)?;
        let low: Vec<i32> = open_numbers()?.into_iter().filter(|&fd| fd < LOWEST).collect();
        same(low, Vec::new(), "low numbers in use")
    })?;
    Ok(Verdict::Passed)
}

fn tiny_limit(subject: &Subject) -> Outcome {
    // A named pool takes two to open, its directory's and its own, and one when that is done.
    for limit in [5, 16, 64] {
        in_child(|| {
            close_from(3)?;
            set_descriptor_limit(limit)?;
            let pool = subject.open()?;
            memory_works(&pool)?;
            liveness_works(&pool)?;
            let low: Vec<i32> = open_numbers()?.into_iter().filter(|fd| (3..LOWEST).contains(fd)).collect();
            same(low, Vec::new(), "low numbers in use")
        })
        .map_err(|message| format!("limit {limit}: {message}"))?;
    }
    Ok(Verdict::Passed)
}

/// Limits the numbers that this child can get.
fn set_descriptor_limit(limit: u64) -> Result<(), String> {
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: concerns this child only.
    same(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0, "setrlimit")
}

fn closed_all(subject: &Subject) -> Outcome {
    let inherited = subject.open()?;
    in_child(|| {
        let own = subject.open()?;
        for _ in 0..2 {
            close_from(0)?;
            for pool in [&inherited, &own] {
                memory_works(pool)?;
                liveness_works(pool)?;
            }
        }
        let low: Vec<i32> = open_numbers()?.into_iter().filter(|&fd| fd < LOWEST).collect();
        same(low, Vec::new(), "low numbers in use")
    })?;
    memory_works(&inherited)?;
    inherited.close();
    Ok(Verdict::Passed)
}

fn reused(subject: &Subject) -> Outcome {
    in_child(|| {
        close_from(3)?;
        let pool = subject.open()?;
        let kept: Vec<i32> = open_numbers()?.into_iter().filter(|&fd| fd > 2).collect();
        let null = open_null()?;
        for &fd in &kept {
            // SAFETY: the check's very point.
            same(unsafe { libc::dup2(null, fd) }, fd, "dup2")?;
        }
        memory_works(&pool)?;
        liveness_works(&pool)?;
        for &fd in &kept {
            ensure(is_null(fd), "the program's descriptor was closed or replaced")?;
        }
        pool.close();
        for &fd in &kept {
            ensure(is_null(fd), "the program's descriptor was closed with the pool")?;
        }
        Ok(())
    })?;
    Ok(Verdict::Passed)
}

/// Opens /dev/null.
fn open_null() -> Result<i32, String> {
    // SAFETY: a terminated string.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    ensure(null >= 0, "/dev/null can't be opened")?;
    Ok(null)
}

/// Whether a number is open on /dev/null.
fn is_null(fd: i32) -> bool {
    let stat = crate::sys::fstat(fd);
    stat.is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == 0x103)
}

/// Checks a pool of which neither the descriptor nor the path is left.
fn check_lost(pool: &Open) -> Result<(), String> {
    if pool.handle.may_go() {
        // A device's memory can't be mapped without its file. Nothing breaks, and what is mapped stays.
        let outcome = pool.map(11, READ_WRITE);
        ensure(outcome.is_err(), "mapped a device without its file")?;
        pool.put(pool.page_at(11), 1);
        reserve_and_release(pool)?;
    } else {
        memory_works(pool)?;
    }
    same(pool.handle.alive(SLOT), None, "whether a slot is alive")?;
    ensure(pool.handle.claim_liveness(SLOT).is_none(), "took a lock on no file")?;
    same(pool.handle.free_memory(), None, "the room on the file system")
}

/// Closes all descriptors of this child for good.
pub(super) fn lose_all() -> Result<(), String> {
    close_from(0)?;
    set_descriptor_limit(0)
}

fn none_at_all(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    in_child(|| {
        lose_all()?;
        check_lost(&pool)
    })?;
    pool.close();
    Ok(Verdict::Passed)
}

/// Whether this process may change its root directory and user.
fn is_root() -> bool {
    crate::sys::effective_user() == 0
}

/// Changes the root directory to one where nothing is.
fn lock_in() -> Result<(), String> {
    let empty: &CStr = c"/proc/self/fdinfo";
    // SAFETY: terminated strings; concerns this child only. The directory shows nothing that a path of ours
    // names.
    let done = unsafe { libc::chroot(empty.as_ptr()) == 0 && libc::chdir(c"/".as_ptr()) == 0 };
    ensure(done, "chroot failed")?;
    let found = crate::sys::open(c"/proc/self", libc::O_RDONLY, 0);
    ensure(found.is_err(), "/proc is still there after chroot")
}

fn chroot_kept(subject: &Subject) -> Outcome {
    if !is_root() {
        return Ok(Verdict::Skipped("needs root"));
    }
    let pool = subject.open()?;
    in_child(|| {
        let liveness = pool.handle.claim_liveness(SLOT).ok_or("the slot could not be claimed")?;
        lock_in()?;
        memory_works(&pool)?;
        same(pool.handle.alive(SLOT), Some(true), "the own slot")?;
        same(pool.handle.alive(SLOT + 1), Some(false), "an unused slot")?;
        // SAFETY: claimed above.
        unsafe { liveness.end() };
        same(pool.handle.alive(SLOT), Some(false), "the own slot after its end")
    })?;
    pool.close();
    Ok(Verdict::Passed)
}

fn chroot_lost(subject: &Subject) -> Outcome {
    if !is_root() {
        return Ok(Verdict::Skipped("needs root"));
    }
    let pool = subject.open()?;
    in_child(|| {
        lock_in()?;
        close_from(0)?;
        check_lost(&pool)
    })?;
    pool.close();
    Ok(Verdict::Passed)
}

fn setuid_lost(subject: &Subject) -> Outcome {
    const NOBODY: u32 = 65_534;
    if !is_root() {
        return Ok(Verdict::Skipped("needs root"));
    }
    let pool = subject.open()?;
    in_child(|| {
        // SAFETY: concerns this child only.
        let done = unsafe { libc::setgroups(0, core::ptr::null()) == 0 && libc::setuid(NOBODY) == 0 };
        ensure(done, "setuid failed")?;
        memory_works(&pool)?;
        same(pool.handle.alive(SLOT), Some(false), "an unused slot")?;
        if subject.transport.open(subject.pool).is_ok() {
            // Everybody may open this pool, so nothing is lost by closing it.
            return Ok(());
        }
        close_from(0)?;
        check_lost(&pool)
    })?;
    pool.close();
    Ok(Verdict::Passed)
}

fn errno_kept(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    // SAFETY: errno is the calling thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *errno = 4711 };
    let handle = &pool.handle;
    let _ = subject.open()?;
    let _ = handle.map(0, 0, None, READ_WRITE);
    let _ = handle.map(pool.scratch, pool.page as usize, Some(pool.page as usize), -1);
    let _ = handle.reserve(u64::MAX, 1);
    let _ = handle.alive(SLOT);
    // SAFETY: as above.
    let errno = unsafe { *errno };
    pool.close();
    same(errno, 4711, "errno")?;
    Ok(Verdict::Passed)
}
