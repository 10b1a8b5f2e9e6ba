//! Why a call failed.

use crate::sys;
use libc::c_int;
use std::ffi::CStr;
use std::{fmt, io};

/// What the functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

/// A call that failed: its errno value, and why as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    errno: c_int,
    sentence: String,
}

/// What went wrong, as far as a program may decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No IPC object has the key, or there is no such pool.
    NotFound,
    /// There is one already.
    AlreadyExists,
    /// The mode or the owner forbids it.
    PermissionDenied,
    /// An argument that the call can't take.
    InvalidInput,
    /// In use: the pool, or all seats of the barrier.
    Busy,
    /// The time was up.
    TimedOut,
    /// Another party of the barrier has died; its seat goes to the party that opens the barrier next.
    PartyDied,
    /// The IPC object was removed, or the pool was taken away from this machine.
    Removed,
    /// No memory, or no room in the pool or for it.
    OutOfMemory,
    /// Anything else; see [`Error::raw_os_error`].
    Other,
}

impl Error {
    /// That of the calling thread's last failing call.
    pub(crate) fn last() -> Error {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        // SAFETY: a C string, valid until this thread asks again.
        let sentence = unsafe { CStr::from_ptr(sys::vshm_last_error()) };
        Error::new(errno, sentence.to_string_lossy())
    }

    pub(crate) fn new(errno: c_int, sentence: impl Into<String>) -> Error {
        let sentence = sentence.into();
        Error { errno, sentence }
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        match self.errno {
            libc::ENOENT => ErrorKind::NotFound,
            libc::EEXIST => ErrorKind::AlreadyExists,
            libc::EACCES | libc::EPERM => ErrorKind::PermissionDenied,
            libc::EINVAL => ErrorKind::InvalidInput,
            libc::EBUSY => ErrorKind::Busy,
            libc::ETIMEDOUT => ErrorKind::TimedOut,
            libc::EOWNERDEAD => ErrorKind::PartyDied,
            libc::EIDRM => ErrorKind::Removed,
            libc::ENOMEM | libc::ENOSPC => ErrorKind::OutOfMemory,
            _ => ErrorKind::Other,
        }
    }

    /// The errno value.
    pub fn raw_os_error(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(error.errno).kind(), error)
    }
}

/// What a call returned that says -1 on failure.
pub(crate) fn checked(returned: c_int) -> Result<c_int> {
    if returned < 0 {
        Err(Error::last())
    } else {
        Ok(returned)
    }
}
