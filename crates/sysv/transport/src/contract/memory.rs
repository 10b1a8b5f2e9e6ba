//! Checks: memory is shared, mapped where it should be, reserved and released.

use core::ffi::c_void;
use core::ptr;
use std::format;
use std::string::String;

use super::child::{in_child, Child, End};
use super::subject::{ensure, same, Check, Open, Outcome, Subject, Verdict, READ_WRITE};
use crate::MapError;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "memory: two handles show the same bytes", make: two_handles },
    Check { name: "memory: two processes show the same bytes", make: two_processes },
    Check { name: "memory: bytes stay when everybody has closed", make: reopened },
    Check { name: "memory: a mapped range shows the pool", make: mapped_range },
    Check { name: "memory: a read-only range can be read, not written", make: read_only },
    Check { name: "memory: a fixed address is honoured", make: fixed_address },
    Check { name: "memory: the pool's own mapping can't be replaced", make: own_mapping },
    Check { name: "memory: ranges outside the pool are refused", make: outside },
    Check { name: "memory: reserving keeps contents", make: reserve_keeps },
    Check { name: "memory: released pages read as promised", make: release_zeroes },
    Check { name: "memory: releasing spares parts of pages", make: release_spares_parts },
    Check { name: "memory: released pages read as promised after mlockall", make: release_locked },
    Check { name: "memory: futexes work, or are said not to", make: futexes },
];

fn two_handles(subject: &Subject) -> Outcome {
    let (one, other) = (subject.open()?, subject.open()?);
    let at = one.page_at(0) + 5;
    for value in [1, 200] {
        one.put(at, value);
        same(other.get(at), value, "the other handle's byte")?;
    }
    ensure(one.handle.mem().base() != other.handle.mem().base(), "both are one mapping")?;
    one.close();
    other.close();
    Ok(Verdict::Passed)
}

fn two_processes(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let at = pool.page_at(0);
    pool.put(at, 3);
    in_child(|| {
        let own = subject.open()?;
        same(own.get(at), 3, "the parent's byte")?;
        own.put(at, 4);
        // What was mapped before the fork is shared as well.
        pool.put(at + 1, 5);
        Ok(())
    })?;
    same((pool.get(at), pool.get(at + 1)), (4, 5), "the child's bytes")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn reopened(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let at = pool.page_at(1);
    pool.put(at, 99);
    pool.close();
    let pool = subject.open()?;
    same(pool.get(at), 99, "the byte written before")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn mapped_range(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    pool.fill(2, 2);
    pool.fill(3, 3);
    let at = pool.map(3, READ_WRITE)?;
    // SAFETY: one page is mapped at `at`.
    unsafe {
        same(at.read_volatile(), 3, "the first byte of the range")?;
        at.write_volatile(33);
    }
    same(pool.get(pool.page_at(3)), 33, "the byte written through the range")?;
    pool.unmap(at);
    same(pool.get(pool.page_at(3)), 33, "the byte after the range was unmapped")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn read_only(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    pool.fill(2, 7);
    let child = Child::start(|_| {
        let at = pool.map(2, libc::PROT_READ)?;
        // SAFETY: one page is mapped at `at` for reading. The write must end this process, whose end it is
        // meant to be.
        unsafe {
            let done = libc::mprotect(at.cast(), pool.page as usize, READ_WRITE);
            same(done, -1, "making the range writable")?;
            same(at.read_volatile(), 7, "the first byte of the range")?;
            at.write_volatile(8);
        }
        Err("the write went through".into())
    })?;
    let (end, message) = child.wait();
    ensure(end == End::Killed(libc::SIGSEGV), &format!("{end:?} {message}"))?;
    same(pool.get(pool.page_at(2)), 7, "the byte afterwards")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn fixed_address(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let len = pool.page as usize;
    let free = free_address(len)?;
    pool.fill(4, 44);
    let map = || pool.handle.map(pool.page_at(4), len, Some(free), READ_WRITE);
    same(map().map(|at| at as usize), Ok(free), "mapping at a free address")?;
    same(map().err(), Some(MapError::AddressInUse), "mapping at an address in use")?;
    pool.fill(5, 55);
    let beside = pool
        .handle
        .map_beside(None, pool.page_at(5), len, free, READ_WRITE)
        .map_err(|error| format!("mapping beside: {error}"))?
        .ok_or("there is no descriptor")?;
    // SAFETY: mapped above.
    let byte = || unsafe { (free as *const u8).read_volatile() };
    same(byte(), 44, "the byte there, before")?;
    // SAFETY: nobody uses either.
    let moved = unsafe { pool.handle.move_over(beside, len, free) };
    same(moved.err(), None, "moving over what is there")?;
    same(byte(), 55, "the byte there")?;
    pool.unmap(free as *mut u8);
    pool.close();
    Ok(Verdict::Passed)
}

/// An address where so many bytes could be mapped, at a multiple of the length.
fn free_address(len: usize) -> Result<usize, String> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, taken away again.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), 2 * len, libc::PROT_NONE, flags, -1, 0);
        ensure(at != libc::MAP_FAILED, "no address space")?;
        libc::munmap(at, 2 * len);
        Ok((at as usize).next_multiple_of(len))
    }
}

fn own_mapping(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let len = pool.page as usize;
    let base = pool.handle.mem().base() as usize;
    let end = base + pool.handle.mem().len();
    for at in [base, end - len] {
        let outcome = pool.handle.map_beside(None, pool.page_at(0), len, at, READ_WRITE);
        same(outcome.err(), Some(MapError::AddressInUse), "mapping over the pool")?;
    }
    let before = base - len;
    let outcome = pool.handle.map_beside(None, pool.page_at(0), 2 * len, before, READ_WRITE);
    same(outcome.err(), Some(MapError::AddressInUse), "mapping over the pool's first page")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn outside(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let (page, size) = (pool.page, pool.handle.mem().len() as u64);
    for (offset, len) in [(size, page), (size - page, 2 * page), (u64::MAX - page + 1, page), (0, 0)] {
        let outcome = pool.handle.map(offset, len as usize, None, READ_WRITE);
        same(outcome.err(), Some(MapError::OutOfRange), &format!("mapping {len} at {offset}"))?;
    }
    let len = page as usize;
    let outcome = pool.handle.map(pool.scratch + 1, len, None, READ_WRITE);
    same(outcome.err(), Some(MapError::Misaligned), "mapping from the middle of a page")?;
    let outcome = pool.handle.map(pool.scratch, len - 1, None, READ_WRITE);
    same(outcome.err(), Some(MapError::Misaligned), "mapping a part of a page")?;
    let outcome = pool.handle.map(pool.scratch, len, Some(len / 2), READ_WRITE);
    same(outcome.err(), Some(MapError::Misaligned), "mapping at an odd address")?;
    let outcome = pool.handle.map(pool.scratch, len, Some(0usize.wrapping_sub(len)), READ_WRITE);
    ensure(outcome.is_err(), "mapped at the end of the address space")?;
    for (offset, len) in [(size, page), (size - page, 2 * page), (u64::MAX, 2)] {
        ensure(!pool.handle.reserve(offset, len), "reserved what is no part of the pool")?;
        ensure(!pool.handle.release(offset, len), "released what is no part of the pool")?;
    }
    pool.close();
    Ok(Verdict::Passed)
}

fn reserve_keeps(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    pool.fill(5, 55);
    ensure(pool.handle.reserve(pool.page_at(4), 4 * pool.page), "no room for four pages")?;
    ensure(pool.handle.reserve(pool.page_at(4) + 1, 1), "no room for a byte")?;
    ensure(pool.handle.reserve(pool.page_at(4), 0), "no room for nothing")?;
    same(pool.get(pool.page_at(5)), 55, "the byte afterwards")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn release_zeroes(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    for index in 6..10 {
        pool.fill(index, 66);
    }
    let zeroes = pool.handle.release(pool.page_at(7), 2 * pool.page);
    same(zeroes, pool.handle.zeroes_on_release(), "whether the pages are zero now")?;
    if zeroes {
        for at in pool.page_at(7)..pool.page_at(9) {
            same(pool.get(at), 0, "a released byte")?;
        }
    }
    check_neighbours(&pool)?;
    // They can be used again.
    ensure(pool.handle.reserve(pool.page_at(7), 2 * pool.page), "no room afterwards")?;
    pool.fill(7, 77);
    same(pool.get(pool.page_at(7)), 77, "a byte written afterwards")?;
    pool.close();
    Ok(Verdict::Passed)
}

/// Checks that the pages around the released ones are as they were.
fn check_neighbours(pool: &Open) -> Result<(), String> {
    for at in [pool.page_at(6), pool.page_at(7) - 1, pool.page_at(9), pool.page_at(10) - 1] {
        same(pool.get(at), 66, "a byte beside the released ones")?;
    }
    Ok(())
}

fn release_spares_parts(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    for index in 6..10 {
        pool.fill(index, 66);
    }
    // From the middle of one page to the middle of another.
    let whole = pool.handle.release(pool.page_at(7) - 8, 2 * pool.page + 16);
    ensure(!whole, "said that parts of pages are zero")?;
    check_neighbours(&pool)?;
    let whole = pool.handle.release(pool.page_at(6) + 8, 16);
    ensure(!whole, "said that a part of a page is zero")?;
    same(pool.get(pool.page_at(6) + 8), 66, "a byte of a page released in part")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn release_locked(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let child = Child::start(|_| {
        lock_memory(libc::MCL_FUTURE)?;
        // What is mapped from now on would be locked, and the kernel does not empty locked memory.
        let own = subject.open()?;
        super::descriptors::lose_all()?;
        check_release(&own)?;
        lock_memory(libc::MCL_CURRENT)?;
        check_release(&pool)
    })?;
    let (end, message) = child.wait();
    pool.close();
    match end {
        End::Exited(0) => Ok(Verdict::Passed),
        _ if message == NO_LOCKING => Ok(Verdict::Skipped("memory may not be locked here")),
        _ => Err(format!("{end:?} {message}")),
    }
}

/// The word of a child where `mlockall` is not allowed.
const NO_LOCKING: &str = "mlockall";

/// Locks the memory of this child.
fn lock_memory(which: i32) -> Result<(), String> {
    // SAFETY: concerns this child only.
    ensure(unsafe { libc::mlockall(which) } == 0, NO_LOCKING)
}

/// Releases a page and checks that it reads as promised.
fn check_release(pool: &Open) -> Result<(), String> {
    pool.fill(7, 7);
    let zeroes = pool.handle.release(pool.page_at(7), pool.page);
    same(zeroes, pool.handle.zeroes_on_release(), "whether the page is zero now")?;
    same(pool.get(pool.page_at(7)), if zeroes { 0 } else { 7 }, "a byte of the page")
}

fn futexes(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let at = pool.page_at(0);
    for byte in 0..4 {
        pool.put(at + byte, 0);
    }
    if !pool.handle.can_futex() {
        same(wake(&pool, at), -1, "waking a futex in the pool")?;
        pool.close();
        return Ok(Verdict::Passed);
    }
    let mut child = Child::start(|inside| {
        let own = subject.open()?;
        inside.say();
        let word = own.handle.mem().base().wrapping_add(at as usize) as *const c_void;
        // SAFETY: the word is mapped and aligned.
        let woken = unsafe {
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 0, ptr::null::<libc::timespec>())
        };
        same(woken, 0, "sleeping on a word of the pool")
    })?;
    child.hear()?;
    super::child::soon(|| wake(&pool, at) == 1, "a sleeper in another process")?;
    same(child.wait(), (End::Exited(0), String::new()), "the sleeper")?;
    pool.close();
    Ok(Verdict::Passed)
}

/// Wakes one sleeper on the word at an offset; returns what the kernel says.
fn wake(pool: &Open, offset: u64) -> i64 {
    let word = pool.handle.mem().base().wrapping_add(offset as usize) as *const c_void;
    // SAFETY: the word is mapped and aligned.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1) }
}
