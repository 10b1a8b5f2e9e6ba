//! Waiting where others may change a word who can't wake: naps that grow, with a look at the word after each.

use crate::Waited;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

/// The first nap. The kernel's timer slack makes it about 50 us longer.
const FIRST: Duration = Duration::from_micros(2);
/// The longest: how late a sleeper may be.
const LONGEST: Duration = Duration::from_millis(2);

pub fn timespec(t: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: t.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: t.subsec_nanos() as libc::c_long,
    }
}

/// Naps while `word` holds `expected`. `bed` sleeps where somebody may wake it, if there is such a place: then a nap may end early.
pub fn wait(
    word: &AtomicU32,
    expected: u32,
    timeout: Option<Duration>,
    bed: impl Fn(Duration) -> Option<Waited>,
) -> Waited {
    let mut left = timeout.unwrap_or(Duration::MAX);
    let mut nap = FIRST;
    while word.load(Ordering::Acquire) == expected {
        if left.is_zero() {
            return Waited::TimedOut;
        }
        let this = nap.min(left);
        match bed(this) {
            Some(Waited::TimedOut) => {}
            Some(waited) => return waited,
            None if sleep(&timespec(this)) == libc::EINTR => return Waited::Interrupted,
            None => {}
        }
        left = left.saturating_sub(this);
        nap = (nap * 2).min(LONGEST);
    }
    Waited::Woken
}

/// Sleeps by the system call: the C library's function is a cancellation point, and a cancelled thread would unwind through us.
fn sleep(spec: &libc::timespec) -> i32 {
    // SAFETY: the timespec is live for the call; errno is put back, because this is not a call that the program made.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = libc::syscall(
            libc::SYS_clock_nanosleep,
            libc::CLOCK_MONOTONIC,
            0,
            spec,
            null_mut::<libc::timespec>(),
        );
        let error = *errno;
        *errno = saved;
        if result < 0 {
            error
        } else {
            0
        }
    }
}
