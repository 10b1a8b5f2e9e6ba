//! Views of an open pool, without a lock: nobody waits for them, and nothing in the pool is trusted.

use std::mem::ManuallyDrop;
use vshmem_base::error::{error, Result};
use vshmem_ipc::stats::{self, Who};
use vshmem_pool::{Pool, Uuid};
use vshmem_transport::{Handle, PoolRef};

/// An open pool.
pub struct OpenPool {
    pool: Pool,
    handle: ManuallyDrop<Handle>,
}

impl OpenPool {
    /// Opens a pool, without joining it.
    pub fn open(reference: &PoolRef) -> Result<OpenPool> {
        let refused = |why: String| error!("could not open the pool {reference}: {why}");
        let handle = vshmem_transport::open(reference).map_err(|e| refused(e.to_string()).code(1))?;
        OpenPool::of(handle).map_err(refused)
    }

    /// The pool behind a handle, or why it is none.
    pub fn of(handle: Handle) -> std::result::Result<OpenPool, String> {
        match Pool::open(handle.mem()) {
            Ok(pool) => Ok(OpenPool { pool, handle: ManuallyDrop::new(handle) }),
            Err(error) => {
                // SAFETY: nothing refers to the memory.
                unsafe { handle.close() };
                Err(error.to_string())
            }
        }
    }

    /// Its length in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.handle.mem().len() as u64
    }

    /// Its UUID, if it has one.
    pub(crate) fn uuid(&self) -> Option<Uuid> {
        self.pool.uuid()
    }

    /// A view of it.
    pub(crate) fn view(&self) -> View<'_> {
        View::of(&self.pool, &self.handle)
    }
}

impl Drop for OpenPool {
    fn drop(&mut self) {
        // SAFETY: it is not used after this, as `self` is not. The mapping is used through `self.pool` alone,
        // which goes with `self`.
        unsafe { ManuallyDrop::take(&mut self.handle).close() };
    }
}

/// A view of an open pool.
pub(crate) struct View<'a> {
    pub pool: &'a Pool,
    handle: &'a Handle,
    /// This kernel's number in the member table.
    pub here: Option<u16>,
}

impl View<'_> {
    /// The view of a pool behind this handle.
    pub fn of<'a>(pool: &'a Pool, handle: &'a Handle) -> View<'a> {
        View { pool, handle, here: handle.find_member(pool) }
    }

    /// A function that backs tables with memory before they are read.
    pub fn back(&self) -> impl FnMut(u64, u64) -> bool + use<'_> {
        |at, len| self.handle.reserve(at, len)
    }

    /// Whether a process of this kernel is not known to be dead.
    pub fn lives_here(&self, slot: u32) -> bool {
        self.handle.alive(slot) != Some(false)
    }

    /// Calls `each` with the processes that are not known to be dead, except those that only look at the
    /// pool.
    pub fn processes(&self, mut each: impl FnMut(Who)) {
        stats::processes(self.pool, &mut self.back(), |id, who| {
            if Some(who.member) != self.here || self.lives_here(id.slot) {
                each(who);
            }
        });
    }
}
