//! A census of dead members: those that something in a pool still names. The entries of the others may be
//! taken by kernels that come.
//!
//! Process slots are looked at first. A member without any is named by nothing new from then on: its pid
//! words get into records by its processes, or by others who clean up after them. So what is not found
//! afterwards, in all records, one after the other, is not there. (A process that is stopped for all that
//! time, in the middle of copying such a word, may write it later: then a listing shows another kernel's name
//! beside a pid.)

use crate::perm::maker;
use crate::{member_of, stats, Ctx};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Kind, Proc, Waiter, MAX_MEMBERS};

/// A count that is under way. It is done in steps.
#[derive(Debug, Default)]
pub struct Census {
    dead: u64,
    named: u64,
    stage: Stage,
    index: u32,
    /// A semaphore of the set at `index`.
    semaphore: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Begin,
    Slots,
    Segments,
    Sets,
    Queues,
    Waiters,
}

/// Semaphores that count as one record.
const SEMAPHORES: u32 = 64;

impl Census {
    /// Looks at so many records. When all were looked at, the entries of dead members that nothing names
    /// become vacant, and are returned, a bit each.
    pub fn step(&mut self, c: &Ctx, most: u32) -> Option<u64> {
        for _ in 0..most {
            let (next, more) = match self.stage {
                Stage::Begin => (Stage::Slots, self.begin(c)),
                Stage::Slots => (Stage::Segments, self.slot(c)),
                Stage::Segments => (Stage::Sets, self.segment(c)),
                Stage::Sets => (Stage::Queues, self.some_of_set(c)),
                Stage::Queues => (Stage::Waiters, self.queue(c)),
                Stage::Waiters => (Stage::Begin, self.waiter(c)),
            };
            // What was not seen may name a member.
            if c.budget.is_spent() {
                *self = Census::default();
                return Some(0);
            }
            if more {
                continue;
            }
            (self.stage, self.index) = (next, 0);
            // Nothing may be touched of what has no memory: then the count has not been made.
            if !self.back(c) {
                *self = Census::default();
                return Some(0);
            }
            if matches!(next, Stage::Begin) {
                return Some(self.end(c));
            }
        }
        None
    }

    fn begin(&mut self, c: &Ctx) -> bool {
        *self = Census::default();
        self.dead = c.pool.dead_members();
        false
    }

    /// Is there memory for what comes next?
    fn back(&self, c: &Ctx) -> bool {
        let geometry = c.pool.geometry();
        let root = c.pool.root();
        let back = |table: u64, count: u32, len: usize| {
            count == 0 || c.reserve(table, u64::from(count) * len as u64)
        };
        match self.stage {
            Stage::Begin => true,
            Stage::Slots => {
                let (table, count) = geometry.procs;
                let len = size_of::<Proc>();
                let spare = table + u64::from(c.pool.spare_slot()) * len as u64;
                back(table, root.proc_high.load(Acquire).min(count), len) && back(spare, 1, len)
            }
            Stage::Waiters => {
                let (table, count) = geometry.waiters;
                back(table, root.waiter_high.load(Acquire).min(count), size_of::<Waiter>())
            }
            Stage::Segments => self.has_entries(c, Kind::Shm),
            Stage::Sets => self.has_entries(c, Kind::Sem),
            Stage::Queues => self.has_entries(c, Kind::Msg),
        }
    }

    fn has_entries(&self, c: &Ctx, kind: Kind) -> bool {
        let high = c.pool.kind_root(kind).high.load(Relaxed);
        high == 0 || stats::entries(c.pool, kind, &mut |at, len| c.reserve(at, len)) > 0
    }

    fn name(&mut self, word: u64) {
        self.name_member(member_of(word));
    }

    fn name_member(&mut self, member: u16) {
        self.named |= 1u64.checked_shl(member.into()).unwrap_or(0);
    }

    /// The next index below `high`.
    fn next(&mut self, high: u64) -> Option<u32> {
        let index = self.index;
        self.index += 1;
        (u64::from(index) < high).then_some(index)
    }

    /// Slots that were ever used, and the spare one.
    fn slot(&mut self, c: &Ctx) -> bool {
        let high = c.pool.root().proc_high.load(Acquire).min(c.pool.proc_slots());
        let Some(slot) = self.next(u64::from(high) + 1) else {
            return false;
        };
        let slot = if slot == high { c.pool.spare_slot() } else { slot };
        if let Some((_, member, _)) = c.process(slot) {
            self.name_member(member);
        }
        true
    }

    /// The next entry of a kind; `Some(None)`: it is free.
    fn entry(&mut self, c: &Ctx, kind: Kind) -> Option<Option<u32>> {
        let high = c.pool.kind_root(kind).high.load(Relaxed);
        let index = self.next(high.min(c.pool.capacity(kind).into()))?;
        let head = c.head(kind, index)?;
        if head.id.load(Acquire) == 0 {
            return Some(None);
        }
        if let Some(member) = maker(head) {
            self.name_member(member);
        }
        Some(Some(index))
    }

    fn segment(&mut self, c: &Ctx) -> bool {
        let Some(index) = self.entry(c, Kind::Shm) else {
            return false;
        };
        if let Some(shm) = index.and_then(|index| c.shm(index)) {
            self.name(shm.cpid.load(Relaxed));
            self.name(shm.lpid.load(Relaxed));
        }
        true
    }

    /// Some semaphores of a set at a time.
    fn some_of_set(&mut self, c: &Ctx) -> bool {
        let Some(index) = self.entry(c, Kind::Sem) else {
            return false;
        };
        let from = core::mem::take(&mut self.semaphore);
        let set = index.and_then(|index| c.sem(index));
        let Some((cells, count)) = set.map(|s| (s.cells.load(Relaxed), s.nsems.load(Relaxed))) else {
            return true;
        };
        let to = count.min(u64::from(from + SEMAPHORES)).min(65536);
        let at = |number: u64| cells.checked_add(number * 16);
        let len = to.saturating_sub(from.into()) * 16;
        let backed = at(from.into()).is_some_and(|at| c.reserve(at, len));
        for number in (u64::from(from)..to).filter(|_| backed) {
            if let Some(word) = at(number).and_then(|at| c.word(at)) {
                self.name(word.load(Relaxed) >> 32);
            }
        }
        if to < count.min(65536) && backed {
            self.semaphore = to as u32;
            self.index -= 1;
        }
        true
    }

    fn queue(&mut self, c: &Ctx) -> bool {
        let Some(index) = self.entry(c, Kind::Msg) else {
            return false;
        };
        if let Some(msg) = index.and_then(|index| c.msg(index)) {
            self.name(msg.send.pid.load(Relaxed));
            self.name(msg.receive.pid.load(Relaxed));
        }
        true
    }

    fn waiter(&mut self, c: &Ctx) -> bool {
        let high = c.pool.root().waiter_high.load(Acquire).min(c.pool.geometry().waiters.1);
        let Some(waiter) = self.next(high.into()).and_then(|index| c.waiter(index)) else {
            return false;
        };
        if waiter.owner.load(Acquire) != 0 {
            match Kind::of_reference(waiter.object.load(Relaxed)) {
                Some((Kind::Sem, _)) => self.name(waiter.semop().pid.load(Relaxed)),
                Some((Kind::Msg, _)) => self.name(waiter.message().pid.load(Relaxed)),
                _ => {}
            }
        }
        true
    }

    fn end(&mut self, c: &Ctx) -> u64 {
        let unnamed = self.dead & !self.named;
        let members = (0..MAX_MEMBERS as u16).filter(|member| unnamed >> member & 1 == 1);
        members.filter(|member| c.pool.vacate_member(*member)).fold(0, |all, member| all | 1 << member)
    }
}
