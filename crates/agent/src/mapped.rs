//! A pool's memory that several threads of an agent have: it is unmapped when the last of them lets go.

use crate::kernel::Below;
use crate::lost::Guarded;
use std::borrow::Borrow;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use vshmem_transport::Handle;

/// A pool, this kernel in it, and its memory.
pub type Shared = Arc<Below<Mapped>>;

/// A pool's handle, which is closed with this.
pub struct Mapped {
    handle: ManuallyDrop<Handle>,
    guarded: ManuallyDrop<Guarded>,
}

impl Mapped {
    /// # Safety
    /// Nobody may use the pool's memory when this is gone.
    pub unsafe fn new(handle: Handle) -> Mapped {
        let mem = handle.mem();
        let guarded = Guarded::new(mem.base() as usize, mem.len());
        Mapped {
            handle: ManuallyDrop::new(handle),
            guarded: ManuallyDrop::new(guarded),
        }
    }

    /// Has a part of its memory gone away, as its file was truncated?
    pub fn is_lost(&self) -> bool {
        self.guarded.is_lost()
    }
}

impl Deref for Mapped {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Borrow<Handle> for Mapped {
    fn borrow(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: both are taken here and nowhere else, and nobody uses the memory any more, as whoever made this has promised.
        unsafe {
            drop(ManuallyDrop::take(&mut self.guarded));
            ManuallyDrop::take(&mut self.handle).close();
        }
    }
}
