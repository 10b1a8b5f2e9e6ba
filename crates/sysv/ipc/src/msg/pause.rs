//! Naps that grow, for waits in which another process needs a moment.

use super::wary::Wary;
use crate::{Ctx, Errno, Waited};
use core::time::Duration;
use vshmem_pool::atomic::AtomicU32;
use vshmem_pool::tuning::{FIRST_MESSAGE_NAP, LONGEST_MESSAGE_NAP, LONGEST_MESSAGE_WAIT, STOPPED_AFTER};

/// Naps of one wait, and how long they were in all.
pub struct Pause {
    nap: Duration,
    slept: Duration,
}

impl Pause {
    /// No nap yet.
    pub fn new() -> Pause {
        Pause { nap: FIRST_MESSAGE_NAP, slept: Duration::ZERO }
    }

    /// Naps; `ENOMEM` after [`LONGEST_MESSAGE_WAIT`].
    pub fn nap(&mut self, c: &Ctx, wary: &Wary) -> Result<(), Errno> {
        if self.slept > LONGEST_MESSAGE_WAIT {
            return Err(Errno::ENOMEM);
        }
        let nobody = AtomicU32::new(0);
        let waited = c.kernel.wait(&nobody, 0, Some(self.nap));
        if matches!(waited, Waited::Interrupted | Waited::Forked) || wary.signal_waits() {
            return Err(Errno::EINTR);
        }
        c.budget.rest(self.nap.as_nanos() as u64);
        self.slept += self.nap;
        self.nap = (self.nap * 2).min(LONGEST_MESSAGE_NAP);
        Ok(())
    }

    /// Were the naps longer than a moment ([`STOPPED_AFTER`])?
    pub fn is_long(&self) -> bool {
        self.slept >= STOPPED_AFTER
    }

    /// Naps; false when it has been longer than a moment.
    pub fn nap_briefly(&mut self, c: &Ctx) -> bool {
        !self.is_long() && self.nap(c, &Wary::new(c)).is_ok()
    }
}
