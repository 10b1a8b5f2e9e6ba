//! The waiting of ranks. An MPI asks UCX for progress again and again, and no setting of either makes it wait
//! well in every host:
//!
//! * MPICH 4 never leaves the processor. Where a host has more ranks than processors, each message takes a
//!   time slice of the scheduler: some 10 ms. With `VSHMEM_UCX_YIELD=1` a rank leaves it each time that it
//!   has asked [`IN_VAIN`] times in vain. The program that starts the ranks sets it: only that knows how many
//!   there are.
//! * Where machines have more processors than their host, those of the host are short. A rank that leaves its
//!   machine's processor keeps the host's, since the machine has nothing else to run. With
//!   `VSHMEM_UCX_YIELD=sleep` it sleeps from the [`YIELDS`]th time on, so that the machine halts.
//! * MPICH 5 leaves it after each question, by a system call that takes as long as a message or, in a machine
//!   that is emulated, several times as long. Until a thread has asked [`IN_VAIN`] times in vain, its
//!   `sched_yield` after a question does nothing. All others, as those of a program's own locks, are carried
//!   out as ever.

use crate::closing;
use crate::next;
use core::cell::Cell;
use core::ffi::{c_int, c_long, c_uint, c_void, CStr};
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Questions in vain before a rank leaves its processor: they take some microseconds, which is longer than a
/// running rank needs to answer.
const IN_VAIN: u32 = 20;

/// Times that a rank leaves its processor before it sleeps: messages of other ranks in its machine come by
/// then.
const YIELDS: u32 = 4;

/// Nanoseconds of the first sleep. A shorter one gains nothing, for Linux adds up to 50 µs.
const SHORTEST: c_long = 20_000;
/// Doublings of a sleep, to 320 µs at most: a message may come so much too late.
const DOUBLED: u32 = 4;

thread_local! {
    /// Questions in vain, one after the other, since it last left its processor.
    static VAIN: Cell<u32> = const { Cell::new(0) };
    /// Times that it has left its processor since there was progress.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// True if the thread has asked since its last `sched_yield`.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Asks UCX for progress, and returns its amount.
///
/// # Safety
/// As UCX's `ucp_worker_progress` demands.
#[no_mangle]
pub unsafe extern "C" fn ucp_worker_progress(worker: *mut c_void) -> c_uint {
    // SAFETY: as the caller vouches.
    let progress = unsafe { next::progress(worker) };
    closing::asks(worker);
    ASKED.set(true);
    if progress > 0 {
        VAIN.set(0);
        LEFT.set(0);
        return progress;
    }
    let vain = VAIN.get().saturating_add(1);
    VAIN.set(vain);
    if vain >= IN_VAIN && manner() != STAY {
        leave();
    }
    progress
}

/// `sched_yield(2)`.
#[no_mangle]
pub extern "C" fn sched_yield() -> c_int {
    if !ASKED.replace(false) {
        return give_way();
    }
    if VAIN.get() < IN_VAIN {
        spin_loop();
    } else {
        leave();
    }
    0
}

/// Leaves the processor, after questions in vain.
fn leave() {
    let left = LEFT.get();
    VAIN.set(0);
    LEFT.set(left.saturating_add(1));
    if manner() == SLEEP && left >= YIELDS {
        sleep(SHORTEST << (left - YIELDS).min(DOUBLED));
    } else {
        give_way();
    }
}

/// Lets another thread have the processor. It never fails on Linux.
fn give_way() -> c_int {
    // SAFETY: takes nothing.
    unsafe { libc::syscall(libc::SYS_sched_yield) as c_int }
}

fn sleep(nanoseconds: c_long) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: a time. A signal ends it, and the caller asks again anyway.
    unsafe { libc::nanosleep(&time, core::ptr::null_mut()) };
}

/// Manner of a rank that has asked in vain: it goes on asking.
const STAY: u8 = 0;
/// Manner: it leaves its processor to other ranks of its kernel.
const YIELD: u8 = 1;
/// Manner: it leaves its processor to other machines, too, by sleeping.
const SLEEP: u8 = 2;

/// The manner that `VSHMEM_UCX_YIELD` names; [`STAY`] if it names none.
fn manner() -> u8 {
    const UNKNOWN: u8 = 3;
    static SAYS: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = SAYS.load(Relaxed);
    if known != UNKNOWN {
        return known;
    }
    // SAFETY: a string. The environment is read once, as UCX reads its own variables.
    let value = unsafe { libc::getenv(c"VSHMEM_UCX_YIELD".as_ptr()) };
    // SAFETY: a string of the environment.
    let value = if value.is_null() { c"" } else { unsafe { CStr::from_ptr(value) } };
    let says = match value.to_bytes() {
        b"1" => YIELD,
        b"sleep" => SLEEP,
        _ => STAY,
    };
    SAYS.store(says, Relaxed);
    says
}
