//! Tests of the pool's head, of its allocator, of its members and of who rings whom, on plain memory.

mod bells;
mod format;
mod heap;
mod mem;
mod member;

use crate::Mem;
use std::alloc::{alloc_zeroed, dealloc, Layout};

/// Zeroed, page-aligned memory.
pub struct Memory(*mut u8, Layout);

impl Memory {
    /// So many bytes.
    pub fn new(len: usize) -> Memory {
        let layout = Layout::from_size_align(len, 4096).unwrap();
        // SAFETY: the layout has a size above zero.
        let base = unsafe { alloc_zeroed(layout) };
        assert!(!base.is_null());
        Memory(base, layout)
    }

    /// The memory as a mapping; it must not be used longer than `self`.
    pub fn mem(&self) -> Mem {
        self.first(self.1.size())
    }

    /// Its first bytes.
    pub fn first(&self, len: usize) -> Mem {
        assert!(len <= self.1.size());
        // SAFETY: aligned, at least that long, and freed only with `self`.
        unsafe { Mem::new(self.0, len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0, self.1) }
    }
}
