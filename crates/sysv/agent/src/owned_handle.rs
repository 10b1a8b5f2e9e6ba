//! An owned handle of a pool, which is closed when its last user drops it.

use crate::joined_pool::JoinedPool;
use crate::sigbus::SigbusGuard;
use std::borrow::Borrow;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use vshmem_transport::Handle;

/// A pool that several threads of an agent use.
pub type SharedPool = Arc<JoinedPool<OwnedHandle>>;

/// A pool's handle, which is closed on drop.
pub struct OwnedHandle {
    handle: ManuallyDrop<Handle>,
    guard: ManuallyDrop<SigbusGuard>,
}

impl OwnedHandle {
    /// # Safety
    /// The pool's memory must not be used after this is dropped.
    pub unsafe fn new(handle: Handle) -> OwnedHandle {
        let mem = handle.mem();
        let guard = SigbusGuard::new(mem.base() as usize, mem.mapped());
        OwnedHandle { handle: ManuallyDrop::new(handle), guard: ManuallyDrop::new(guard) }
    }

    /// Whether a part of the pool's memory is lost, since its file was truncated, though nobody may have
    /// touched that part yet.
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost() || self.handle.is_truncated()
    }
}

impl Deref for OwnedHandle {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Borrow<Handle> for OwnedHandle {
    fn borrow(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // SAFETY: both are taken here and nowhere else. The memory is not used any more, as the caller of
        // `new` promised.
        unsafe {
            drop(ManuallyDrop::take(&mut self.guard));
            ManuallyDrop::take(&mut self.handle).close();
        }
    }
}
