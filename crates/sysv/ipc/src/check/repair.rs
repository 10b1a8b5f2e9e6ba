//! Repair of a pool after deaths, all of it at once. Without it, each call mends what is in its own way.

use super::participants;
use crate::{directory as dir, end_waits, liveness, msg, sem, shm, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Head, Kind};
use vshmem_pool::lock::SignalsBlocked;

/// The result of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Locks that dead processes held, and finished what they had begun.
    pub locks: u32,
    /// IPC objects that were being removed.
    pub removals: u32,
    /// Ranges of pages that were on their way.
    pub ranges: u32,
    /// Processes that were dead.
    pub processes: u32,
    /// Waiter records that nobody cared for any more.
    pub waiters: u32,
}

impl core::ops::AddAssign for Repaired {
    fn add_assign(&mut self, more: Repaired) {
        self.locks += more.locks;
        self.removals += more.removals;
        self.ranges += more.ranges;
        self.processes += more.processes;
        self.waiters += more.waiters;
    }
}

impl Repaired {
    /// Was there nothing to mend?
    pub fn is_nothing(&self) -> bool {
        *self == Repaired::default()
    }
}

/// Takes over the locks of dead processes, finishes what they began, and gives back what they had. An error
/// says that a lock was not to be had, or that the budget is spent.
pub fn repair(c: &Ctx) -> Result<Repaired, Errno> {
    // Signals are let through between one IPC object and the next.
    let signals = || SignalsBlocked::attentive(c.kernel);
    let mut done =
        Repaired { locks: u32::from(dir::lock(c, &signals())?.inherited()), ..Repaired::default() };
    for index in 0..dir::high(c, Kind::Sem) {
        done.locks += u32::from(sem::check::recover(c, &signals(), index)?);
    }
    for index in 0..dir::high(c, Kind::Msg) {
        done.locks += u32::from(msg::check::recover(c, &signals(), index)?);
    }
    let (before, pending) = (being_removed(c), pending_ranges(c));
    sem::finish_removals(c);
    msg::finish_removals(c, &signals());
    shm::reap_removed(c, &signals());
    shm::reap_pending_pages(c, &signals());
    done.removals = before.saturating_sub(being_removed(c));
    done.ranges = pending.saturating_sub(pending_ranges(c));
    let slots = c.pool.root().proc_high.load(Acquire).min(c.pool.proc_slots());
    for slot in 0..slots {
        let who = c.process(slot).map(|p| p.0);
        let reaped = liveness::reap_slot(c, &signals(), slot);
        done.processes += u32::from(reaped && c.process(slot).map(|p| p.0) != who);
    }
    done.waiters = orphans(c);
    if c.budget.is_spent() {
        return Err(Errno::EIDRM);
    }
    Ok(done)
}

/// IPC objects whose removal has begun and not ended, and removed segments that nobody has attached.
fn being_removed(c: &Ctx) -> u32 {
    let mut n = 0;
    for kind in Kind::ALL {
        dir::each_dying(c, kind, |_, _| n += 1);
    }
    let is_left =
        |&(index, head): &(u32, &Head)| shm::is_removed(head) && c.shm(index).is_some_and(shm::is_unmapped);
    n + dir::used(c, Kind::Shm).filter(is_left).count() as u32
}

fn pending_ranges(c: &Ctx) -> u32 {
    let ranges = &c.pool.root().pending_pages;
    ranges.iter().filter(|l| l.owner.load(Relaxed) != 0).count() as u32
}

/// Waiter records of processes that are dead: those whose slots are others' by now, too.
fn orphans(c: &Ctx) -> u32 {
    let high = c.pool.root().waiter_high.load(Acquire);
    let mut n = 0;
    for index in 0..high.min(c.pool.geometry().waiters.1) {
        let owner = c.waiter(index).map_or(0, |w| w.owner.load(Acquire));
        if let Some(dead) = ProcId::of_word(owner).filter(|o| participants::is_dead(c, *o)) {
            end_waits::reap_process(c, &SignalsBlocked::new(c.kernel), dead);
            n += 1;
        }
    }
    n
}
