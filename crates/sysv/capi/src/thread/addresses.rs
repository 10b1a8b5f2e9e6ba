//! Addresses that the program passes: EFAULT instead of a crash, as with the kernel's calls.
//!
//! Asking the kernel about an address costs a system call, so pages that were found good are remembered. A
//! program that unmaps such a page and then passes it to us gets the signal that any access would have got
//! it.

use crate::process::raw::syscall;
use core::sync::atomic::{AtomicUsize, Ordering};
use vshmem_ipc::Errno;

const PAGE: usize = 4096;
const SLOTS: usize = 512;
/// First address that no process has (47 or 48 bits of address, and five-level paging only on request).
const END: usize = 1 << 56;

/// Addresses of pages found good, by the low bits of the page number.
type Known = [AtomicUsize; SLOTS];

static READABLE: Known = nothing();
static WRITABLE: Known = nothing();

/// No page is known: an address whose page has another place stands in each. Only page 0, which is never good
/// but has a place, must not be told apart from nothing.
const fn nothing() -> Known {
    let mut none = [const { AtomicUsize::new(0) }; SLOTS];
    none[0] = AtomicUsize::new(PAGE);
    none
}

const MADV_POPULATE_READ: usize = 22;
const MADV_POPULATE_WRITE: usize = 23;

/// Fails with EFAULT unless `len` bytes at `p` can be read.
#[inline]
pub fn readable<T>(p: *const T, len: usize) -> Result<(), Errno> {
    check(p as usize, len, &READABLE, MADV_POPULATE_READ)
}

/// Fails with EFAULT unless `len` bytes at `p` can be written.
#[inline]
pub fn writable<T>(p: *mut T, len: usize) -> Result<(), Errno> {
    check(p as usize, len, &WRITABLE, MADV_POPULATE_WRITE)
}

/// Fails with EFAULT unless `len` bytes at `p` can be read. Asks the kernel each time.
pub fn surely_readable<T>(p: *const T, len: usize) -> Result<(), Errno> {
    ask(p as usize, len, MADV_POPULATE_READ)
}

/// Fails with EFAULT unless `len` bytes at `p` can be written. Asks the kernel each time.
pub fn surely_writable<T>(p: *mut T, len: usize) -> Result<(), Errno> {
    ask(p as usize, len, MADV_POPULATE_WRITE)
}

/// Are `len` bytes at `p` known to be readable, and on one page? A no says nothing.
#[inline(always)]
pub fn readable_on_page<T>(p: *const T, len: usize) -> bool {
    is_on_page(p as usize, len, &READABLE)
}

/// Are `len` bytes at `p` known to be writable, and on one page? A no says nothing.
#[inline(always)]
pub fn writable_on_page<T>(p: *mut T, len: usize) -> bool {
    is_on_page(p as usize, len, &WRITABLE)
}

/// Do bytes lie on one page that was found good?
#[inline(always)]
fn is_on_page(at: usize, len: usize, known: &Known) -> bool {
    // From the beginning of the page that is known; a large number if it is another one.
    let into = at.wrapping_sub(known[at / PAGE % SLOTS].load(Ordering::Relaxed));
    len <= PAGE && into <= PAGE - len
}

/// Were all pages of the bytes found good?
#[inline(always)]
fn is_known(at: usize, len: usize, known: &Known) -> bool {
    is_on_page(at, len, known) || are_known(at, len, known)
}

/// Were all pages of the bytes found good? They need not lie on one page.
#[inline(never)]
fn are_known(at: usize, len: usize, known: &Known) -> bool {
    let first = at / PAGE;
    let Some(last) = len.checked_sub(1).and_then(|n| at.checked_add(n)) else {
        return false;
    };
    let is_known = |page: usize| known[page % SLOTS].load(Ordering::Relaxed) == page * PAGE;
    (first != 0) & (last < END) && (first..=last / PAGE).all(is_known)
}

#[inline(always)]
fn check(at: usize, len: usize, known: &Known, advice: usize) -> Result<(), Errno> {
    if is_known(at, len, known) {
        return Ok(());
    }
    check_pages(at, len, known, advice)
}

#[cold]
fn check_pages(at: usize, len: usize, known: &Known, advice: usize) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    let end = at.checked_add(len).filter(|end| *end <= END).ok_or(Errno(libc::EFAULT))?;
    ask(at, len, advice)?;
    for page in at / PAGE..(end - 1) / PAGE + 1 {
        known[page % SLOTS].store(page * PAGE, Ordering::Relaxed);
    }
    Ok(())
}

/// Has the kernel fault the pages in. That changes no content; where a page can't be had, it says so.
fn ask(at: usize, len: usize, advice: usize) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    let end = at.checked_add(len).filter(|end| *end <= END).ok_or(Errno(libc::EFAULT))?;
    let start = at & !(PAGE - 1);
    if start == 0 {
        return Err(Errno(libc::EFAULT));
    }
    loop {
        let bytes = (end - start).next_multiple_of(PAGE);
        // SAFETY: populating pages that the caller claims to own changes nothing that it could notice.
        let result = unsafe { syscall!(libc::SYS_madvise, start, bytes, advice) };
        match -result as i32 {
            0 => return Ok(()),
            libc::EINTR | libc::EAGAIN => (),
            libc::ENOMEM | libc::EFAULT | libc::EHWPOISON => return Err(Errno(libc::EFAULT)),
            // No permission; or device memory, a kernel before 5.14, a sandbox.
            _ => return probe_pages(start, end, advice == MADV_POPULATE_WRITE),
        }
    }
}

/// Asks page by page, by system calls that copy a word from there, or change one into itself.
fn probe_pages(start: usize, end: usize, write: bool) -> Result<(), Errno> {
    for page in (start..end).step_by(PAGE) {
        let result = if write { probe_write(page) } else { probe_read(page) };
        if result == -(libc::EFAULT as isize) {
            return Err(Errno(libc::EFAULT));
        }
    }
    Ok(())
}

fn probe_read(at: usize) -> isize {
    const NO_SUCH_CHANGE: i32 = 99;
    // SAFETY: the kernel copies a signal mask from there, then finds that it is not told a valid change.
    unsafe { syscall!(libc::SYS_rt_sigprocmask, NO_SUCH_CHANGE, at, 0usize, 8) }
}

fn probe_write(at: usize) -> isize {
    let nobody = 0u32;
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    let or_with_zero = libc::FUTEX_OP_OR << 28;
    // SAFETY: the kernel ors the word there with 0, atomically. A thread that sleeps on it may wake, as
    // sleepers on a futex must expect at any time.
    unsafe { syscall!(libc::SYS_futex, &raw const nobody, operation, 0, 0, at, or_with_zero) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: Result<(), i32> = Err(libc::EFAULT);

    fn plain(result: Result<(), Errno>) -> Result<(), i32> {
        result.map_err(|e| e.0)
    }

    #[test]
    fn tells_good_from_bad() {
        let mut here = [1u8; 3 * PAGE];
        assert_eq!(plain(readable(here.as_ptr(), here.len())), Ok(()));
        assert_eq!(plain(writable(here.as_mut_ptr(), here.len())), Ok(()));
        assert_eq!(plain(readable(core::ptr::null::<u8>(), 1)), FAULT);
        assert_eq!(plain(readable(core::ptr::null::<u8>(), 0)), Ok(()));
        assert_eq!(plain(readable(usize::MAX as *const u8, 1)), FAULT);
        assert_eq!(plain(readable((usize::MAX - 10) as *const u8, 100)), FAULT);
        assert_eq!(plain(readable(0xdead_0000_0000_0000usize as *const u8, 8)), FAULT);
        assert!(here.iter().all(|b| *b == 1));
    }

    #[test]
    fn a_hole_or_a_read_only_page_is_found() {
        // Where the kernel puts nothing by itself: other tests map memory at the same time, and must not fill
        // the hole.
        const FAR: usize = 0x1000_0000_0000;
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
        );
        // SAFETY: new memory, where there was none.
        let p = unsafe { libc::mmap(FAR as *mut _, 3 * PAGE, prot, flags, -1, 0) }.cast::<u8>();
        assert_eq!(p as usize, FAR);
        // SAFETY: changes pages that this test has just mapped.
        unsafe {
            libc::mprotect(p.cast(), PAGE, libc::PROT_READ);
            libc::munmap(p.add(2 * PAGE).cast(), PAGE);
        }
        assert_eq!(plain(readable(p, 2 * PAGE)), Ok(()));
        assert_eq!(plain(writable(p, 1)), FAULT);
        assert_eq!(plain(surely_writable(p, 1)), FAULT);
        assert_eq!(plain(writable(p.wrapping_add(PAGE), PAGE)), Ok(()));
        assert_eq!(plain(readable(p.wrapping_add(PAGE), PAGE + 1)), FAULT);
        let pages = |from: usize, to: usize, write| {
            plain(probe_pages(p as usize + from * PAGE, p as usize + to * PAGE, write))
        };
        assert_eq!((pages(0, 2, false), pages(1, 2, true)), (Ok(()), Ok(())));
        assert_eq!((pages(0, 1, true), pages(2, 3, false), pages(1, 3, true)), (FAULT, FAULT, FAULT));
        // SAFETY: mapped above.
        unsafe { libc::munmap(p.cast(), 2 * PAGE) };
    }
}
