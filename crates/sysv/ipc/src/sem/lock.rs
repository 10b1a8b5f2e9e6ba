//! The lock of a set.

use super::set::Set;
use super::undo::finish_clearing;
use crate::{directory as dir, Ctx, Errno};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::lock::{Guard, SignalsBlocked};
use vshmem_pool::log::Log;

/// No log has more entries: two for each semaphore, one for each operation of a call.
const MOST_LOGGED: u64 = 1 << 18;

impl Set {
    /// Takes the set's lock, and finishes what a dead owner has left.
    pub fn lock<'a>(&self, c: &'a Ctx, signals: &SignalsBlocked) -> Result<Guard<'a>, Errno> {
        let log = || Log {
            at: self.entry.log.load(Relaxed),
            entries: self.entry.log_entries.load(Relaxed).min(MOST_LOGGED) as u32,
        };
        let guard = dir::lock_object(c, signals, &self.entry.lock, log)?;
        // The owner that died in the middle of that may have been followed by one that could not have the
        // pool's lock.
        finish_clearing(c, self);
        Ok(guard)
    }
}
