//! A pool's memory that several threads of an agent have: it is unmapped when the last of them lets go.

use crate::kernel::Below;
use std::borrow::Borrow;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use vshmem_port::Handle;

/// A pool, this kernel in it, and its memory.
pub type Shared = Arc<Below<Mapped>>;

/// A pool's handle, which is closed with this.
pub struct Mapped(ManuallyDrop<Handle>);

impl Mapped {
    /// # Safety
    /// Nobody may use the pool's memory when this is gone.
    pub unsafe fn new(handle: Handle) -> Mapped {
        Mapped(ManuallyDrop::new(handle))
    }
}

impl Deref for Mapped {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.0
    }
}

impl Borrow<Handle> for Mapped {
    fn borrow(&self) -> &Handle {
        &self.0
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it is taken here and nowhere else, and nobody uses the memory any more, as whoever made this has promised.
        unsafe { ManuallyDrop::take(&mut self.0).close() };
    }
}
