//! errno, and the way out of every call.

use crate::process::tls;
use crate::thread::last_error;
use std::panic::{catch_unwind, AssertUnwindSafe};
use vshmem_ipc::Errno;

/// Sets the calling thread's errno.
pub fn set(value: i32) {
    // SAFETY: libc's location of errno is valid in every thread.
    unsafe { *libc::__errno_location() = value }
}

/// The calling thread's errno.
pub fn get() -> i32 {
    // SAFETY: libc's location of errno is valid in every thread.
    unsafe { *libc::__errno_location() }
}

/// errno as it was, put back when this is dropped: for work that calls libc within a call that may yet
/// succeed.
pub struct ErrnoGuard(i32);

impl ErrnoGuard {
    /// The calling thread's errno now.
    pub fn now() -> ErrnoGuard {
        ErrnoGuard(get())
    }
}

impl Drop for ErrnoGuard {
    fn drop(&mut self) {
        set(self.0);
    }
}

/// A type with a value for C that says that a call has failed.
pub trait Failure {
    /// The value.
    const FAILED: Self;
}

impl Failure for i32 {
    const FAILED: i32 = -1;
}
impl Failure for isize {
    const FAILED: isize = -1;
}
impl<T> Failure for *mut T {
    const FAILED: *mut T = usize::MAX as *mut T;
}

/// Runs one call of the interface: `name` for the error text. An error goes to errno; a panic, which would be
/// a mistake of this library, ends here as EIO and reaches neither the program nor its terminal.
#[inline(always)]
pub fn guard<T: Failure>(name: &'static str, call: impl FnOnce() -> Result<T, Errno>) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => failed(name, error.0),
        Err(_) => broken(name),
    }
}

#[cold]
fn failed<T: Failure>(name: &'static str, error: i32) -> T {
    // SAFETY: the thread's own block; nobody else holds a reference into it while this call ends.
    unsafe {
        (*tls::thread()).error.record(name, error);
        (*tls::thread()).error.log();
    }
    set(error);
    T::FAILED
}

#[cold]
fn broken<T: Failure>(name: &'static str) -> T {
    last_error::explain(format_args!("Vshmem hit a fault of its own; please report it"));
    failed(name, libc::EIO)
}

/// A mistake of ours shall not write to the program's terminal; [`guard`] turns it into an error.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// The result of a system call made by the instruction, as a `Result`.
#[inline]
pub fn from_kernel(result: isize) -> Result<isize, Errno> {
    if (-4095..0).contains(&result) {
        Err(Errno(-result as i32))
    } else {
        Ok(result)
    }
}
