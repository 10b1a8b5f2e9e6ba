//! Closing descriptors.

use super::raw::call;

/// Closes a descriptor that the caller has just opened.
pub(crate) fn close(fd: i32) {
    // SAFETY: closing a number touches no memory. Linux frees the number whatever it returns.
    let _ = unsafe { call!(SYS_close, fd) };
}

/// A descriptor that is closed when this goes out of scope.
#[derive(Debug)]
pub(crate) struct Owned(i32);

impl Owned {
    /// Takes over a descriptor that the caller has just opened.
    pub fn new(fd: i32) -> Owned {
        Owned(fd)
    }

    /// The number.
    pub fn fd(&self) -> i32 {
        self.0
    }

    /// The number, which the caller closes from now on.
    pub fn into_fd(self) -> i32 {
        core::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        close(self.0);
    }
}
