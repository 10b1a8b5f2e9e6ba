//! The reaper, which cleans up in a pool after dead processes of its own kernel and of dead machines.
//! Otherwise that would wait until a process needs an object that they hold.
//!
//! It works in steps, under locks for which it waits some milliseconds at the most. A step that fails is
//! tried again a second later.

use crate::joined_pool::JoinedPool;
use std::borrow::Borrow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use vshmem_ipc::{liveness, Ctx};
use vshmem_pool::layout::{Proc, PAGE};
use vshmem_pool::{Budget, Pool, ProcId};
use vshmem_transport::{Handle, Liveness};

/// Time that a pass may take.
pub const MAX_PASS: Duration = Duration::from_millis(20);
/// Process slots that a pass looks at.
const SLOTS_PER_PASS: u32 = 1024;

/// The reaper of one pool, with its slot among the pool's processes.
#[derive(Default)]
pub struct Reaper {
    me: Option<(ProcId, Liveness)>,
    /// The next slot to look at.
    slot: u32,
    slots_backed: u32,
    spare_backed: bool,
}

impl Reaper {
    /// This process's slot in the pool. Takes one if there is a free one and it has none.
    pub fn ensure_slot<H: Borrow<Handle> + Sync>(&mut self, joined: &JoinedPool<H>) -> Option<ProcId> {
        let pool = &joined.pool;
        if let Some((me, _)) = self.me {
            // A hostile member may have freed it.
            if pool.process(me.slot).is_some_and(|(now, _, _)| now == me) {
                return Some(me);
            }
            self.leave(pool);
        }
        let mut liveness = None;
        let mut take = |slot| {
            end(liveness.take());
            liveness = joined.handle.borrow().claim_liveness(slot);
            liveness.is_some()
        };
        let pid = std::process::id();
        let me = pool.claim_process(joined, &Budget::default(), joined.member, pid, 0, &mut take);
        match (me, liveness) {
            (Some(me), Some(liveness)) => {
                self.me = Some((me, liveness));
                Some(me)
            }
            (_, liveness) => {
                end(liveness);
                None
            }
        }
    }

    /// One pass: reaps the dead among some slots, of those that were ever used and the spare one.
    pub fn reap(&mut self, c: &Ctx) {
        let slots = c.pool.proc_slots();
        let high = c.pool.root().proc_high.load(Relaxed).min(slots);
        if !self.back_slots(c, high) {
            return;
        }
        liveness::reap_inherited(c);
        let begun = Instant::now();
        for _ in 0..=SLOTS_PER_PASS.min(high) {
            self.slot = if self.slot > high { 0 } else { self.slot };
            let spare = self.slot == high;
            liveness::reap(c, if spare { c.pool.spare_slot() } else { self.slot });
            self.slot += 1;
            if begun.elapsed() > MAX_PASS {
                return;
            }
        }
    }

    /// Backs the slots that a pass may look at with memory.
    fn back_slots(&mut self, c: &Ctx, high: u32) -> bool {
        const EACH: u64 = size_of::<Proc>() as u64;
        let table = c.pool.geometry().procs.0;
        let back = |from: u32, to: u32| {
            let len = u64::from(to - from) * EACH;
            c.reserve(table + u64::from(from) * EACH, len)
        };
        let spare = c.pool.spare_slot();
        self.spare_backed = self.spare_backed || back(spare, spare + 1);
        // Whole pages: in a machine, each request rings the host's doorbell.
        let to = high.next_multiple_of((PAGE / EACH) as u32).min(c.pool.proc_slots());
        if high > self.slots_backed && back(self.slots_backed, to) {
            self.slots_backed = to;
        }
        self.spare_backed && self.slots_backed >= high
    }

    /// Leaves a pool that can't be read any more: only the liveness lock is released.
    pub fn abandon(&mut self) {
        end(self.me.take().map(|(_, liveness)| liveness));
    }

    /// Gives the slot back.
    pub fn leave(&mut self, pool: &Pool) {
        if let Some((me, liveness)) = self.me.take() {
            pool.free_process(me);
            end(Some(liveness));
        }
    }
}

fn end(liveness: Option<Liveness>) {
    if let Some(liveness) = liveness {
        // SAFETY: taken by this process, for a slot that it does not have, or has no more.
        unsafe { liveness.end() };
    }
}
