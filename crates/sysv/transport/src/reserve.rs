//! Taking memory for ranges of a pool, and giving it back.

use vshmem_pool::layout::PAGE;
use vshmem_pool::Sparse;

use crate::sys::{self, Errno, Outcome};

/// Most that is reserved by one call: short enough to get done between two signals of a profiler.
const RESERVE_STEP: u64 = 4 << 20;

/// The mark of a file that keeps all of its memory: the sticky bit, which says so by its name and means
/// nothing else to Linux. It is on the file and not in the pool, where machines could take it away.
pub(crate) const KEPT: u32 = libc::S_ISVTX;

/// Backs a range of a file with memory. `false`: there is no room; then part of it may have been backed.
pub(crate) fn in_file(fd: i32, offset: u64, len: u64, page_size: u64) -> bool {
    in_steps(offset, len, page_size, |offset, len| sys::allocate(fd, 0, offset, len))
}

/// Backs whole pages of a pool's own mapping with memory: as if every page were written, except that a lack
/// of memory is an answer and no signal. `None`: the kernel can't be asked that, as Linux before 5.14.
///
/// # Safety
/// The range must lie inside the mapping of a pool.
pub(crate) unsafe fn in_mapping(at: usize, len: usize) -> Option<bool> {
    // SAFETY: the caller vouches for the range; contents don't change.
    match unsafe { sys::advise(at, len, libc::MADV_POPULATE_WRITE) } {
        Ok(()) => Some(true),
        Err(Errno(libc::EFAULT | libc::ENOMEM | libc::EAGAIN | libc::EHWPOISON)) => Some(false),
        Err(_) => None,
    }
}

/// Knowledge of the memory behind a file of `len` bytes: none yet.
pub(crate) fn sparse(len: usize) -> Outcome<Sparse> {
    let pages = len.div_ceil(PAGE as usize);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, without a fixed address.
    let known = unsafe { sys::map_unlocked(pages, prot, flags, -1, 0) }?;
    // Children find out for themselves, which most need not: to copy it makes each fork longer.
    // SAFETY: mapped above; the advice concerns later forks only.
    let _ = unsafe { sys::advise(known as usize, pages, libc::MADV_WIPEONFORK) };
    Ok(Sparse {
        // SAFETY: mapped above, as zeros, and private. It stays until the pool is closed, and with it all
        // that refers to it.
        known: unsafe { core::slice::from_raw_parts(known.cast(), pages) },
        populate,
    })
}

fn populate(at: *mut u8, len: usize) -> bool {
    // SAFETY: only pages inside the mapping of a pool are asked for.
    let given = unsafe { in_mapping(at as usize, len) };
    // Where the kernel can't be asked, a page without memory ends the process.
    let is_there = given.unwrap_or(true);
    if is_there {
        sys::memcheck::show(at as usize, len);
    }
    is_there
}

/// Punches a hole of whole pages into a file.
pub(crate) fn punch_file(fd: i32, offset: u64, len: u64, page_size: u64) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    in_steps(offset, len, page_size, |offset, len| sys::allocate(fd, mode, offset, len))
}

/// Punches a hole of whole pages into the file that a pool's own mapping shows.
///
/// # Safety
/// The range must lie inside the mapping of a pool, and the caller must give its contents up.
pub(crate) unsafe fn punch_mapping(at: usize, len: usize) -> bool {
    // SAFETY: passed on.
    unsafe { sys::advise(at, len, libc::MADV_REMOVE) }.is_ok()
}

/// Does something to a range of a file in steps. A step that a signal interrupts was undone by the kernel, so
/// it is tried again with half the length: the smallest gets done however fast the signals come.
fn in_steps(
    mut offset: u64,
    mut len: u64,
    smallest: u64,
    mut step: impl FnMut(u64, u64) -> Outcome<()>,
) -> bool {
    let mut most = RESERVE_STEP.max(smallest);
    while len > 0 {
        let now = len.min(most);
        match step(offset, now) {
            Ok(()) => {
                offset += now;
                len -= now;
            }
            Err(Errno(libc::EINTR)) => most = (most / 2).max(smallest),
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn steps_cover_the_range_and_shrink_when_interrupted() {
        let mut done = Vec::new();
        let mut interruptions = 3;
        let all = in_steps(4096, RESERVE_STEP * 2 + 5, 4096, |offset, len| {
            if interruptions > 0 {
                interruptions -= 1;
                return Err(Errno(libc::EINTR));
            }
            done.push((offset, len));
            Ok(())
        });
        assert!(all);
        assert!(done.iter().all(|&(_, len)| len <= RESERVE_STEP / 8));
        let mut at = 4096;
        for (offset, len) in done {
            assert_eq!(offset, at);
            at += len;
        }
        assert_eq!(at, 4096 + RESERVE_STEP * 2 + 5);
    }

    #[test]
    fn a_failed_step_ends_it() {
        assert!(!in_steps(0, 1, 4096, |_, _| Err(Errno(libc::ENOSPC))));
    }
}
