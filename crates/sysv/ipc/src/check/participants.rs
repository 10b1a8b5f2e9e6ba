//! The participants of a pool: waiter records, process slots, members.

use super::finding::{demand, Location, Queued, Report};
use crate::waiters::Queue;
use crate::{Ctx, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Kind, Waiter, DONE, EVERYWHERE, MAX_MEMBERS, WAITING};

/// Is a process dead, for attachments, locks and waits?
pub fn is_dead(c: &Ctx, who: ProcId) -> bool {
    who != c.me && c.owner_is_dead(who)
}

/// Is it gone, also for its `SEM_UNDO` adjustments?
pub fn is_gone(c: &Ctx, who: ProcId) -> bool {
    who != c.me && c.owner_is_gone(who)
}

/// An IPC object that holds something of a process must be in that process's list, by which it is found when
/// the process dies.
pub fn is_known_to(c: &Ctx, owner: u64, reference: u32, report: Report) {
    let Some(owner) = ProcId::of_word(owner) else {
        return;
    };
    let Some(slot) = c.proc(owner.slot).filter(|_| c.process(owner.slot).is_some()) else {
        return;
    };
    let listed = slot.touched.iter().any(|t| t.load(Relaxed) == reference);
    let region = Kind::of_reference(reference).map_or(0, |(kind, index)| kind.region(index));
    let is_known = listed || slot.overflow.load(Relaxed) & (EVERYWHERE | region) != 0;
    let location = Location::Slot(owner.slot);
    demand(
        report,
        is_known,
        location,
        "its list lacks an IPC object that holds something of it",
        reference.into(),
    );
}

/// Records that were ever used.
fn records<'a>(c: &'a Ctx) -> impl Iterator<Item = (u32, &'static Waiter)> + 'a {
    let high = c.pool.root().waiter_high.load(Acquire);
    let high = high.min(c.pool.geometry().waiters.1);
    (0..high).filter_map(|i| c.waiter(i).map(|w| (i, w)))
}

/// Calls `each` with every waiter that has a block for its operations, where that is, and its length.
pub fn lists(c: &Ctx, each: &mut dyn FnMut(u32, u64, u64)) {
    for (index, w) in records(c) {
        let of_set = Kind::of_reference(w.object.load(Acquire)).is_some_and(|k| k.0 == Kind::Sem);
        let len = w.semop().block_len.load(Relaxed);
        if w.owner.load(Acquire) != 0 && of_set && len != 0 {
            each(index, w.semop().at.load(Relaxed), len);
        }
    }
}

/// Each record is free, or somebody's who lives.
pub fn waiters(c: &Ctx, report: Report) {
    for (index, w) in records(c) {
        let location = Location::Waiter(index);
        let owner = w.owner.load(Acquire);
        if owner == 0 {
            let free = w.object.load(Relaxed) == 0;
            // It may have been taken since.
            demand(
                report,
                free || w.owner.load(Acquire) != 0,
                location,
                "it is free, and names an IPC object",
                0,
            );
            continue;
        }
        let lives = ProcId::of_word(owner).is_some_and(|o| !is_dead(c, o));
        demand(report, lives, location, "who waits there is dead", owner);
        let status = w.status.load(Acquire);
        let sensible = status == WAITING || status & DONE != 0;
        demand(report, sensible, location, "it has no such status", status.into());
    }
}

/// Looks a queue over, under its IPC object's lock: it leads forth and back, and everybody in it waits there.
pub fn queue(c: &Ctx, queue: Queue, object: u32, location: Location, queued: &mut Queued, report: Report) {
    let (mut before, mut link) = (0, queue.first.load(Acquire));
    while link != 0 {
        let index = u32::try_from(link - 1).unwrap_or(u32::MAX);
        let Some(w) = c.waiter(index).filter(|_| queued.add(index)) else {
            return report(location, "its queue of waiters leads astray", link);
        };
        let here = Location::Waiter(index);
        let prev = w.prev.load(Relaxed);
        demand(report, prev == before, here, "it does not lead back to the one before it", prev);
        let status = w.status.load(Acquire);
        demand(report, status == WAITING, here, "it was served, and stands in a queue", status.into());
        let said = w.object.load(Relaxed);
        demand(report, said == object, here, "it stands in another IPC object's queue", said.into());
        let owner = w.owner.load(Relaxed);
        demand(report, owner != 0, here, "it is free, and stands in a queue", owner);
        (before, link) = (link, w.next.load(Acquire));
    }
    let last = queue.last.load(Relaxed);
    demand(report, last == before, location, "its queue of waiters ends with another one", last);
}

/// No slot is that of a dead process, and every slot is well formed.
pub fn slots(c: &Ctx, report: Report) {
    let high = c.pool.root().proc_high.load(Acquire);
    for slot in 0..high.min(c.pool.spare_slot()) {
        let location = Location::Slot(slot);
        let state = c.proc(slot).map_or(0, |p| p.ident.load(Acquire) as u32);
        demand(report, state <= 1, location, "it is neither free nor in use", state.into());
        let Some((who, member, _)) = c.process(slot) else {
            continue;
        };
        let right = u32::from(member) < MAX_MEMBERS;
        demand(report, right, location, "its kernel is none", member.into());
        demand(report, !is_gone(c, who), location, "its process is dead", who.word());
    }
    let most = c.pool.proc_slots();
    demand(report, high <= most, Location::Root, "there were more processes than slots", high.into());
}

/// No entry of a kernel is half written.
pub fn members(c: &Ctx, report: Report) {
    const WRITING: u32 = 1;
    for index in 0..MAX_MEMBERS {
        let Some(state) = c.pool.member_state(index) else {
            return;
        };
        demand(
            report,
            state <= 4 || state & 0xff == WRITING,
            Location::Member(index),
            "it has no such state",
            state.into(),
        );
        demand(report, state & 0xff != WRITING, Location::Member(index), "its writer is gone", state.into());
    }
}
