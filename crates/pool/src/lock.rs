//! Locks that survive their owner.
//!
//! A lock is a 32-bit word that names the process slot of its owner, and a redo log ([`crate::log`]). It is only taken with
//! signals blocked ([`Quiet`]), so a signal handler never meets a lock that its own thread holds.
//!
//! # Why it is correct
//! * *Exclusion*: the word goes from 0 to an owner, or from a dead owner to a living one, by compare-and-swap only. A dead owner
//!   never comes back: a slot's generation changes before the slot is used again, and the word carries its low 14 bits.
//! * *No wake-up is lost*: a waiter sets [`CONTENDED`] by compare-and-swap before it sleeps on exactly that value; the owner
//!   releases by an atomic exchange and wakes one if the bit was set. Who was asleep takes the lock with the bit set, since others may sleep too.
//! * *Death*: nobody is woken by a death, so sleepers look again after a while, at first after 1 ms, at the latest after 50.
//! * *A stuck or lying owner*: after [`PATIENCE`] without any change the lock is given up with [`Stuck`].

use crate::log::{Log, Txn};
use crate::{Ctx, Kernel};
use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use core::time::Duration;

const HELD: u32 = 1 << 30;
const CONTENDED: u32 = 1 << 31;
/// How long an owner that lives may keep others waiting, in nanoseconds. Owners need microseconds; this is for one that is
/// stopped by a debugger or a scribbled lock word.
pub const PATIENCE: u64 = 20_000_000_000;

/// The lock's owner lives but has not let go for [`PATIENCE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck;

/// While this lives, the calling thread gets no signal.
pub struct Quiet<'a> {
    kernel: &'a dyn Kernel,
    old: u64,
}

impl<'a> Quiet<'a> {
    /// Blocks signals.
    pub fn new(kernel: &'a dyn Kernel) -> Quiet<'a> {
        Quiet {
            kernel,
            old: kernel.block_signals(),
        }
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
}

impl<'a> Guard<'a> {
    /// Takes the lock at `word`, whose redo log is `log`; finishes what a dead owner has left.
    pub fn lock(
        ctx: &'a Ctx,
        _quiet: &Quiet,
        word: &'static AtomicU32,
        log: Log,
    ) -> Result<Guard<'a>, Stuck> {
        let mine = owner_word(ctx);
        let inherited = match word.compare_exchange(0, mine, Acquire, Relaxed) {
            Ok(_) => false,
            Err(_) => acquire(ctx, word, mine, log)?,
        };
        Ok(Guard {
            ctx,
            word,
            log,
            inherited,
        })
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
        if self.word.swap(0, Release) & CONTENDED != 0 {
            self.ctx.kernel.wake(self.word, 1);
        }
    }
}

fn owner_word(ctx: &Ctx) -> u32 {
    HELD | (ctx.me.generation as u32 & 0x3fff) << 16 | (ctx.me.slot & 0xffff)
}

fn owner_is_dead(ctx: &Ctx, word: u32) -> bool {
    if word & HELD == 0 {
        // No owner writes that.
        return true;
    }
    let (slot, generation) = (word & 0xffff, word >> 16 & 0x3fff);
    ctx.pool.is_dead(ctx.kernel, ctx.member, slot, |g| {
        g as u32 & 0x3fff == generation
    })
}

/// Waits for the lock; returns whether it was taken over from the dead.
#[cold]
fn acquire(ctx: &Ctx, word: &'static AtomicU32, mine: u32, log: Log) -> Result<bool, Stuck> {
    for _ in 0..ctx.kernel.spin_rounds().min(200) {
        if word.load(Relaxed) == 0 && word.compare_exchange(0, mine, Acquire, Relaxed).is_ok() {
            return Ok(false);
        }
        core::hint::spin_loop();
    }
    let mut pause = Duration::from_millis(1);
    let mut seen = word.load(Relaxed);
    let mut since = ctx.kernel.monotonic();
    loop {
        let now = word.load(Relaxed);
        if now == 0 {
            if word
                .compare_exchange(0, mine | CONTENDED, Acquire, Relaxed)
                .is_ok()
            {
                return Ok(false);
            }
            continue;
        }
        if now & !CONTENDED != seen & !CONTENDED {
            (seen, since) = (now, ctx.kernel.monotonic());
            pause = Duration::from_millis(1);
        } else if pause > Duration::from_millis(1) {
            if owner_is_dead(ctx, now) {
                if word
                    .compare_exchange(now, mine | CONTENDED, Acquire, Relaxed)
                    .is_ok()
                {
                    log.recover(ctx.pool);
                    return Ok(true);
                }
                continue;
            }
            if ctx.kernel.monotonic().wrapping_sub(since) > PATIENCE {
                return Err(Stuck);
            }
        }
        if now & CONTENDED == 0
            && word
                .compare_exchange(now, now | CONTENDED, Relaxed, Relaxed)
                .is_err()
        {
            continue;
        }
        ctx.kernel.wait(word, now | CONTENDED, Some(pause));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
