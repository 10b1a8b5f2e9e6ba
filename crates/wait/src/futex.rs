//! Waiting on one kernel: futex(2), shared between processes.

use crate::{nap, Waited};
use core::ptr::null;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

/// A raw futex call: the C library's `syscall` may be the program's, or ours, and sets errno.
fn futex(word: &AtomicU32, op: i32, value: u32, timeout: *const libc::timespec) -> i64 {
    // SAFETY: the word is live for the call; the timeout is null or points to a timespec of the caller. errno is put back,
    // because a wait is not a call that the program made.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            op,
            value,
            timeout,
            null::<u32>(),
            0,
        );
        let error = *errno;
        *errno = saved;
        if result < 0 {
            -(error as i64)
        } else {
            result
        }
    }
}

pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Waited {
    let spec = timeout.map(nap::timespec);
    let pointer = spec.as_ref().map_or(null(), |t| t as *const libc::timespec);
    match -futex(word, libc::FUTEX_WAIT, expected, pointer) as i32 {
        libc::ETIMEDOUT => Waited::TimedOut,
        libc::EINTR => Waited::Interrupted,
        // No futex on this memory: nap instead of spinning through the caller's loop.
        libc::EFAULT | libc::EINVAL => nap::wait(word, expected, timeout),
        _ => Waited::Woken,
    }
}

pub fn wake(word: &AtomicU32, n: u32) -> u32 {
    futex(word, libc::FUTEX_WAKE, n.min(i32::MAX as u32), null()).max(0) as u32
}

pub fn works_on(word: &AtomicU32) -> bool {
    futex(word, libc::FUTEX_WAKE, 0, null()) >= 0
}
