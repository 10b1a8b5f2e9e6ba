//! The processor's own.

pub use core::sync::atomic::{fence, AtomicI64, AtomicU32, AtomicU64, AtomicU8};

/// Copies bytes of the program into the pool.
///
/// # Safety
/// `from` must have `len` bytes, and `to` room for them in the pool.
#[inline(always)]
pub unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) }
}

/// Copies bytes of the pool out of it.
///
/// # Safety
/// `from` must have `len` bytes in the pool, and `to` room for them.
#[inline(always)]
pub unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) }
}

/// Copies bytes from one place of the pool to another, which may overlap.
///
/// # Safety
/// Both must have `len` bytes in the pool.
#[inline(always)]
pub unsafe fn copy_within(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { core::ptr::copy(from, to, len) }
}

/// Fills bytes of the pool with zeros.
///
/// # Safety
/// `at` must have `len` bytes in the pool.
#[inline(always)]
pub unsafe fn zero(at: *mut u8, len: usize) {
    // SAFETY: the caller vouches for it.
    unsafe { core::ptr::write_bytes(at, 0, len) }
}
