//! Locks that survive their owner.
//!
//! A lock is a 32-bit word that names the process slot of its owner, and a redo log ([`crate::log`]). It is
//! only taken with signals blocked ([`SignalsBlocked`]), so a signal handler never meets a lock that its own
//! thread holds.
//!
//! # Why it is correct
//! * *Exclusion*: the word goes from 0 to an owner, or from a dead owner to a living one, by compare-and-swap
//!   only. A dead owner never comes back: a slot's generation changes before the slot is used again, and the
//!   word carries its low 14 bits.
//! * *No wake-up is lost*: a waiter sets `CONTENDED` by compare-and-swap before it sleeps on exactly that
//!   value; the owner releases by an atomic exchange and wakes one if the bit was set. A process that was
//!   asleep takes the lock with the bit set, since others may sleep too.
//! * *Death*: nobody is woken by a death, so sleepers look again after a while, at first after 1 ms, at the
//!   latest after 50.
//! * `model` has these three under a model checker.
//! * *A stuck or lying owner*: a call that has waited for [`LOCK_NS`], for all its locks together and
//!   however often their words have changed ([`crate::Budget`] counts), gives up with [`Stuck::Owner`]. As
//!   long as an owner is known to be stopped, that does not count. Where a call has changed nothing yet, a
//!   signal ends a wait that is longer than [`DEAF_NS`]; where it has registered, handlers run meanwhile.
//!   Once it has a lock, it waits for others only as long as what can be left to others is worth, unless it
//!   says that it still has changed nothing ([`SignalsBlocked::nothing_changed`]).
//! * *Inside*: who holds something that its own process's threads stand in line for does not sleep here at
//!   all, and gives up with [`Stuck::Inside`]. It lets that go, waits for the lock, and begins again.
//! * *A call whose budget is spent* takes no lock that is not free, and gives up with [`Stuck::Spent`].
//! * *In a hurry*: who must not be held up, as the back end, gives up sooner ([`Kernel::patience`]).

mod protocol;

#[cfg(all(test, feature = "model"))]
mod model;

use crate::atomic::AtomicU32;
use crate::budget::ASK;
use crate::log::{Log, Txn};
use crate::tuning::{BRIEF_LOCK_NS, DEAF_NS, HURRIED_LOCK_NS, LISTENING_SLEEP, LOCK_NS};
use crate::{Ctx, Kernel, Waited};
use core::cell::Cell;
use core::time::Duration;
use protocol::{World, HELD};

pub use protocol::Stuck;

/// The price of a round of spinning, in units of the budget: processors pause for 10 to 50 nanoseconds.
const ROUND: u64 = 4;

/// A guard: while it lives, the calling thread gets no signal.
pub struct SignalsBlocked<'a> {
    kernel: &'a dyn Kernel,
    old: Cell<u64>,
    manner: Cell<Manner>,
    /// A lock was not to be had.
    failed: Cell<bool>,
    /// A handler has run.
    interrupted: Cell<bool>,
    /// The time at which the call's own time is up, by the kernel's clock.
    deadline: Cell<u64>,
}

/// The manner of a wait for locks whose owners live: what ends it, and when.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// For [`LOCK_NS`], and as long as the owner is stopped.
    Deaf,
    /// For [`LOCK_NS`], but a signal ends the wait after [`DEAF_NS`].
    Attentive,
    /// As `Deaf`, but handlers run meanwhile.
    Open,
    /// For [`BRIEF_LOCK_NS`] more than for the first lock, or until a signal comes: the call has a lock, and
    /// may have changed something.
    Closing {
        /// It was `Attentive` before.
        was_attentive: bool,
        /// Nanoseconds that it had waited in all when it had the first lock.
        before: u64,
    },
    /// For [`BRIEF_LOCK_NS`], or until a signal comes.
    Brief,
    /// For [`HURRIED_LOCK_NS`].
    Hurried,
}

impl<'a> SignalsBlocked<'a> {
    /// Blocks signals.
    pub fn new(kernel: &'a dyn Kernel) -> SignalsBlocked<'a> {
        SignalsBlocked::with(kernel, Manner::Deaf)
    }

    /// Blocks signals for a call that has changed nothing yet: a signal ends the wait for the first lock.
    pub fn attentive(kernel: &'a dyn Kernel) -> SignalsBlocked<'a> {
        SignalsBlocked::with(kernel, Manner::Attentive)
    }

    /// Blocks signals for a thread that has registered somewhere, so can't just give up: while it waits for
    /// the first lock, and that takes longer, signals are let through.
    pub fn open(kernel: &'a dyn Kernel) -> SignalsBlocked<'a> {
        SignalsBlocked::with(kernel, Manner::Open)
    }

    /// Blocks signals for work that can be left undone: no lock is waited for longer than 20 ms.
    pub fn hurried(kernel: &'a dyn Kernel) -> SignalsBlocked<'a> {
        SignalsBlocked::with(kernel, Manner::Hurried)
    }

    /// Blocks signals for work that can be noted for others to do: no lock is waited for longer than a
    /// second.
    pub fn brief(kernel: &'a dyn Kernel) -> SignalsBlocked<'a> {
        SignalsBlocked::with(kernel, Manner::Brief)
    }

    fn with(kernel: &'a dyn Kernel, manner: Manner) -> SignalsBlocked<'a> {
        SignalsBlocked {
            kernel,
            old: Cell::new(kernel.block_signals()),
            manner: Cell::new(manner),
            failed: Cell::new(false),
            interrupted: Cell::new(false),
            deadline: Cell::new(u64::MAX),
        }
    }

    /// Waits from now on as [`SignalsBlocked::attentive`].
    pub fn attend(&self) {
        self.manner.set(Manner::Attentive);
    }

    /// The call needs another lock, and has changed nothing yet though it has one: it waits for it as for the
    /// first.
    pub fn nothing_changed(&self) {
        if let Manner::Closing { was_attentive, .. } = self.manner.get() {
            self.manner.set(if was_attentive { Manner::Attentive } else { Manner::Deaf });
        }
    }

    /// Has the call give up at this time of the kernel's clock, as long as it has changed nothing, but not
    /// before it has waited for [`BRIEF_LOCK_NS`] from now on: an honest owner may have lost its processor.
    pub fn give_up_at(&self, deadline: Option<u64>) {
        if let Some(deadline) = deadline {
            self.deadline.set(deadline.max(self.kernel.monotonic().saturating_add(BRIEF_LOCK_NS)));
        }
    }

    /// Does what the call can do without: locks are waited for as by [`SignalsBlocked::hurried`] meanwhile,
    /// and that one was not to be had does not count.
    pub fn in_passing<T>(&self, work: impl FnOnce() -> T) -> T {
        let (manner, failed) = (self.manner.replace(Manner::Hurried), self.failed.get());
        let done = work();
        self.manner.set(manner);
        self.failed.set(failed);
        done
    }

    /// Waits from now on as [`SignalsBlocked::open`].
    pub fn reopen(&self) {
        self.manner.set(Manner::Open);
    }

    /// Sleeps while `word` is `expected`, for `pause` at the most; false in the child of a handler's fork.
    fn sleep(&self, word: &AtomicU32, expected: u32, pause: Duration) -> bool {
        let listens = self.manner.get() == Manner::Open && pause >= LISTENING_SLEEP;
        if listens {
            // A handler that is due runs at once, before the sleep that it would end.
            self.interrupted.set(self.handler_waits());
            self.kernel.restore_signals(self.old.get());
        }
        let waited = self.kernel.wait(word, expected, Some(pause));
        if listens {
            self.old.set(self.kernel.block_signals());
            (self.interrupted).set(self.interrupted.get() | (waited == Waited::Interrupted));
        }
        waited != Waited::Forked
    }

    /// Was a lock not to be had?
    pub fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Decides whether to give up, and why, after `waited` nanoseconds for owners that live and are not
    /// stopped, and `here` for this lock in all.
    fn gives_up(&self, waited: u64, here: u64) -> Option<Stuck> {
        let manner = self.manner.get();
        let listens = matches!(manner, Manner::Attentive | Manner::Closing { .. } | Manner::Brief);
        if listens && here > DEAF_NS && self.kernel.signal_waits(self.old.get()) {
            return Some(Stuck::Signal);
        }
        let ends = self.deadline.get() < u64::MAX && matches!(manner, Manner::Attentive | Manner::Open);
        if ends && self.kernel.monotonic() >= self.deadline.get() {
            return Some(Stuck::Late);
        }
        let most = match manner {
            Manner::Hurried => HURRIED_LOCK_NS,
            Manner::Brief => BRIEF_LOCK_NS,
            Manner::Closing { before, .. } => before.saturating_add(BRIEF_LOCK_NS),
            _ => LOCK_NS,
        };
        (waited > most).then_some(Stuck::Owner)
    }

    /// Is an owner that is stopped waited for as long as that lasts?
    fn spares_the_stopped(&self) -> bool {
        !matches!(self.manner.get(), Manner::Hurried | Manner::Brief | Manner::Closing { .. })
    }
}

impl SignalsBlocked<'_> {
    /// Has a signal handler run, or will one when this is dropped?
    pub fn handler_waits(&self) -> bool {
        self.interrupted.get() || self.kernel.handler_waits(self.old.get())
    }

    /// Has a signal handler run, or will a signal do anything when this is dropped?
    pub fn signal_waits(&self) -> bool {
        self.interrupted.get() || self.kernel.signal_waits(self.old.get())
    }
}

impl Drop for SignalsBlocked<'_> {
    fn drop(&mut self) {
        self.kernel.restore_signals(self.old.get());
    }
}

/// A lock that is held, until this is dropped.
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
    /// Takes the lock at `word`; finishes what a dead owner has left in its redo log. Where the log is, `log`
    /// tells once the lock is held: before, the IPC object may be removed and its memory be somebody else's.
    pub fn lock(
        ctx: &'a Ctx,
        signals: &SignalsBlocked,
        word: &'static AtomicU32,
        log: impl Fn() -> Log,
    ) -> Result<Guard<'a>, Stuck> {
        let here = Here { ctx, signals: Some(signals), log: &log };
        let taken = protocol::acquire(&here, word, owner_word(ctx));
        let inherited = taken.inspect_err(|_| signals.failed.set(true))?;
        let manner = signals.manner.get();
        if matches!(manner, Manner::Attentive | Manner::Open) {
            let was_attentive = manner == Manner::Attentive;
            signals.manner.set(Manner::Closing { was_attentive, before: ctx.budget.waited() });
        }
        Ok(Guard { ctx, word, log: log(), inherited, later: [const { Cell::new(None) }; LATER] })
    }

    /// Takes a lock inside of which another one is taken, whose log may lead to this one's log, too. What
    /// `outer` gives is held while the log is finished: the dead owner may have been giving its memory back,
    /// which is somebody else's once others have finished that.
    pub fn lock_under<T>(
        ctx: &'a Ctx,
        signals: &SignalsBlocked,
        word: &'static AtomicU32,
        log: impl Fn() -> Log,
        outer: impl FnOnce() -> T,
    ) -> Result<(Guard<'a>, Option<T>), Stuck> {
        let none = || Log { at: 0, entries: 0 };
        let mut guard = Guard::lock(ctx, signals, word, none)?;
        let held = guard.inherited.then(outer);
        guard.log = log();
        if guard.inherited {
            guard.log.recover(ctx.pool, &ctx.budget);
        }
        Ok((guard, held))
    }

    /// Wakes a waiter of `word` as soon as the lock is free, so that it does not wake up to wait for the
    /// lock.
    pub fn wake_later(&self, word: &'static AtomicU32) {
        match self.later.iter().find(|slot| slot.get().is_none()) {
            Some(slot) => slot.set(Some(word)),
            None => {
                self.ctx.budget.spend(ASK);
                self.ctx.kernel.wake(word, 1);
            }
        }
    }

    /// Was the lock taken over from the dead? Then what the owner had begun under other locks may have to be
    /// finished too.
    pub fn inherited(&self) -> bool {
        self.inherited
    }

    /// A new transaction.
    pub fn txn(&self) -> Txn<'a> {
        Txn::new(self.ctx.pool, &self.ctx.budget, self.log)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        protocol::release(&Here { ctx: self.ctx, signals: None, log: &|| self.log }, self.word);
        // An owner that dies here leaves waiters that find out when they look around.
        for word in self.later.iter().map_while(Cell::take) {
            self.ctx.kernel.wake(word, 1);
        }
    }
}

fn owner_word(ctx: &Ctx) -> u32 {
    HELD | (ctx.me.generation as u32 & 0x3fff) << 16 | (ctx.me.slot & 0xffff)
}

/// The protocol's world in a pool.
struct Here<'a> {
    ctx: &'a Ctx<'a>,
    signals: Option<&'a SignalsBlocked<'a>>,
    log: &'a dyn Fn() -> Log,
}

impl World for Here<'_> {
    fn is_dead(&self, word: u32) -> bool {
        let (slot, generation) = (word & 0xffff, word >> 16 & 0x3fff);
        self.ctx.is_dead(slot, |g| g as u32 & 0x3fff == generation)
    }
    fn is_stopped(&self, word: u32) -> bool {
        let spares = |signals: &SignalsBlocked| signals.spares_the_stopped();
        self.signals.is_some_and(spares) && self.ctx.is_stopped(word & 0xffff)
    }
    fn gives_up(&self, waited: u64, here: u64) -> Option<Stuck> {
        let waited = self.ctx.budget.waited().saturating_add(waited);
        // A word that changes all the time ends each sleep at once.
        if !self.ctx.budget.spend(ASK) {
            return Some(Stuck::Spent);
        }
        if here > 0 && self.ctx.kernel.is_inside() {
            return Some(Stuck::Inside);
        }
        if self.ctx.kernel.patience().is_some_and(|most| waited > most) {
            return Some(Stuck::Owner);
        }
        self.signals.and_then(|signals| signals.gives_up(waited, here))
    }
    fn has_waited(&self, waited: u64) {
        self.ctx.budget.add_wait(waited);
    }
    fn recover(&self) {
        (self.log)().recover(self.ctx.pool, &self.ctx.budget);
    }
    fn wait(&self, word: &AtomicU32, expected: u32, pause: Duration) -> bool {
        match self.signals {
            Some(signals) => signals.sleep(word, expected, pause),
            None => self.ctx.kernel.wait(word, expected, Some(pause)) != Waited::Forked,
        }
    }
    fn wake_one(&self, word: &AtomicU32) {
        self.ctx.kernel.wake(word, 1);
    }
    fn now(&self) -> u64 {
        self.ctx.kernel.monotonic()
    }
    fn spin_rounds(&self) -> u32 {
        let rounds = self.ctx.kernel.spin_rounds().min(200);
        // A call that tries very many locks, and finds them all held, pays for each.
        let is_paid = self.ctx.budget.spend(ASK + ROUND * u64::from(rounds));
        if is_paid {
            rounds
        } else {
            0
        }
    }
    fn relax(&self) {
        core::hint::spin_loop();
    }
    fn give_way(&self) -> bool {
        self.ctx.budget.spend(ASK) && self.ctx.kernel.give_way()
    }
}
