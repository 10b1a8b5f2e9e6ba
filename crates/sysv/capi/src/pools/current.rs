//! The pool that calls go to: the one that the environment names, unless the program uses another.

use crate::pools::table::CONFIGURED;
use crate::process::gate::Inside;
use crate::process::page::MAX_POOLS;
use crate::thread::permit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The place of the pool that calls go to, as [`key`] needs it.
static CURRENT: AtomicU64 = AtomicU64::new(key_of(CONFIGURED));

/// The part of keys that tells places apart, beside the id and the permit.
const fn key_of(index: usize) -> u64 {
    const _: () = assert!(MAX_POOLS <= 1 << (62 - PLACE_SHIFT) && permit::PERMITS >> PLACE_SHIFT == 0);
    !((index as u64) << PLACE_SHIFT)
}

/// The lowest bit of the place in keys. Two bits above it are left, so that no key is 0.
const PLACE_SHIFT: u32 = 59;

/// The place where the pool is open now that the environment names: another one, if it was taken away and
/// given back.
static HOME: AtomicUsize = AtomicUsize::new(CONFIGURED);

/// Makes another pool the one that calls go to.
pub fn use_pool(index: usize) {
    CURRENT.store(key_of(index), Ordering::Relaxed);
}

/// The key of an id in the pool that calls go to: no other id has it in any pool. It is never 0.
#[inline(always)]
pub fn key(id: i32) -> u64 {
    CURRENT.load(Ordering::Relaxed) ^ u64::from(id as u32)
}

/// The key of an id in the pool at a place.
#[inline]
pub fn key_in(index: usize, id: i32) -> u64 {
    key_of(index) ^ u64::from(id as u32)
}

/// The place of the pool that calls go to.
#[inline(always)]
pub fn place() -> usize {
    (!CURRENT.load(Ordering::Relaxed) >> PLACE_SHIFT) as usize
}

/// The place of the pool that the environment names, as it is open now.
pub fn home() -> usize {
    HOME.load(Ordering::Relaxed)
}

/// Is it a place of the pool that the environment names, now or at first?
pub fn is_configured(index: usize) -> bool {
    index == CONFIGURED || index == home()
}

/// Has the pool that the environment names, and that calls go to, be at another place from now on.
pub fn move_home(_gate: &Inside, index: usize) {
    HOME.store(index, Ordering::Relaxed);
    use_pool(index);
}
