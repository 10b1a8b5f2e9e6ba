//! What the back end and a front end do in a pool as one of its processes: they clean up after processes of their own kernel that
//! died, and of machines that are dead. Else that waits until somebody is in need of what the dead hold.
//!
//! It is done in steps, under locks for which it waits some milliseconds at the most; what can't be done now is tried again a second later.

use crate::kernel::Below;
use std::borrow::Borrow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use vshmem_ipc::{liveness, Ctx};
use vshmem_pool::layout::{Proc, PAGE};
use vshmem_pool::{Budget, Pool, ProcId};
use vshmem_transport::{Handle, Liveness};

/// How long cleaning up may take in a second.
pub const SHORT: Duration = Duration::from_millis(20);
/// Process slots that are looked at in a second.
const SLOTS_AT_ONCE: u32 = 1024;

/// A process that attends to a pool.
#[derive(Default)]
pub struct Reaper {
    me: Option<(ProcId, Liveness)>,
    slot: u32,
    slots_backed: u32,
    spare_backed: bool,
}

impl Reaper {
    /// Takes a process slot of the pool, if it has none and there is one.
    pub fn take_part<H: Borrow<Handle> + Sync>(&mut self, below: &Below<H>) -> Option<ProcId> {
        let pool = &below.pool;
        if let Some((me, _)) = self.me {
            // A machine that scribbles may have taken it away.
            if pool.process(me.slot).is_some_and(|(now, _, _)| now == me) {
                return Some(me);
            }
            self.leave(pool);
        }
        let mut liveness = None;
        let mut claim = |slot| {
            end(liveness.take());
            liveness = below.handle.borrow().claim_liveness(slot);
            liveness.is_some()
        };
        let pid = std::process::id();
        let me = pool.claim_process(below, &Budget::default(), below.member, pid, 0, &mut claim);
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

    /// Takes from the pool what dead processes have there: looks at some slots, of those that were ever used and the spare one.
    pub fn clean_up(&mut self, c: &Ctx) {
        let slots = c.pool.proc_slots();
        let high = c.pool.root().proc_high.load(Relaxed).min(slots);
        if !self.back_slots(c, high) {
            return;
        }
        let begun = Instant::now();
        for _ in 0..=SLOTS_AT_ONCE.min(high) {
            self.slot = if self.slot > high { 0 } else { self.slot };
            let spare = self.slot == high;
            liveness::reap(
                c,
                if spare {
                    c.pool.spare_slot()
                } else {
                    self.slot
                },
            );
            self.slot += 1;
            if begun.elapsed() > SHORT {
                return;
            }
        }
    }

    /// Sees to it that the slots that are looked at have memory.
    fn back_slots(&mut self, c: &Ctx, high: u32) -> bool {
        const EACH: u64 = size_of::<Proc>() as u64;
        let table = c.pool.geometry().procs.0;
        let back = |from: u32, to: u32| {
            let len = u64::from(to - from) * EACH;
            c.reserve(table + u64::from(from) * EACH, len)
        };
        let spare = c.pool.spare_slot();
        self.spare_backed = self.spare_backed || back(spare, spare + 1);
        // By pages: in a machine, each time is a ring.
        let to = high
            .next_multiple_of((PAGE / EACH) as u32)
            .min(c.pool.proc_slots());
        if high > self.slots_backed && back(self.slots_backed, to) {
            self.slots_backed = to;
        }
        self.spare_backed && self.slots_backed >= high
    }

    /// Lets go of a pool that can't be read any more; its slot is nobody's from now on.
    pub fn forget(&mut self) {
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
        // SAFETY: claimed by this process, for a slot that it does not have, or has no more.
        unsafe { liveness.end() };
    }
}
