//! The context of a call: its process, and the pool, in which it pays for each look ([`crate::budget`]).

use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::budget::{Budget, ASK, LOOK, SEARCH, STEP};
use crate::layout::{Head, Kind, Msg, Proc, Sem, Shm, Waiter, NO_LIVENESS_LOCK, PAGE};
use crate::mem::Shared;
use crate::{Kernel, Pool, ProcId};

/// Bits of a source's number in a record.
const SOURCE_BITS: u32 = 48;

/// A call: a process of a kernel, in a pool.
#[derive(Clone)]
pub struct Ctx<'a> {
    /// The pool.
    pub pool: &'a Pool,
    /// The kernel that the caller runs on.
    pub kernel: &'a dyn Kernel,
    /// The caller's process slot.
    pub me: ProcId,
    /// The caller's pid in its own kernel.
    pub pid: u32,
    /// The PID and time name spaces in which it holds, by a number; 0: unknown, or one of Vshmem's own.
    pub namespace: u32,
    /// The caller's kernel, as an index into the member table.
    pub member: u16,
    /// The part of the call's budget that is left.
    pub budget: Budget,
}

impl<'a> Ctx<'a> {
    /// Has the call do work with a part of its budget that it can do without: cleaning up after others.
    pub fn aside<T>(&self, work: impl FnOnce(&Ctx<'a>) -> T) -> T {
        let aside = Ctx { budget: self.budget.half(), ..self.clone() };
        let result = work(&aside);
        self.budget.charge(&aside.budget);
        result
    }

    /// Has the call do work with a whole budget of its own that it needs at most once: emptying all that is
    /// free.
    pub fn apart<T>(&self, work: impl FnOnce(&Ctx<'a>) -> T) -> T {
        let apart = Ctx { budget: Budget::default(), ..self.clone() };
        apart.budget.add_wait(self.budget.waited());
        let result = work(&apart);
        let more = apart.budget.waited() - self.budget.waited();
        self.budget.add_wait(more);
        result
    }

    /// Pays; `None` if the budget is spent.
    #[inline]
    pub fn pay(&self, units: u64) -> Option<()> {
        self.budget.spend(units).then_some(())
    }

    /// Passes on what a look has found. To find nothing is paid for, as it may have been a question to the
    /// kernel: is there memory?
    #[inline]
    fn seen<T>(&self, found: Option<T>) -> Option<T> {
        if found.is_none() {
            self.pay(ASK)?;
        }
        found
    }

    /// The `T` at an offset, if it lies where structures do, is aligned, and there is memory for it.
    #[inline]
    pub fn at<T: Shared>(&self, offset: u64) -> Option<&'static T> {
        self.pay(LOOK)?;
        self.seen(self.pool.mem.at(offset))
    }

    /// The 64-bit word at an offset.
    #[inline]
    pub fn word(&self, offset: u64) -> Option<&'static AtomicU64> {
        self.at(offset)
    }

    /// The `count` words at an offset, which are looked at in order.
    pub fn words(&self, offset: u64, count: u64) -> Option<&'static [AtomicU64]> {
        self.pay(LOOK + count / 8)?;
        self.seen(self.pool.mem.words(offset, count))
    }

    /// A process slot.
    #[inline]
    pub fn proc(&self, slot: u32) -> Option<&'static Proc> {
        self.pay(LOOK)?;
        self.seen(self.pool.proc(slot))
    }

    /// The process that has a slot now, if any, its member and its pid.
    pub fn process(&self, slot: u32) -> Option<(ProcId, u16, u32)> {
        self.proc(slot)?;
        self.pool.process(slot)
    }

    /// A waiter record.
    #[inline]
    pub fn waiter(&self, index: u32) -> Option<&'static Waiter> {
        self.pay(LOOK)?;
        self.seen(self.pool.waiter(index))
    }

    /// The common part of an entry.
    #[inline]
    pub fn head(&self, kind: Kind, index: u32) -> Option<&'static Head> {
        self.pay(LOOK)?;
        self.seen(self.pool.head(kind, index))
    }

    /// The common part of the entry after the one that was looked at before: it costs less.
    #[inline]
    pub fn next_head(&self, kind: Kind, index: u32) -> Option<&'static Head> {
        self.pay(STEP)?;
        self.seen(self.pool.head(kind, index))
    }

    /// A segment's entry.
    #[inline]
    pub fn shm(&self, index: u32) -> Option<&'static Shm> {
        self.pay(LOOK)?;
        self.seen(self.pool.shm(index))
    }

    /// A semaphore set's entry.
    #[inline]
    pub fn sem(&self, index: u32) -> Option<&'static Sem> {
        self.pay(LOOK)?;
        self.seen(self.pool.sem(index))
    }

    /// A queue's entry.
    #[inline]
    pub fn msg(&self, index: u32) -> Option<&'static Msg> {
        self.pay(LOOK)?;
        self.seen(self.pool.msg(index))
    }

    /// See [`Kernel::reserve`]. False, too, if the budget is spent.
    pub fn reserve(&self, offset: u64, len: u64) -> bool {
        self.budget.spend(ASK + len / PAGE) && self.kernel.reserve(offset, len)
    }

    /// Gives the memory of pages back to the host ([`Kernel::release`]), but not of common ones: somebody may
    /// have taken those for the small heap's, and know that they have memory. Returns how many bytes, from
    /// the first one on, may not read as zeros now.
    pub fn release(&self, offset: u64, len: u64) -> u64 {
        let kept = self.pool.mem().end().saturating_sub(offset).min(len);
        let is_released =
            kept < len && self.budget.spend(ASK) && self.kernel.release(offset + kept, len - kept);
        if is_released {
            kept
        } else {
            len
        }
    }

    /// See [`Kernel::backed`].
    pub fn backed(&self, offset: u64, len: u64) -> Option<u64> {
        self.pay(ASK + len / PAGE)?;
        self.kernel.backed(offset, len)
    }

    /// Is the process that had `slot` with a generation that `is_it` accepts certainly dead? Nobody is, if
    /// the budget is spent.
    pub fn is_dead(&self, slot: u32, is_it: impl Fn(u16) -> bool) -> bool {
        self.ask(self.price_of(slot), || self.pool.is_dead(self.kernel, self.member, slot, is_it))
    }

    /// Is anything certainly mapped no more by a source that a record names? Nothing is certain if the budget
    /// is spent, and of a source of another kernel that lives.
    pub fn is_unmapped(&self, source: u64) -> bool {
        let (member, number) = ((source >> SOURCE_BITS) as u16, source & ((1 << SOURCE_BITS) - 1));
        if source == 0 || member != self.member {
            return source == 0 || self.pool.member_is_dead(member);
        }
        self.ask(ASK, || !self.kernel.is_mapped(number))
    }

    /// The name of a source of this kernel in records.
    pub fn name_of_source(&self, number: u64) -> u64 {
        match number {
            0 => 0,
            _ => number | u64::from(self.member) << SOURCE_BITS,
        }
    }

    /// Is the process in a slot stopped now? False where that can't be known.
    pub fn is_stopped(&self, slot: u32) -> bool {
        self.ask(SEARCH, || self.pool.is_stopped(self.kernel, self.member, slot))
    }

    /// Is the owner of a record certainly dead? Nobody is, if the budget is spent.
    pub fn owner_is_dead(&self, owner: ProcId) -> bool {
        self.is_dead(owner.slot, |g| g == owner.generation)
    }

    /// Is the owner of a record certainly gone: dead, and not only running another program?
    pub fn owner_is_gone(&self, owner: ProcId) -> bool {
        self.owner_is_dead(owner) && self.dead_is_gone(owner)
    }

    /// Is the owner of a record, which is dead or runs another program, certainly dead?
    pub fn dead_is_gone(&self, owner: ProcId) -> bool {
        self.ask(SEARCH, || !self.pool.has_executed(self.kernel, self.member, owner))
    }

    /// Answers as [`Ctx::owner_is_gone`], but a no may be a few dozen microseconds old. A yes never is, and
    /// is paid for as one that was asked for.
    pub fn owner_was_gone_lately(&self, owner: ProcId) -> bool {
        self.budget.spend(LOOK)
            && (self.pool).owner_was_gone_lately(self.kernel, self.member, owner)
            && self.budget.spend(SEARCH)
    }

    fn ask(&self, price: u64, question: impl FnOnce() -> bool) -> bool {
        self.budget.ask(self.kernel, price, question) == Some(true)
    }

    /// The price of asking whether a process lives: its liveness lock tells, or /proc.
    fn price_of(&self, slot: u32) -> u64 {
        let started = self.pool.proc(slot).map_or(0, |p| p.started.load(Relaxed));
        if started & NO_LIVENESS_LOCK == 0 {
            ASK
        } else {
            SEARCH
        }
    }
}
