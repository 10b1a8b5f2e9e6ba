//! Atomics and copies of a model checker, where one runs; else the processor's own.
//!
//! The types lie in memory as those do, and may be put over any memory of the same size.

use super::Ordering;
use crate::model::execution::{self, Change, Place};
use core::sync::atomic as plain;

pub use crate::model::execution::fence;

macro_rules! atomic {
    ($name:ident, $int:ty) => {
        /// An atomic like that of [`core`].
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(plain::$name);

        #[allow(missing_docs, clippy::missing_errors_doc)]
        impl $name {
            pub const fn new(value: $int) -> Self {
                Self(plain::$name::new(value))
            }
            pub const fn as_ptr(&self) -> *mut $int {
                self.0.as_ptr()
            }
            pub fn get_mut(&mut self) -> &mut $int {
                self.0.get_mut()
            }
            fn place(&self) -> Place {
                Place { at: self.as_ptr() as usize, len: size_of::<$int>() }
            }
            fn change(&self, change: Change, order: Ordering) -> Option<$int> {
                let result = execution::change(self.place(), change, order, Ordering::Relaxed)?;
                Some(result.unwrap_or_else(|old| old) as $int)
            }
            pub fn load(&self, order: Ordering) -> $int {
                let value = execution::load(self.place(), order);
                value.map_or_else(|| self.0.load(order), |value| value as $int)
            }
            pub fn store(&self, value: $int, order: Ordering) {
                let order = if order == Ordering::SeqCst { Ordering::Release } else { order };
                let stored = self.change(Change::Swap(value as u64), order);
                stored.map_or_else(|| self.0.store(value, order), |_| ())
            }
            pub fn swap(&self, value: $int, order: Ordering) -> $int {
                let old = self.change(Change::Swap(value as u64), order);
                old.unwrap_or_else(|| self.0.swap(value, order))
            }
            pub fn compare_exchange(
                &self,
                old: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                let change = Change::Replace(old as u64, new as u64);
                match execution::change(self.place(), change, success, failure) {
                    Some(result) => result.map(|old| old as $int).map_err(|now| now as $int),
                    None => self.0.compare_exchange(old, new, success, failure),
                }
            }
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut next: impl FnMut($int) -> Option<$int>,
            ) -> Result<$int, $int> {
                let mut old = self.load(failure);
                while let Some(new) = next(old) {
                    match self.compare_exchange(old, new, success, failure) {
                        Err(now) => old = now,
                        done => return done,
                    }
                }
                Err(old)
            }
            pub fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                let old = self.change(Change::Add(value as u64), order);
                old.unwrap_or_else(|| self.0.fetch_add(value, order))
            }
            pub fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                self.fetch_add(value.wrapping_neg(), order)
            }
            pub fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                let old = self.change(Change::And(value as u64), order);
                old.unwrap_or_else(|| self.0.fetch_and(value, order))
            }
            pub fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                let old = self.change(Change::Or(value as u64), order);
                old.unwrap_or_else(|| self.0.fetch_or(value, order))
            }
            pub fn fetch_max(&self, value: $int, order: Ordering) -> $int {
                let old = self.change(Change::Max(value as u64), order);
                old.unwrap_or_else(|| self.0.fetch_max(value, order))
            }
        }
    };
}

atomic!(AtomicU8, u8);
atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
atomic!(AtomicI64, i64);

/// Copies bytes of the program into the pool.
///
/// # Safety
/// `from` must have `len` bytes, and `to` room for them in the pool.
pub unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    if execution::writes(to as usize, len) {
        // SAFETY: the caller vouches for both.
        unsafe { core::ptr::copy_nonoverlapping(from, to, len) }
    }
}

/// Copies bytes of the pool out of it.
///
/// # Safety
/// `from` must have `len` bytes in the pool, and `to` room for them.
pub unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    execution::reads(from as usize, len);
    // SAFETY: the caller vouches for both.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) }
}

/// Copies bytes from one place of the pool to another, which may overlap.
///
/// # Safety
/// Both must have `len` bytes in the pool.
pub unsafe fn copy_within(from: *const u8, to: *mut u8, len: usize) {
    execution::reads(from as usize, len);
    if execution::writes(to as usize, len) {
        // SAFETY: the caller vouches for both.
        unsafe { core::ptr::copy(from, to, len) }
    }
}

/// Fills bytes of the pool with zeros.
///
/// # Safety
/// `at` must have `len` bytes in the pool.
pub unsafe fn zero(at: *mut u8, len: usize) {
    if execution::zeroes(at as usize, len) {
        // SAFETY: the caller vouches for it.
        unsafe { core::ptr::write_bytes(at, 0, len) }
    }
}

/// Does nothing in a model.
pub fn prefetch_to_write<T>(_: *const T) {}
