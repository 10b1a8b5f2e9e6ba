//! The place of the library's own memory: away from where programs look for room.
//!
//! Where a program has attached something once, or found room, it may attach something later (`shmat` with an
//! address), as it can on the kernel, whatever calls it has made meanwhile. The kernel would put what the
//! library maps into the very place, since that is the first with room. So the library names a place for all
//! that it maps and keeps, far below its own code. No room is taken in advance: that would count as the
//! program's address space.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::memory::{grow, map, protect, unlock, unmap};
use super::raw::{call, Errno, Outcome};

/// Distance below the library's code, in bytes. More than programs take there, and less than the part of the
/// address space has in which sanitizers of threads expect libraries.
const FAR: usize = 256 << 30;
/// No page of memory is larger; larger mappings begin at a multiple of it.
const LARGEST_PAGE: usize = 1 << 30;
/// Times that another place is looked for. Each is further away: the last is 255 GiB below the first.
const TRIES: u32 = 9;

static ROOM: Room = Room { far: FAR, free_below: AtomicUsize::new(0) };

/// Maps memory of the library's own: away from where programs look, or where the kernel likes if there is no
/// room.
///
/// # Safety
/// `flags` name no fixed address, so that nothing is replaced.
pub(crate) unsafe fn map_aside(
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: u64,
) -> Outcome<*mut c_void> {
    // SAFETY: as the caller vouches.
    unsafe { map_beginning(len, len, prot, flags, fd, offset) }
}

/// Maps memory that is unmapped soon: it lies where the next mapping will, and nothing is written down. Each
/// page that is written to between two forks costs a fault.
///
/// # Safety
/// As [`map_aside`].
pub(crate) unsafe fn map_aside_briefly(len: usize, prot: i32, flags: i32, fd: i32) -> Outcome<*mut c_void> {
    let place = ROOM.place(ROOM.free_below.load(Relaxed), len, 0);
    // SAFETY: as the caller vouches.
    match place.and_then(|place| unsafe { map_at(place, len, prot, flags, fd, 0) }.ok()) {
        Some(at) => Ok(at),
        // SAFETY: as the caller vouches.
        None => unsafe { map_aside(len, prot, flags, fd, 0) },
    }
}

/// Maps memory of the library's own that the kernel neither fills nor locks after `mlockall(MCL_FUTURE)`, nor
/// counts as locked, and that may be much: it begins as a page, which is unlocked, and grows. It is not
/// accessible before it is unlocked, since the kernel does not fill what is inaccessible. Only then: valgrind
/// takes five seconds to make a gigabyte accessible.
///
/// # Safety
/// As [`map_aside`].
pub(crate) unsafe fn map_unlocked(
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: u64,
) -> Outcome<*mut c_void> {
    if !locks_new_mappings() {
        // SAFETY: as the caller vouches.
        return unsafe { map_aside(len, prot, flags, fd, offset) };
    }
    // SAFETY: as the caller vouches; nobody knows of what is mapped here yet.
    unsafe {
        let grown = |first: usize| {
            let at = map_beginning(first, len, libc::PROT_NONE, flags, fd, offset)?;
            unlock(at as usize, first);
            let whole = match first == len {
                true => Ok(at),
                false => grow(at as usize, first, len),
            };
            let done = whole.and_then(|at| protect(at as usize, len, prot).map(|()| at));
            if done.is_err() {
                unmap(whole.unwrap_or(at) as usize, whole.map_or(first, |_| len));
            }
            done
        };
        // What a device or huge pages are behind can't grow.
        grown(super::page_size() as usize).or_else(|_| grown(len))
    }
}

/// Maps `len` bytes of fresh private memory of the library's own, zeros; null if there is none.
pub fn map_private(len: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: no fixed address.
    let mapped = unsafe { map_aside(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    mapped.map_or(core::ptr::null_mut(), |at| at.cast())
}

/// Whether the kernel fills new mappings with memory at once, as after `mlockall(MCL_FUTURE)`.
fn locks_new_mappings() -> bool {
    let len = super::page_size() as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let mut resident = 0u8;
    // SAFETY: a new mapping of one page, for which the kernel writes one byte.
    unsafe {
        let Ok(at) = map_aside(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) else {
            return true;
        };
        let known = call!(SYS_mincore, at, len, &raw mut resident);
        unmap(at as usize, len);
        known.is_err() || resident & 1 != 0
    }
}

/// Maps the first bytes where there is room for all of them.
///
/// # Safety
/// As [`map_aside`].
unsafe fn map_beginning(
    first: usize,
    all: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: u64,
) -> Outcome<*mut c_void> {
    for attempt in 0..TRIES {
        let Some(place) = ROOM.next(all, (LARGEST_PAGE << attempt) - LARGEST_PAGE) else { break };
        // SAFETY: as the caller vouches.
        match unsafe { map_at(place, first, prot, flags, fd, offset) } {
            Ok(at) => return Ok(at),
            Err(Errno(libc::EEXIST)) => {}
            Err(_) => break,
        }
    }
    // SAFETY: as the caller vouches.
    unsafe { map(0, first, prot, flags, fd, offset) }
}

/// Maps memory at an address where nothing is mapped.
///
/// # Safety
/// As [`map_aside`].
unsafe fn map_at(
    place: usize,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: u64,
) -> Outcome<*mut c_void> {
    // SAFETY: replaces nothing.
    let at = unsafe { map(place, len, prot, flags | libc::MAP_FIXED_NOREPLACE, fd, offset) }?;
    if at as usize != place {
        // A kernel older than the flag takes the address for a hint.
        // SAFETY: mapped just now, and nobody knows of it.
        unsafe { unmap(at as usize, len) };
        return Err(Errno(libc::EEXIST));
    }
    Ok(at)
}

/// Addresses of which the library takes one after the other, downwards.
struct Room {
    /// The distance of its beginning, which is its upper end, below the library's code, in bytes.
    far: usize,
    /// The address below which nothing of the library's is mapped, as far as it knows; 0: nothing was mapped
    /// yet.
    free_below: AtomicUsize,
}

impl Room {
    /// Takes the place for so many bytes, `skipped` below the last one.
    fn next(&self, len: usize, skipped: usize) -> Option<usize> {
        let mut place = None;
        let _ = self.free_below.fetch_update(Relaxed, Relaxed, |free_below| {
            place = self.place(free_below, len, skipped);
            place
        });
        place
    }

    /// The address of the next place for so many bytes. At the end it goes on from the beginning: what was
    /// unmapped there is free again. `None`: there is no such room at all.
    fn place(&self, free_below: usize, len: usize, skipped: usize) -> Option<usize> {
        let begin = (map_aside as *const () as usize).checked_sub(self.far)?;
        let end = begin - begin / 8;
        let align = 1 << len.max(1).ilog2().clamp(12, LARGEST_PAGE.ilog2());
        let below = |at: usize| Some(at.checked_sub(skipped)?.checked_sub(len)? / align * align);
        let next = Some(free_below).filter(|at| *at != 0).and_then(below).filter(|at| *at >= end);
        next.or_else(|| below(begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn places_lie_apart_and_are_aligned() {
        let room = Room { far: FAR, free_below: AtomicUsize::new(0) };
        let code = map_aside as *const () as usize;
        let mut above = code - FAR;
        for len in [4096, 8192, 4096, 3 << 20, 4096, 2 << 30, 4096] {
            let place = room.next(len, 0).unwrap();
            assert!(place + len <= above && above - place < 2 * len.max(LARGEST_PAGE), "{place:#x}");
            assert_eq!(place % if len > 2 << 20 { 2 << 20 } else { 4096 }, 0);
            above = place;
        }
        let further = room.next(4096, 3 << 30).unwrap();
        assert!(above - further >= 3 << 30);
        // A few of them fill the room.
        let huge = 1 << ((code - FAR) / 32).ilog2();
        let places: Vec<_> = (0..20).map(|_| room.next(huge, 0).unwrap()).collect();
        assert!(places.windows(2).any(|two| two[0] == two[1] + huge), "{places:x?}");
        assert!(places.windows(2).any(|two| two[0] < two[1]), "begins again: {places:x?}");
    }

    #[test]
    fn what_is_in_the_way_is_left_alone() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new mappings, without a fixed address.
        let mapped = || unsafe { map_aside(4096, libc::PROT_READ, flags, -1, 0) }.unwrap() as usize;
        let code = map_aside as *const () as usize;
        let first = mapped();
        assert!(first < code && code - first > FAR / 2);
        let in_the_way = first - (1 << 20);
        // SAFETY: replaces nothing.
        let there = unsafe { map(in_the_way, 1 << 20, libc::PROT_NONE, flags, -1, 0) }.unwrap() as usize;
        let next = mapped();
        assert!(code - next > FAR / 2, "{next:#x}, {there:#x} is taken");
        for (at, len) in [(first, 4096), (there, 1 << 20), (next, 4096)] {
            // SAFETY: mapped here, and used by nobody.
            unsafe { unmap(at, len) };
        }
    }
}
