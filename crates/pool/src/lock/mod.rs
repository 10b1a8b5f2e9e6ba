//! Locks that survive their owner.
//!
//! A lock is a 32-bit word that names the process slot of its owner, and a redo log ([`crate::log`]). It is only taken with
//! signals blocked ([`Quiet`]), so a signal handler never meets a lock that its own thread holds.
//!
//! # Why it is correct
//! * *Exclusion*: the word goes from 0 to an owner, or from a dead owner to a living one, by compare-and-swap only. A dead owner
//!   never comes back: a slot's generation changes before the slot is used again, and the word carries its low 14 bits.
//! * *No wake-up is lost*: a waiter sets `CONTENDED` by compare-and-swap before it sleeps on exactly that value; the owner
//!   releases by an atomic exchange and wakes one if the bit was set. Who was asleep takes the lock with the bit set, since others may sleep too.
//! * *Death*: nobody is woken by a death, so sleepers look again after a while, at first after 1 ms, at the latest after 50.
//! * *The same code under a model*: `protocol` is generic over the word and the world, and runs under loom in `model`.
//! * *A stuck or lying owner*: after [`PATIENCE`] without any change the lock is given up with [`Stuck::Owner`]. Who is
//!   known to be stopped is waited for as long as that lasts. Where a call has changed nothing yet, a signal ends a wait that is
//!   longer than [`DEAF`].
//! * *In a hurry*: who must not be held up, as the back end, gives up sooner ([`Kernel::patience`]), and even if the word changes all the time.

mod protocol;

#[cfg(test)]
mod model;

use crate::log::{Log, Txn};
use crate::{Ctx, Kernel};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use core::time::Duration;
use protocol::{Word, World, HELD};

/// How long an owner that lives may keep others waiting, in nanoseconds. Owners need microseconds; this is for one whose machine
/// is paused, or for a scribbled lock word.
pub const PATIENCE: u64 = 20_000_000_000;
/// How long a wait may be that signals don't end, in nanoseconds.
pub const DEAF: u64 = 50_000_000;

/// Why a lock was not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// The lock's owner lives but has not let go for [`PATIENCE`].
    Owner,
    /// The lock's owner lives but has not let go for [`DEAF`], and a signal waits for the caller.
    Signal,
}

/// While this lives, the calling thread gets no signal.
pub struct Quiet<'a> {
    kernel: &'a dyn Kernel,
    old: u64,
    /// Whether a signal ends the wait for the next lock.
    attentive: Cell<bool>,
}

impl<'a> Quiet<'a> {
    /// Blocks signals.
    pub fn new(kernel: &'a dyn Kernel) -> Quiet<'a> {
        Quiet {
            kernel,
            old: kernel.block_signals(),
            attentive: Cell::new(false),
        }
    }

    /// The same for a call that has changed nothing yet: a signal ends the wait for the first lock.
    pub fn attentive(kernel: &'a dyn Kernel) -> Quiet<'a> {
        let quiet = Quiet::new(kernel);
        quiet.attentive.set(true);
        quiet
    }
}

impl Quiet<'_> {
    /// Will a signal handler run when this is dropped?
    pub fn handler_waits(&self) -> bool {
        self.kernel.handler_waits(self.old)
    }

    /// Is there a signal that does anything, be it only to end or stop the process, and should end the wait for a lock?
    fn is_called(&self) -> bool {
        self.attentive.get() && self.kernel.signal_waits(self.old)
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.kernel.restore_signals(self.old);
    }
}

/// The lock is held; dropping this releases it.
pub struct Guard<'a> {
    ctx: &'a Ctx<'a>,
    word: &'static AtomicU32,
    log: Log,
    inherited: bool,
    later: [Cell<Option<&'static AtomicU32>>; LATER],
}

/// Wake-ups that a lock's owner can put off until it has let the lock go.
const LATER: usize = 8;

impl<'a> Guard<'a> {
    /// Takes the lock at `word`; finishes what a dead owner has left in its redo log. Where the log is, `log` tells once the lock is
    /// held: before, the construct may be removed and its memory be somebody else's.
    pub fn lock(
        ctx: &'a Ctx,
        quiet: &Quiet,
        word: &'static AtomicU32,
        log: impl Fn() -> Log,
    ) -> Result<Guard<'a>, Stuck> {
        let here = Here {
            ctx,
            quiet: Some(quiet),
            log: &log,
        };
        let inherited = protocol::acquire(&here, word, owner_word(ctx))?;
        quiet.attentive.set(false);
        Ok(Guard {
            ctx,
            word,
            log: log(),
            inherited,
            later: [const { Cell::new(None) }; LATER],
        })
    }

    /// Wakes a waiter of `word` as soon as the lock is free, so that it does not wake up to wait for the lock.
    pub fn wake_later(&self, word: &'static AtomicU32) {
        match self.later.iter().find(|slot| slot.get().is_none()) {
            Some(slot) => slot.set(Some(word)),
            None => drop(self.ctx.kernel.wake(word, 1)),
        }
    }

    /// Was the lock taken over from the dead? Then what the owner had begun under other locks may have to be finished too.
    pub fn inherited(&self) -> bool {
        self.inherited
    }

    /// A new transaction.
    pub fn txn(&self) -> Txn<'a> {
        Txn::new(self.ctx.pool, self.log)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        protocol::release(
            &Here {
                ctx: self.ctx,
                quiet: None,
                log: &|| self.log,
            },
            self.word,
        );
        // Who dies here leaves waiters that find out when they look around.
        for word in self.later.iter().map_while(Cell::take) {
            self.ctx.kernel.wake(word, 1);
        }
    }
}

fn owner_word(ctx: &Ctx) -> u32 {
    HELD | (ctx.me.generation as u32 & 0x3fff) << 16 | (ctx.me.slot & 0xffff)
}

impl Word for AtomicU32 {
    #[inline]
    fn read(&self) -> u32 {
        self.load(Relaxed)
    }
    #[inline]
    fn replace(&self, old: u32, new: u32) -> bool {
        self.compare_exchange(old, new, Acquire, Relaxed).is_ok()
    }
    #[inline]
    fn exchange(&self, new: u32) -> u32 {
        self.swap(new, AcqRel)
    }
}

/// The protocol's world in a pool.
struct Here<'a> {
    ctx: &'a Ctx<'a>,
    quiet: Option<&'a Quiet<'a>>,
    log: &'a dyn Fn() -> Log,
}

impl World<AtomicU32> for Here<'_> {
    fn is_dead(&self, word: u32) -> bool {
        let (slot, generation) = (word & 0xffff, word >> 16 & 0x3fff);
        let ctx = self.ctx;
        ctx.pool.is_dead(ctx.kernel, ctx.member, slot, |g| {
            g as u32 & 0x3fff == generation
        })
    }
    fn gives_up(&self, word: u32, waited: u64) -> Option<Stuck> {
        if waited > DEAF && self.quiet.is_some_and(Quiet::is_called) {
            return Some(Stuck::Signal);
        }
        let ctx = self.ctx;
        let is_stopped = || ctx.pool.is_stopped(ctx.kernel, ctx.member, word & 0xffff);
        (waited > PATIENCE && !is_stopped()).then_some(Stuck::Owner)
    }
    fn recover(&self) {
        (self.log)().recover(self.ctx.pool);
    }
    fn wait(&self, word: &AtomicU32, expected: u32, pause: Duration) {
        self.ctx.kernel.wait(word, expected, Some(pause));
    }
    fn wake_one(&self, word: &AtomicU32) {
        self.ctx.kernel.wake(word, 1);
    }
    fn now(&self) -> u64 {
        self.ctx.kernel.monotonic()
    }
    fn patience(&self) -> Option<u64> {
        self.ctx.kernel.patience()
    }
    fn spin_rounds(&self) -> u32 {
        self.ctx.kernel.spin_rounds().min(200)
    }
    fn relax(&self) {
        core::hint::spin_loop();
    }
}
