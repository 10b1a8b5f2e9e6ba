//! Tests of the pool's head, of its allocator, of its members and of who rings whom, on plain memory.

mod budget;
mod doorbell;
mod format;
mod growth;
mod heap;
mod mem;
mod member;
mod room;

use crate::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::{Cred, Kernel, Mem, Waited};
use core::time::Duration;
use std::alloc::{alloc_zeroed, dealloc, Layout};

/// Zeroed, page-aligned memory.
pub struct Memory(*mut u8, Layout);

impl Memory {
    /// Memory of so many bytes.
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

/// A kernel that has memory for everything, and is asked nothing else.
#[derive(Default)]
pub struct Ready {
    /// The time that its clock shows, in nanoseconds.
    pub clock: AtomicU64,
}

impl Kernel for Ready {
    fn alive(&self, _slot: u32, _pid: u32, _started: u64) -> bool {
        true
    }
    fn block_signals(&self) -> u64 {
        0
    }
    fn restore_signals(&self, _old: u64) {}
    fn reserve(&self, _offset: u64, _len: u64) -> bool {
        true
    }
    fn now(&self) -> i64 {
        0
    }
    fn monotonic(&self) -> u64 {
        self.clock.load(Relaxed)
    }
    fn cred(&self) -> Cred {
        unreachable!("nobody's credentials matter here")
    }
    fn wait(&self, _word: &AtomicU32, _expected: u32, _timeout: Option<Duration>) -> Waited {
        Waited::TimedOut
    }
    fn wake(&self, _word: &AtomicU32, _n: u32) -> u32 {
        0
    }
}
