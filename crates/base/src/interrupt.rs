//! Interrupts: commands that must clean up remember that the user asked to stop.

use crate::error::{Error, Result};
use crate::signal_descriptor::TERMINATION;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn remember(signal: i32) {
    SIGNAL.store(signal, Ordering::Relaxed);
}

/// Has SIGINT, SIGTERM and SIGHUP be remembered from now on, instead of ending the process.
pub fn watch() {
    for signal in TERMINATION {
        // SAFETY: the handler stores to an atomic, which is async-signal-safe; the structure is zeroed, which
        // is a valid value, before its fields are set.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = remember as *const () as usize;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// The signal that came, if any: a remembered one, or one that is blocked and pending.
pub fn signal() -> Option<i32> {
    let remembered = SIGNAL.load(Ordering::Relaxed);
    // SAFETY: sigpending initialises the set before it is asked.
    let pending = |signal: &i32| unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&mut set) == 0 && libc::sigismember(&set, *signal) == 1
    };
    if remembered != 0 {
        return Some(remembered);
    }
    TERMINATION.into_iter().find(pending)
}

/// An error if the user asked to stop.
pub fn check() -> Result<()> {
    match signal() {
        Some(signal) => Err(Error::new("interrupted; what was started has been stopped again")
            .code(128u8.saturating_add(signal as u8))),
        None => Ok(()),
    }
}

/// Calls `done` every 10 ms until it returns something, the timeout expires (`None`), or the user asks to
/// stop.
pub fn wait_for<T>(timeout: Duration, done: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    poll(timeout, Duration::from_millis(10), done)
}

/// Calls `done` at this interval until it returns something, the timeout expires (`None`), or the user asks
/// to stop.
pub fn poll<T>(
    timeout: Duration,
    interval: Duration,
    mut done: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    repeat(timeout, interval, || check().and_then(|()| done()).transpose()).transpose()
}

/// Calls `done` at this interval until it returns something or the timeout expires, even if the user asks to
/// stop.
pub fn repeat<T>(timeout: Duration, interval: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        let value = done();
        if value.is_some() || Instant::now() >= deadline {
            return value;
        }
        std::thread::sleep(interval);
    }
}
