//! How a rank waits. An MPI asks UCX for progress again and again, and nothing that it or UCX can be told makes it
//! wait well in every host:
//!
//! * MPICH 4 never leaves the processor. Where a host has more ranks than processors, each message takes a time
//!   slice of the scheduler: some 10 ms. With `VSHMEM_UCX_YIELD=1` a rank leaves it each time that it has asked
//!   [`IN_VAIN`] times in vain. That is for whoever starts the ranks to say: only it knows how many there are.
//! * MPICH 5 leaves it after each question, by a system call that takes as long as a message or, in a machine
//!   that is emulated, several times as long. Until a thread has asked [`IN_VAIN`] times in vain, its
//!   `sched_yield` after a question does nothing. All others, as those of a program's own locks, are carried
//!   out as ever.

use crate::closing;
use crate::next;
use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void, CStr};
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Some microseconds: longer than a rank that runs takes to answer.
const IN_VAIN: u32 = 20;

thread_local! {
    /// Questions in vain, one after the other, since it last left its processor.
    static VAIN: Cell<u32> = const { Cell::new(0) };
    /// Whether the thread has asked since its last `sched_yield`.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Asks UCX for progress; returns how much there was.
///
/// # Safety
/// As UCX's `ucp_worker_progress` demands.
#[no_mangle]
pub unsafe extern "C" fn ucp_worker_progress(worker: *mut c_void) -> c_uint {
    // SAFETY: as the caller vouches.
    let progress = unsafe { next::progress(worker) };
    closing::asks(worker);
    ASKED.set(true);
    let vain = if progress > 0 { 0 } else { VAIN.get().saturating_add(1) };
    VAIN.set(vain);
    if vain >= IN_VAIN && shares_processors() {
        leave();
    }
    progress
}

/// `sched_yield(2)`.
#[no_mangle]
pub extern "C" fn sched_yield() -> c_int {
    if ASKED.replace(false) && VAIN.get() < IN_VAIN {
        spin_loop();
        return 0;
    }
    leave()
}

/// Lets another thread have the processor. It never fails on Linux.
fn leave() -> c_int {
    VAIN.set(0);
    // SAFETY: takes nothing.
    unsafe { libc::syscall(libc::SYS_sched_yield) as c_int }
}

/// Whether ranks share processors, as the variable says.
fn shares_processors() -> bool {
    const UNKNOWN: u8 = 2;
    static SAYS: AtomicU8 = AtomicU8::new(UNKNOWN);
    if SAYS.load(Relaxed) == UNKNOWN {
        // SAFETY: a string. The environment is read once, as UCX reads its own variables.
        let value = unsafe { libc::getenv(c"VSHMEM_UCX_YIELD".as_ptr()) };
        // SAFETY: a string of the environment.
        let says = !value.is_null() && unsafe { CStr::from_ptr(value) } == c"1";
        SAYS.store(says.into(), Relaxed);
    }
    SAYS.load(Relaxed) == 1
}
