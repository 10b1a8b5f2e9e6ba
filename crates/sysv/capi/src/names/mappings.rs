//! libc's functions by which a program changes mappings: `mremap` doubles them, and `madvise` keeps them from
//! children. Their effect on attachments is counted. That of system calls without these functions is counted
//! late or not at all, see [`crate::calls::shm::moved`].

use crate::calls::shm::double;
use crate::pools::caller::know_inherited;
use crate::process::attachments::TABLE;
use crate::process::gate;
use crate::process::raw::syscall;
use crate::thread::errno::{self, ErrnoGuard};
use core::ffi::c_void;

/// The value that libc's function returns for a result of the kernel; errno is set.
fn returned(result: isize) -> isize {
    errno::from_kernel(result).unwrap_or_else(|error| {
        errno::set(error.0);
        -1
    })
}

/// mremap(2).
///
/// # Safety
/// As libc's function demands.
#[no_mangle]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_size: usize,
    new_size: usize,
    flags: i32,
    new: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller vouches for what it passes; the flags say whether the last one counts.
    let at = returned(unsafe { syscall!(libc::SYS_mremap, old, old_size, new_size, flags, new) });
    let at = at as *mut c_void;
    if old_size == 0 && at != libc::MAP_FAILED && TABLE.count() > 0 {
        let _errno = ErrnoGuard::now();
        double(old as usize, at as usize..at as usize + new_size);
    }
    at
}

/// madvise(2).
///
/// # Safety
/// As libc's function demands.
#[no_mangle]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: i32) -> i32 {
    // SAFETY: the caller vouches for what it passes.
    let result = returned(unsafe { syscall!(libc::SYS_madvise, addr, len, advice) }) as i32;
    let is_kept = advice == libc::MADV_DONTFORK;
    if result == 0 && (is_kept || advice == libc::MADV_DOFORK) && TABLE.count() > 0 {
        let _errno = ErrnoGuard::now();
        // A child forgets first what it has not inherited.
        know_inherited();
        if let Ok(gate) = gate::enter() {
            let addr = addr as usize;
            TABLE.keep_from_children(&gate, &(addr..addr.saturating_add(len)), is_kept);
        }
    }
    result
}
