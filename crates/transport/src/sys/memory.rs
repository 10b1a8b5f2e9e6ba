//! System calls on mapped memory.

use core::ffi::c_void;

use super::raw::{again, call, int, Outcome};

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
    unsafe {
        call(
            libc::SYS_mmap,
            [addr, len, int(prot), int(flags), int(fd), offset as usize],
        )
    }
    .map(|addr| addr as *mut c_void)
}

/// Maps the memory that a shared mapping shows at `from` a second time.
///
/// # Safety
/// With `MREMAP_FIXED`, nothing that is still in use may be mapped at `to`.
pub(crate) unsafe fn remap_again(
    from: usize,
    len: usize,
    flags: i32,
    to: usize,
) -> Outcome<*mut c_void> {
    // SAFETY: an old size of zero leaves the mapping at `from` as it is; the caller vouches for `to`.
    unsafe { call(libc::SYS_mremap, [from, 0, len, int(flags), to, 0]) }
        .map(|addr| addr as *mut c_void)
}

/// Moves a mapping, with all that it shows, to an address, over what is mapped there.
///
/// # Safety
/// The mapping must belong to the caller, and nothing in it or at `to` may be in use.
pub(crate) unsafe fn relocate(from: usize, len: usize, to: usize) -> Outcome<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller vouches for both ranges.
    unsafe { call(libc::SYS_mremap, [from, len, len, int(flags), to, 0]) }.map(|_| ())
}

/// Unmaps memory.
///
/// # Safety
/// The range must belong to the caller, and nothing in it may be in use.
pub(crate) unsafe fn unmap(addr: usize, len: usize) {
    // SAFETY: the caller vouches for the range. There is nothing to do about a failure: the range stays mapped.
    let _ = unsafe { call(libc::SYS_munmap, [addr, len, 0, 0, 0, 0]) };
}

/// Changes the protection of mapped memory.
///
/// # Safety
/// The range must belong to the caller, who must not depend on what `prot` takes away.
pub(crate) unsafe fn protect(addr: usize, len: usize, prot: i32) -> Outcome<()> {
    // SAFETY: the caller vouches for the range.
    unsafe { call(libc::SYS_mprotect, [addr, len, int(prot), 0, 0, 0]) }.map(|_| ())
}

/// Gives advice on mapped memory.
///
/// # Safety
/// The range must belong to the caller; `MADV_REMOVE` empties it.
pub(crate) unsafe fn advise(addr: usize, len: usize, advice: i32) -> Outcome<()> {
    // SAFETY: the caller vouches for the range.
    again(|| unsafe { call(libc::SYS_madvise, [addr, len, int(advice), 0, 0, 0]) }).map(|_| ())
}

/// Lets the kernel page a range out again, where `mlockall` has locked it.
pub(crate) fn unlock(addr: usize, len: usize) {
    // SAFETY: this changes no contents and no protection, only whether pages are pinned.
    let _ = unsafe { call(libc::SYS_munlock, [addr, len, 0, 0, 0, 0]) };
}

/// Whether the kernel accepts the word at `addr` as a futex. Wakes one waiter there if there is one, which any user of
/// a futex must expect.
///
/// # Safety
/// `addr` must be mapped.
pub(crate) unsafe fn futex_works(addr: *const u32) -> bool {
    // SAFETY: waking writes no memory.
    unsafe {
        call(
            libc::SYS_futex,
            [addr as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0],
        )
    }
    .is_ok()
}
