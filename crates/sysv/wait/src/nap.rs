//! Naps: waits for words that processes of other kernels change, which can't wake this one's threads. They
//! grow, with a look at the word after each.

use core::time::Duration;
use vshmem_pool::atomic::{AtomicU32, Ordering};
use vshmem_pool::tuning::{FIRST_NAP, LONGEST_NAP};
use vshmem_transport::asleep;

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A wake-up, a word that had changed already, or no reason: look at the word.
    Woken,
    /// The end of the time.
    TimedOut,
    /// A signal handler, which ran.
    Interrupted,
}

/// A time span as the kernel takes it.
pub fn timespec(t: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: t.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: t.subsec_nanos() as libc::c_long,
    }
}

/// Naps while `word` holds `expected`. `sleep_on` sleeps on the word as this kernel's processes do, if it
/// can: then one of them may end a nap early.
pub fn wait(
    word: &AtomicU32,
    expected: u32,
    timeout: Option<Duration>,
    sleep_on: impl Fn(Duration) -> Option<Waited>,
) -> Waited {
    let mut left = timeout.unwrap_or(Duration::MAX);
    let mut nap = FIRST_NAP;
    while word.load(Ordering::Acquire) == expected {
        if left.is_zero() {
            return Waited::TimedOut;
        }
        let this = nap.min(left);
        match sleep_on(this) {
            Some(Waited::TimedOut) => {}
            Some(waited) => return waited,
            None if sleep(&timespec(this)) => return Waited::Interrupted,
            None => {}
        }
        left = left.saturating_sub(this);
        nap = (nap * 2).min(LONGEST_NAP);
    }
    Waited::Woken
}

/// Sleeps by the system call: the C library's function is a cancellation point, and a cancelled thread would
/// unwind through us. Returns whether a signal handler ran.
fn sleep(spec: &libc::timespec) -> bool {
    let spec = core::ptr::from_ref(spec) as usize;
    let clock = libc::CLOCK_MONOTONIC as usize;
    // SAFETY: the timespec is live for the call, which is given nothing to write.
    let awake = unsafe { asleep(libc::SYS_clock_nanosleep, [clock, 0, spec, 0, 0, 0]) };
    awake.handled || awake.result == -(libc::EINTR as isize)
}
