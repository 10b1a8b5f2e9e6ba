//! Checked access to a mapped pool.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Types that may be overlaid on pool memory.
///
/// # Safety
/// Every bit pattern must be a valid value, every field that another process may write must be an atomic, and the
/// alignment must not exceed 128.
pub unsafe trait Shared: Sized {}

// SAFETY: atomics of integers accept every bit pattern.
unsafe impl Shared for AtomicU32 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU64 {}

/// A mapped pool: where it is in this process, and its length in bytes.
///
/// All access is checked against the length. The mapping itself is kept alive by whoever made the `Mem`.
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Mem` hands out references to atomics and raw copies only, both of which may be used from any thread.
unsafe impl Send for Mem {}
// SAFETY: as above.
unsafe impl Sync for Mem {}

impl Mem {
    /// Wraps `len` bytes at `base`.
    ///
    /// # Safety
    /// `base` must be aligned to 4096 and point to `len` bytes that stay readable and writable for as long as this
    /// value or a copy of it is used, and that are only accessed as atomics or by racing copies elsewhere.
    pub unsafe fn new(base: *mut u8, len: usize) -> Mem {
        debug_assert!(!base.is_null() && base as usize % 4096 == 0);
        // SAFETY: the caller passes a pointer to mapped memory, which is not null.
        let base = unsafe { NonNull::new_unchecked(base) };
        Mem { base, len }
    }

    /// The first byte of the mapping.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `T` at `offset`, if it lies inside the pool and is aligned.
    #[inline]
    pub fn at<T: Shared>(&self, offset: u64) -> Option<&'static T> {
        self.bytes(offset, size_of::<T>() as u64).and_then(|p| {
            let p = p.cast::<T>();
            // SAFETY: `bytes` checked that the whole of T is inside the mapping; T accepts every bit pattern and is
            // made of atomics; the mapping outlives every use by the contract of `new`.
            p.is_aligned().then(|| unsafe { &*p })
        })
    }

    /// The address of `len` bytes at `offset`, if they lie inside the pool.
    #[inline]
    pub fn bytes(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        if end > self.len as u64 {
            return None;
        }
        // SAFETY: offset <= end <= len, so the result is inside the mapping or one past it.
        Some(unsafe { self.base.as_ptr().add(offset as usize) })
    }

    /// The 64-bit word at `offset`; `None` if it is outside the pool or not aligned.
    #[inline]
    pub fn word(&self, offset: u64) -> Option<&'static AtomicU64> {
        self.at(offset)
    }

    /// Fills `len` bytes at `offset` with zeros; false if they are not all inside the pool.
    pub fn zero(&self, offset: u64, len: u64) -> bool {
        match self.bytes(offset, len) {
            // SAFETY: the range was checked; others may race, which costs them their data but not us.
            Some(p) => unsafe {
                core::ptr::write_bytes(p, 0, len as usize);
                true
            },
            None => false,
        }
    }
}
