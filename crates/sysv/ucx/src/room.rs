//! A pool that has no room for messages. A receiver has buffers for what senders write, keeps those whose
//! message the program has not asked for yet, and takes a further segment of them when the last is in use.
//! Where it gets none, UCX drops the next message and goes on (`uct_mm_iface_process_recv`): the ranks would
//! wait for it for ever, or take another one for it. So the rank says why and ends by a signal, which ends
//! the job. UCX can do without anything else that it allocates.

use crate::next;
use crate::pool::Pool;
use core::ffi::{c_char, c_int, c_void, CStr};

/// UCX's name of those buffers.
const BUFFERS: &CStr = c"mm_recv_desc";

const REASON: &str =
    "vshmem: the pool has no room for the messages that this rank was sent and has not received \
yet. Make it larger (vshmem up --pool-size, vshmem pool create --size), or have ranks receive earlier.\n";

/// Allocates a segment.
///
/// # Safety
/// As UCX's `ucs_sysv_alloc` demands.
#[no_mangle]
pub unsafe extern "C" fn ucs_sysv_alloc(
    size: *mut usize,
    most: usize,
    address: *mut *mut c_void,
    flags: c_int,
    name: *const c_char,
    id: *mut c_int,
) -> i8 {
    // SAFETY: as the caller vouches.
    let status = unsafe { next::allocate(size, most, address, flags, name, id) };
    // SAFETY: UCX names what it allocates by a string.
    let is_needed = !name.is_null() && unsafe { CStr::from_ptr(name) } == BUFFERS;
    // Where there are no huge pages it asks once more, for others.
    let is_last = flags & libc::SHM_HUGETLB == 0;
    if status != next::OK && is_needed && is_last && Pool::of_process().is_some() {
        end();
    }
    status
}

fn end() -> ! {
    // SAFETY: bytes that live. If nobody reads them, the signal has to tell.
    unsafe {
        libc::write(libc::STDERR_FILENO, REASON.as_ptr().cast(), REASON.len());
        libc::abort()
    }
}
