//! The signals of a call that waits in a queue, so that none comes in vain.
//!
//! A signal handler ends the call with EINTR. It is seen to have run where it ends a sleep, or to be due
//! while signals are blocked; in between it would run unseen. Once is a moment that no program can tell from
//! the one before the call. But a waiter that is told to try again has such a moment in each round, and a
//! member can have it try again without end. So after the first time signals stay blocked until the call
//! returns, and a sleeper looks for them.

use crate::Ctx;
use core::time::Duration;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::tuning::DEAF_NS;
use vshmem_pool::Kernel;

/// The signals of a call, and whether they are blocked.
pub struct Wary<'a> {
    kernel: &'a dyn Kernel,
    signals: Option<SignalsBlocked<'a>>,
    stays: bool,
}

impl<'a> Wary<'a> {
    /// A call whose signals are let through.
    pub fn new(c: &'a Ctx) -> Wary<'a> {
        Wary { kernel: c.kernel, signals: None, stays: false }
    }

    /// Blocks signals, as [`SignalsBlocked::attentive`] does.
    pub fn attentive(&mut self) -> &SignalsBlocked<'a> {
        let signals = self.blocked();
        signals.attend();
        signals
    }

    /// Blocks signals, as [`SignalsBlocked::open`] does.
    pub fn open(&mut self) -> &SignalsBlocked<'a> {
        let signals = self.blocked();
        signals.reopen();
        signals
    }

    fn blocked(&mut self) -> &SignalsBlocked<'a> {
        let kernel = self.kernel;
        self.signals.get_or_insert_with(|| SignalsBlocked::new(kernel))
    }

    /// Keeps signals blocked until the call returns.
    pub fn stay(&mut self) {
        self.blocked();
        self.stays = true;
    }

    /// Lets signals through, unless they stay blocked. No lock is held.
    pub fn let_through(&mut self) {
        if !self.stays {
            self.signals = None;
        }
    }

    /// Is a signal due that would end a sleep, if it were let through?
    pub fn signal_waits(&self) -> bool {
        self.signals.as_ref().is_some_and(SignalsBlocked::signal_waits)
    }

    /// The part of a nap that may be slept before signals are looked for.
    pub fn part_of(&self, nap: Duration) -> Duration {
        if self.stays {
            nap.min(Duration::from_nanos(DEAF_NS))
        } else {
            nap
        }
    }
}
