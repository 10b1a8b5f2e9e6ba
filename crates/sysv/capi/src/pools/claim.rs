//! The liveness lock that goes with a process slot, and how it is taken.

use vshmem_transport::{Handle, Liveness};

/// A claim: liveness locks are tried until one is free.
pub struct Claim<'h> {
    handle: &'h Handle,
    lock: fn(&Handle, u32) -> Option<Liveness>,
    taken: Option<Liveness>,
    hopeless: bool,
}

impl<'h> Claim<'h> {
    /// A claim by this function of the pool's handle.
    pub fn new(handle: &'h Handle, lock: fn(&Handle, u32) -> Option<Liveness>) -> Claim<'h> {
        Claim { handle, lock, taken: None, hopeless: false }
    }

    /// Takes the lock of a slot, in place of one that it has. False: it is held, or none is to be had at all.
    pub fn take(&mut self, slot: u32) -> bool {
        if self.hopeless {
            return false;
        }
        self.give_back();
        self.taken = (self.lock)(self.handle, slot);
        // Not held, yet not to be had: no descriptor is free, or the file can't be opened any more.
        self.hopeless = self.taken.is_none() && self.handle.alive(slot) != Some(true);
        self.taken.is_some()
    }

    /// Was it found that no lock is to be had?
    pub fn is_hopeless(&self) -> bool {
        self.hopeless
    }

    /// The lock that was taken last.
    pub fn taken(&self) -> Option<Liveness> {
        self.taken
    }

    /// Lets go of the lock that was taken last, if any.
    pub fn give_back(&mut self) {
        if let Some(liveness) = self.taken.take() {
            // SAFETY: claimed by this process, and nobody knows of it.
            unsafe { liveness.end() };
        }
    }
}
