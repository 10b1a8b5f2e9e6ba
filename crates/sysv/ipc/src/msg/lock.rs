//! The lock of a queue.

use super::name::name_the_last;
use super::queue::{Queue, Slow, LOG_ENTRIES};
use super::{done, end, retired};
use crate::{directory as dir, Ctx, Errno};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::log::Log;

impl Queue {
    /// Takes the lock, freezes both ends, and finishes what a dead owner has left.
    pub fn lock<'a>(&self, c: &'a Ctx, signals: &SignalsBlocked) -> Result<Slow<'a>, Errno> {
        let log = || Log { at: self.entry.log.load(Relaxed), entries: LOG_ENTRIES as u32 };
        let guard = dir::lock_object(c, signals, &self.entry.lock, log)?;
        end::freeze(&self.entry.send);
        end::freeze(&self.entry.receive);
        let slow = Slow { c, queue: *self, guard };
        // The process that was about to leave the ring died, or found no memory for another.
        done::let_go(self);
        if self.still() {
            name_the_last(c, self);
        }
        if self.entry.retired.load(Relaxed) != 0 {
            retired::collect(&slow, signals)?;
        }
        Ok(slow)
    }
}
