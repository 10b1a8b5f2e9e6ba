//! Pools, and which of them calls go to.

use crate::error::{checked, Error, Result};
use crate::sys;
use std::ffi::{CString, OsStr};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null_mut, NonNull};
use std::sync::{RwLock, RwLockReadGuard};

/// Held for writing while a pool is closed: then no thread may be inside a call on it. Waits at barriers
/// don't hold it: a barrier is attached, and keeps its pool open.
static CALLS: RwLock<()> = RwLock::new(());

/// Held during a call on the current pool.
pub(crate) fn during_a_call() -> RwLockReadGuard<'static, ()> {
    CALLS.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A pool that is open, beside the one that the environment names. Up to seven are at once.
///
/// When it is dropped, it is closed, unless it is the current pool or segments or barriers of it are
/// attached: then it stays open. [`Pool::close`] says so.
#[derive(Debug)]
pub struct Pool {
    handle: NonNull<sys::vshm_pool>,
}

// SAFETY: the handle only names the pool, and the library takes calls from any thread.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

fn c_string(name: &OsStr) -> Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| Error::new(libc::EINVAL, "a pool's name has no zero byte"))
}

impl Pool {
    /// Makes a local pool, given by name or path, and opens it. It has `size` bytes (0: 1 GiB, less on a
    /// small file system), which only take memory as they are used.
    pub fn create(name: impl AsRef<OsStr>, size: u64, mode: u32) -> Result<Pool> {
        let text = c_string(name.as_ref())?;
        let call = during_a_call();
        // SAFETY: a C string.
        checked(unsafe { sys::vshm_pool_create(text.as_ptr(), size, mode) })?;
        drop(call);
        Pool::open(name)
    }

    /// Opens a pool that exists, by name or path. Calls go there after [`Pool::make_current`].
    pub fn open(name: impl AsRef<OsStr>) -> Result<Pool> {
        let name = c_string(name.as_ref())?;
        let _call = during_a_call();
        // SAFETY: a C string.
        NonNull::new(unsafe { sys::vshm_pool_open(name.as_ptr()) })
            .map(|handle| Pool { handle })
            .ok_or_else(Error::last)
    }

    /// Makes it the current pool of the process, for all its threads.
    pub fn make_current(&self) -> Result<()> {
        use_pool(self.handle.as_ptr())
    }

    /// Makes the pool that `VSHMEM_POOL` names the current one.
    pub fn make_default_current() -> Result<()> {
        use_pool(null_mut())
    }

    /// Closes it, and undoes this process's `SEM_UNDO` adjustments in it. Gives it back if it is the current
    /// pool, or segments or barriers of it are attached.
    pub fn close(self) -> std::result::Result<(), (Pool, Error)> {
        let pool = ManuallyDrop::new(self);
        pool.leave().map_err(|error| (ManuallyDrop::into_inner(pool), error))
    }

    fn leave(&self) -> Result<()> {
        let _alone = CALLS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: open, and no thread is inside a call on it: those of this crate hold the lock, or are on a
        // barrier, with which the library refuses.
        checked(unsafe { sys::vshm_pool_close(self.handle.as_ptr()) }).map(|_| ())
    }
}

fn use_pool(handle: *mut sys::vshm_pool) -> Result<()> {
    let _call = during_a_call();
    // SAFETY: null, or a pool that is open.
    checked(unsafe { sys::vshm_pool_use(handle) }).map(|_| ())
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.leave();
    }
}
