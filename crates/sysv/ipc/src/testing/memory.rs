//! Memory of a test's pool.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use vshmem_pool::Mem;

/// Zeroed, page-aligned memory between two margins that nobody may touch.
pub struct Memory {
    /// The address at which the first margin begins.
    base: *mut u8,
    /// The layout of both margins and what is between them.
    layout: Layout,
}

/// Bytes of a margin.
const MARGIN: usize = 1 << 16;
/// The value of each byte in it.
const UNTOUCHED: u8 = 0xa5;

// SAFETY: the pool in it is made of atomics and racing copies, from whatever thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory of so many bytes.
    pub fn new(len: usize) -> Memory {
        let layout = Layout::from_size_align(len + 2 * MARGIN, 4096).unwrap();
        // SAFETY: the layout has a size above zero.
        let base = unsafe { alloc_zeroed(layout) };
        assert!(!base.is_null());
        let memory = Memory { base, layout };
        for margin in memory.margins() {
            // SAFETY: allocated above, and nobody else's yet.
            unsafe { margin.write_bytes(UNTOUCHED, MARGIN) };
        }
        memory
    }

    /// Bytes between the margins.
    pub fn len(&self) -> usize {
        self.layout.size() - 2 * MARGIN
    }

    /// The memory, for a pool.
    pub fn mem(&self) -> Mem {
        // SAFETY: between the margins, so aligned and `len` long; it lives as long as the world that all
        // processes hold.
        unsafe { Mem::new(self.base.add(MARGIN), self.len()) }
    }

    /// Has nobody written beside it?
    pub fn are_margins_untouched(&self) -> bool {
        self.margins().iter().all(|margin| {
            // SAFETY: a margin has so many bytes, and nobody writes to it but by mistake.
            let bytes = unsafe { core::slice::from_raw_parts(*margin, MARGIN) };
            bytes.iter().all(|b| *b == UNTOUCHED)
        })
    }

    fn margins(&self) -> [*mut u8; 2] {
        // SAFETY: both inside of what was allocated.
        unsafe { [self.base, self.base.add(MARGIN + self.len())] }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base, self.layout) }
    }
}
