//! System calls on mapped memory.

use core::ffi::c_void;

use super::raw::{again, call, Outcome};

/// Maps memory.
///
/// # Safety
/// With `MAP_FIXED`, nothing that is still in use may be mapped there.
pub(crate) unsafe fn map(
    addr: usize,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: u64,
) -> Outcome<*mut c_void> {
    // SAFETY: the caller vouches for a fixed address; elsewhere the kernel picks free addresses.
    unsafe { call!(SYS_mmap, addr, len, prot, flags, fd, offset) }.map(|addr| addr as *mut c_void)
}

/// Maps the memory that a shared mapping shows at `from` a second time.
///
/// # Safety
/// With `MREMAP_FIXED`, nothing that is still in use may be mapped at `to`.
pub(crate) unsafe fn remap_again(from: usize, len: usize, flags: i32, to: usize) -> Outcome<*mut c_void> {
    // SAFETY: an old size of zero leaves the mapping at `from` as it is; the caller vouches for `to`.
    unsafe { call!(SYS_mremap, from, 0, len, flags, to) }.map(|addr| addr as *mut c_void)
}

/// Makes a mapping longer, where it is or, if there is no room, elsewhere.
///
/// # Safety
/// The mapping must belong to the caller, and nothing in it may be in use.
pub(crate) unsafe fn grow(at: usize, from: usize, to: usize) -> Outcome<*mut c_void> {
    // SAFETY: the caller vouches for the mapping; what is added replaces nothing.
    unsafe { call!(SYS_mremap, at, from, to, libc::MREMAP_MAYMOVE) }.map(|addr| addr as *mut c_void)
}

/// Moves a mapping, with all that it shows, to an address, over what is mapped there.
///
/// # Safety
/// The mapping must belong to the caller, and nothing in it or at `to` may be in use.
pub(crate) unsafe fn relocate(from: usize, len: usize, to: usize) -> Outcome<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller vouches for both ranges.
    unsafe { call!(SYS_mremap, from, len, len, flags, to) }.map(|_| ())
}

/// Unmaps memory.
///
/// # Safety
/// The range must belong to the caller, and nothing in it may be in use.
pub(crate) unsafe fn unmap(addr: usize, len: usize) {
    // SAFETY: the caller vouches for the range. There is nothing to do about a failure: the range stays
    // mapped.
    let _ = unsafe { call!(SYS_munmap, addr, len) };
}

/// Changes the protection of mapped memory.
///
/// # Safety
/// The range must belong to the caller, which must not depend on an access that `prot` takes away.
pub(crate) unsafe fn protect(addr: usize, len: usize, prot: i32) -> Outcome<()> {
    // SAFETY: the caller vouches for the range.
    unsafe { call!(SYS_mprotect, addr, len, prot) }.map(|_| ())
}

/// Gives advice on mapped memory.
///
/// # Safety
/// The range must belong to the caller; `MADV_REMOVE` empties it.
#[inline]
pub(crate) unsafe fn advise(addr: usize, len: usize, advice: i32) -> Outcome<()> {
    // SAFETY: the caller vouches for the range.
    again(|| unsafe { call!(SYS_madvise, addr, len, advice) }).map(|_| ())
}

/// Lets the kernel page a range out again, where `mlockall` has locked it.
pub(crate) fn unlock(addr: usize, len: usize) {
    // SAFETY: this changes no contents and no protection, only whether pages are pinned.
    let _ = unsafe { call!(SYS_munlock, addr, len) };
}

/// Whether the kernel accepts the word at `addr` as a futex. Wakes one waiter there if there is one, which
/// any user of a futex must expect.
///
/// # Safety
/// `addr` must be mapped.
pub(crate) unsafe fn futex_works(addr: *const u32) -> bool {
    // SAFETY: waking writes no memory.
    unsafe { call!(SYS_futex, addr, libc::FUTEX_WAKE, 1) }.is_ok()
}
