//! Process slots: the owners of locks, adjustments and attachments.
//!
//! A slot's word `ident` is `{state:32, member:16, generation:16}`. It goes from free to live by
//! compare-and-swap, by a process that holds the slot's liveness lock; the generation rises with each claim,
//! so that a name `(slot, generation)` is never given twice (within 65536 claims of one slot).
//!
//! The last slot is the *spare* one: nobody lives in it. A process that finds all others taken is there while
//! it cleans up after the dead, and then takes a slot that this made free. So a slot is used again only when
//! nothing names it any more: some records (marks in a queue) name a slot without its generation. The spare
//! slot itself is in none of those: a process in it takes locks, which know generations, and nothing else. So
//! when it has died there, the next one can take the slot at once.

use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::budget::{Budget, ASK, LOOK};
use crate::kernel::back_next;
use crate::layout::{Kind, Proc, EVERYWHERE, NO_LIVENESS_LOCK};
use crate::{Kernel, Pool};

/// The name of a process in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcId {
    /// Index of the slot.
    pub slot: u32,
    /// The number of claims of the slot until then.
    pub generation: u16,
}

impl ProcId {
    /// The word by which records name their owner: never 0.
    #[inline]
    pub const fn word(self) -> u64 {
        (self.slot as u64 + 1) | (self.generation as u64) << 32
    }

    /// Reads such a word.
    #[inline]
    pub fn of_word(word: u64) -> Option<ProcId> {
        let slot = (word as u32).checked_sub(1)?;
        (slot < crate::layout::MAX_PROCS).then_some(ProcId { slot, generation: (word >> 32) as u16 })
    }
}

const FREE: u32 = 0;
const LIVE: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Ident {
    state: u32,
    member: u16,
    generation: u16,
}

impl Ident {
    fn of(word: u64) -> Ident {
        Ident { state: word as u32, member: (word >> 32) as u16, generation: (word >> 48) as u16 }
    }
    const fn word(self) -> u64 {
        self.state as u64 | (self.member as u64) << 32 | (self.generation as u64) << 48
    }
}

// As docs/layout.md has it.
const _: () = {
    assert!(FREE == 0 && LIVE == 1);
    assert!(Ident { state: LIVE, member: 0xffff, generation: 0 }.word() == 0xffff << 32 | 1);
    assert!(Ident { state: FREE, member: 0, generation: 0xffff }.word() == 0xffff << 48);
    assert!(ProcId { slot: 65534, generation: 0xffff }.word() == 0xffff << 32 | 65535);
};

/// Free slots whose liveness lock can't be had: after so many, there is another reason (no descriptor for the
/// pool's file).
const REFUSALS: u32 = 64;

impl Pool {
    /// Process slots in this pool.
    pub fn proc_slots(&self) -> u32 {
        self.geometry.procs.1
    }

    /// A process slot.
    #[inline]
    pub fn proc(&self, slot: u32) -> Option<&'static Proc> {
        self.record(self.geometry.procs, slot)
    }

    /// Takes a free slot for a process of `member`. `claim` takes a slot's liveness lock: it is false if
    /// somebody holds it. `None`: all are taken, or looking at them has cost the budget.
    pub fn claim_process(
        &self,
        kernel: &dyn Kernel,
        budget: &Budget,
        member: u16,
        pid: u32,
        started: u64,
        claim: &mut dyn FnMut(u32) -> bool,
    ) -> Option<ProcId> {
        let root = self.root();
        let slots = self.spare_slot();
        // Slots are handed out round and round, so that a slot's generation rises slowly.
        let from = root.proc_hint.load(Relaxed);
        let mut refused = 0;
        for i in 0..slots {
            let slot = from.wrapping_add(i) % slots;
            let high = root.proc_high.load(Relaxed);
            if !budget.spend(LOOK) || slot >= high && !self.back_slot(kernel, budget, slot, high) {
                return None;
            }
            let p = self.proc(slot)?;
            let old = p.ident.load(Acquire);
            if Ident::of(old).state != FREE {
                continue;
            }
            if budget.ask(kernel, ASK, || claim(slot)) != Some(true) {
                refused += 1;
                if refused == REFUSALS || budget.is_spent() {
                    return None;
                }
                continue;
            }
            // First, so that it is found and freed if the caller dies in it.
            root.proc_high.fetch_max(slot + 1, Relaxed);
            let Some(me) = self.enter(slot, old, member, pid, started) else {
                continue; // somebody of another kernel was faster
            };
            root.proc_hint.store(slot.wrapping_add(1) % slots, Relaxed);
            return Some(me);
        }
        None
    }

    /// Takes the spare slot, unless somebody who lives is in it. For a while only: [`Pool::free_process`]
    /// gives it up.
    pub fn claim_spare(
        &self,
        kernel: &dyn Kernel,
        budget: &Budget,
        member: u16,
        pid: u32,
        started: u64,
        claim: &mut dyn FnMut(u32) -> bool,
    ) -> Option<ProcId> {
        let slot = self.spare_slot();
        if !self.back_slot(kernel, budget, slot, 0) {
            return None;
        }
        let old = self.proc(slot)?.ident.load(Acquire);
        let is_free = self.is_dead(kernel, member, slot, |_| true) && claim(slot);
        if !is_free {
            return None;
        }
        if let Some(p) = self.proc(slot) {
            p.pid.store(0, Relaxed);
            p.started.store(0, Relaxed);
        }
        self.enter(slot, old, member, pid, started)
    }

    /// Sees to it that a slot has memory before it is looked at for the first time. If it comes next after
    /// those that were used, which `high` says, the page that it shares with the last of them has.
    fn back_slot(&self, kernel: &dyn Kernel, budget: &Budget, slot: u32, high: u32) -> bool {
        const LEN: u64 = size_of::<Proc>() as u64;
        if !budget.spend(ASK) {
            return false;
        }
        let (table, index) = (self.geometry.procs.0, u64::from(slot));
        if slot == high {
            return back_next(kernel, table, index, LEN);
        }
        kernel.reserve(table + index * LEN, LEN)
    }

    /// The slot that nobody lives in.
    pub fn spare_slot(&self) -> u32 {
        self.proc_slots() - 1
    }

    /// Enters a process into a slot whose identity was `old`, and whose liveness lock it holds.
    fn enter(&self, slot: u32, old: u64, member: u16, pid: u32, started: u64) -> Option<ProcId> {
        let p = self.proc(slot)?;
        let generation = Ident::of(old).generation.wrapping_add(1);
        let new = Ident { state: LIVE, member, generation };
        let enter = || {
            p.pid.store(pid, Relaxed);
            p.started.store(started, Relaxed);
        };
        if started & NO_LIVENESS_LOCK != 0 {
            // A process without a lock must be known by its pid from the first moment.
            enter();
        }
        // Each kernel has liveness locks of its own, so a process of another one may be at this slot, too:
        // only who wins writes. Until it has, there is no pid, and its lock alone says that it lives.
        p.ident.compare_exchange(old, new.word(), AcqRel, Relaxed).ok()?;
        enter();
        p.overflow.store(0, Relaxed);
        p.touched.iter().for_each(|t| t.store(0, Relaxed));
        Some(ProcId { slot, generation })
    }

    /// Gives a slot back. Everything that it owned is gone already.
    pub fn free_process(&self, me: ProcId) {
        let Some(p) = self.proc(me.slot) else { return };
        let (pid, started) = (p.pid.load(Acquire), p.started.load(Acquire));
        let old = p.ident.load(Acquire);
        let ident = Ident::of(old);
        if ident.state == LIVE && ident.generation == me.generation {
            // The next process in the slot must not be judged by them. If somebody else was faster, and
            // somebody has it already, they are others by now, and stay.
            let _ = p.pid.compare_exchange(pid, 0, AcqRel, Relaxed);
            let _ = p.started.compare_exchange(started, 0, AcqRel, Relaxed);
            let _ = p.ident.compare_exchange(old, Ident { state: FREE, ..ident }.word(), Release, Relaxed);
        }
    }

    /// Notes the pid of a forked child in the slot that was taken for it without one. False: it is another
    /// process's by now.
    pub fn note_pid(&self, me: ProcId, pid: u32) -> bool {
        let Some(p) = self.proc(me.slot) else { return false };
        let ident = Ident::of(p.ident.load(Acquire));
        let is_taken = ident.state == LIVE && ident.generation == me.generation;
        is_taken && p.pid.compare_exchange(0, pid, AcqRel, Acquire).map_or_else(|its| its == pid, |_| true)
    }

    /// Takes the slot that was taken for this forked child over: notes its pid, and when it began. False: it
    /// is another process's by now.
    pub fn adopt_process(&self, me: ProcId, pid: u32, started: u64) -> bool {
        let is_mine = self.note_pid(me, pid);
        if let Some(p) = self.proc(me.slot).filter(|_| is_mine) {
            p.started.store(started, Relaxed);
        }
        is_mine
    }

    /// The process that has a slot now, if any, and its member.
    pub fn process(&self, slot: u32) -> Option<(ProcId, u16, u32)> {
        let p = self.proc(slot)?;
        let ident = Ident::of(p.ident.load(Acquire));
        let id = ProcId { slot, generation: ident.generation };
        (ident.state == LIVE).then(|| (id, ident.member, p.pid.load(Relaxed)))
    }

    /// Is the process that had `slot` with a generation that `is_it` accepts certainly dead? Of other
    /// kernels' processes only those whose machine is known to be dead are.
    pub fn is_dead(&self, kernel: &dyn Kernel, member: u16, slot: u32, is_it: impl Fn(u16) -> bool) -> bool {
        let Some(p) = self.proc(slot) else {
            // Nobody has a slot that isn't there; of one that can't be looked at nothing is certain.
            return slot >= self.proc_slots();
        };
        let ident = Ident::of(p.ident.load(Acquire));
        if ident.state != LIVE || !is_it(ident.generation) {
            return true;
        }
        if ident.member != member {
            return self.member_is_dead(ident.member);
        }
        !kernel.alive(slot, p.pid.load(Relaxed), p.started.load(Relaxed))
    }

    /// Is the process in a slot stopped now? False where that can't be known, as of other kernels' processes.
    pub fn is_stopped(&self, kernel: &dyn Kernel, member: u16, slot: u32) -> bool {
        match (self.process(slot), self.proc(slot)) {
            (Some((_, of, pid)), Some(p)) if of == member => kernel.is_stopped(pid, p.started.load(Relaxed)),
            _ => false,
        }
    }

    /// Is the owner of a record certainly dead?
    pub fn owner_is_dead(&self, kernel: &dyn Kernel, member: u16, owner: ProcId) -> bool {
        self.is_dead(kernel, member, owner.slot, |g| g == owner.generation)
    }

    /// Is the owner of a record certainly gone: dead, and not only running another program?
    pub fn owner_is_gone(&self, kernel: &dyn Kernel, member: u16, owner: ProcId) -> bool {
        self.owner_is_dead(kernel, member, owner) && !self.has_executed(kernel, member, owner)
    }

    /// Does the owner of a record, which is dead else, certainly run another program?
    pub fn has_executed(&self, kernel: &dyn Kernel, member: u16, owner: ProcId) -> bool {
        match (self.process(owner.slot), self.proc(owner.slot)) {
            (Some((id, of, pid)), Some(p)) if id == owner && of == member => {
                kernel.has_executed(pid, p.started.load(Relaxed))
            }
            _ => false,
        }
    }

    /// Answers as [`Pool::owner_is_gone`], but a no may be a few dozen microseconds old.
    pub fn owner_was_gone_lately(&self, kernel: &dyn Kernel, member: u16, owner: ProcId) -> bool {
        match (self.process(owner.slot), self.proc(owner.slot)) {
            (Some((id, of, pid)), Some(p)) if id == owner && of == member => {
                !kernel.alive_lately(owner.slot, pid, p.started.load(Relaxed))
                    && self.owner_is_gone(kernel, member, owner)
            }
            _ => self.owner_is_gone(kernel, member, owner),
        }
    }

    /// Remembers that an IPC object may hold something of a process.
    pub fn touch(&self, who: ProcId, reference: u32) {
        let Some(p) = self.proc(who.slot) else { return };
        if p.touched.iter().any(|t| t.load(Relaxed) == reference) {
            return;
        }
        for t in &p.touched {
            if t.load(Relaxed) == 0 && t.compare_exchange(0, reference, AcqRel, Relaxed).is_ok() {
                return;
            }
        }
        let region = Kind::of_reference(reference).map_or(EVERYWHERE, |(kind, index)| kind.region(index));
        p.overflow.fetch_or(region, Release);
    }

    /// The IPC object holds nothing of the process any more.
    pub fn untouch(&self, who: ProcId, reference: u32) {
        let Some(p) = self.proc(who.slot) else { return };
        // Somebody else may have cleaned up faster, and the slot be another's.
        if Ident::of(p.ident.load(Acquire)).generation != who.generation {
            return;
        }
        for t in &p.touched {
            let _ = t.compare_exchange(reference, 0, AcqRel, Relaxed);
        }
    }
}
