//! libc's functions by which a program changes mappings: `mremap` doubles, moves and cuts them, and `madvise`
//! keeps them from children. Their effect on whole attachments is counted. Of one on a part of an attachment
//! the source says what is left, so there may be heirs. That of system calls that are made by the instruction
//! is counted late or not at all, see `calls/shm/moved.rs`.

use crate::calls::shm::double;
use crate::pools::caller::know_inherited;
use crate::pools::heirs;
use crate::process::attachments::TABLE;
use crate::process::gate::{self, Inside};
use crate::process::raw::syscall;
use crate::thread::errno::{self, ErrnoGuard};
use core::ffi::c_void;
use core::ops::Range;

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
    if at == libc::MAP_FAILED || TABLE.count() == 0 {
        return at;
    }
    let _errno = ErrnoGuard::now();
    let addr = old as usize;
    match old_size {
        0 => double(addr, at as usize..at as usize + new_size),
        _ => inside(|gate| {
            suspect_parts(gate, &(addr..addr.saturating_add(old_size)), flags & libc::MREMAP_DONTUNMAP != 0);
        }),
    }
    at
}

/// Takes it that more may be left of an attachment than is counted, where a range is a part of it; of `all`
/// that the range meets, if so.
fn suspect_parts(gate: &Inside, range: &Range<usize>, all: bool) {
    let mut is_cut = false;
    TABLE.each(gate, &mut |p| is_cut |= p.meets(range) && (all || !p.lies_in(range)));
    if is_cut {
        heirs::suspect(gate);
    }
}

/// Does something inside the gate. A child forgets first what it has not inherited.
fn inside(change: impl FnOnce(&Inside)) {
    know_inherited();
    if let Ok(gate) = gate::enter() {
        change(&gate);
    }
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
        let addr = addr as usize;
        let range = addr..addr.saturating_add(len);
        inside(|gate| {
            suspect_parts(gate, &range, false);
            TABLE.keep_from_children(gate, &range, is_kept);
        });
    }
    result
}
