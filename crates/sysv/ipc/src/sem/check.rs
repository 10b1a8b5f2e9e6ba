//! Checks of a set, for [`crate::check`].

use super::set::{value, Beside, Set, SLOW};
use super::{repay, serve, undo, waiter, SEMVMX};
use crate::check::finding::{demand, Location, Queued, Report};
use crate::check::participants;
use crate::{directory as dir, waiters, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::{Kind, Undo, MAX_PROCS};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::log::Log;

/// Takes over a set's lock if a dead process holds it, and applies the adjustments of dead processes. Returns
/// whether it was taken over.
pub(crate) fn recover(c: &Ctx, signals: &SignalsBlocked, index: u32) -> Result<bool, Errno> {
    let Ok(set) = Set::at(c, index) else {
        return Ok(false);
    };
    if set.id == 0 {
        return Ok(false);
    }
    let guard = set.lock(c, signals)?;
    if set.still() {
        repay::repay_all(c, &set, signals, &guard)?;
        serve::serve(c, &set, signals, &guard)?;
        undo::sweep(c, &set, signals);
    }
    Ok(guard.inherited())
}

/// Calls `each` with offset and length of every piece of the small heap that a set has, until it returns
/// false. The pool's lock is held.
pub(crate) fn pieces(c: &Ctx, index: u32, each: &mut dyn FnMut(u64, u64) -> bool) {
    let Some(entry) = c.sem(index) else {
        return;
    };
    each(entry.cells.load(Relaxed), entry.block_len.load(Relaxed));
    let mut at = entry.undo.load(Relaxed);
    // No process has two records.
    for _ in 0..MAX_PROCS {
        let Some(record) = c.at::<Undo>(at).filter(|_| at != 0) else {
            return;
        };
        if !each(at, record.block_len.load(Relaxed)) {
            return;
        }
        at = record.next.load(Relaxed);
    }
}

/// Looks a set over, under its lock.
pub(crate) fn inspect(
    c: &Ctx,
    signals: &SignalsBlocked,
    index: u32,
    queued: &mut Queued,
    report: Report,
) -> Result<(), Errno> {
    let location = Location::Object(Kind::Sem, index);
    let Some(entry) = c.sem(index).filter(|e| e.head.id.load(Relaxed) != 0) else {
        return Ok(());
    };
    let Ok(set) = Set::at(c, index) else {
        report(location, "its semaphores are not in the pool", entry.cells.load(Relaxed));
        return Ok(());
    };
    let _guard = set.lock(c, signals)?;
    if !set.still() {
        let dying = dir::is_dying(&entry.head) && entry.head.id.load(Relaxed) == set.id as u32;
        demand(report, !dying, location, "nobody finishes its removal", set.id as u64);
        return Ok(());
    }
    let (log, entries) = (entry.log.load(Relaxed), entry.log_entries.load(Relaxed));
    let cells_end = set.cells + u64::from(set.nsems) * 16;
    let log_end = log.saturating_add(Log::size(entries.min(1 << 20)));
    let block_end = set.cells.saturating_add(entry.block_len.load(Relaxed));
    let fits = set.nsems > 0 && log == cells_end && log_end <= block_end;
    demand(report, fits, location, "its log is not where it must be", log);
    let state = c.word(log).map_or(0, |w| w.load(Relaxed));
    demand(report, state == 0, location, "its redo log is not clear", state);
    for num in 0..set.nsems {
        semaphore(c, &set, num, location, report)?;
    }
    records(c, &set, location, report);
    queue(c, &set, location, queued, report);
    Ok(())
}

fn semaphore(c: &Ctx, set: &Set, num: u32, location: Location, report: Report) -> Result<(), Errno> {
    let (lo, hi) = set.cell(c, num)?.load();
    let right = (0..=SEMVMX).contains(&value(lo));
    demand(report, right, location, "a semaphore has no such value", lo & 0xffff);
    let generation = u64::from(c.pool.ids().instance(set.id)) + 1;
    demand(report, lo >> 17 & 0x7fff == generation, location, "a semaphore is another set's", num.into());
    if let Some(beside) = Beside::of(hi) {
        let owner = beside.owner;
        demand(
            report,
            !participants::is_gone(c, owner),
            location,
            "a dead process's adjustment is not repaid",
            owner.word(),
        );
        demand(report, beside.adjust != 0, location, "an adjustment is none", num.into());
        participants::is_known_to(c, owner.word(), set.reference(), report);
    }
    Ok(())
}

fn records(c: &Ctx, set: &Set, location: Location, report: Report) {
    let most = set.nsems.div_ceil(4);
    let mut steps = 0;
    for (at, record) in undo::records(c, set) {
        steps += 1;
        let owner = record.owner.load(Relaxed);
        let lives = ProcId::of_word(owner).is_some_and(|o| !participants::is_gone(c, o));
        demand(report, lives, location, "a dead process's record of adjustments is left", owner);
        participants::is_known_to(c, owner, set.reference(), report);
        let need = size_of::<Undo>() as u64 + u64::from(most) * 8;
        let len = record.block_len.load(Relaxed);
        demand(report, len >= need, location, "a record of adjustments is too short", len);
        let both = ProcId::of_word(owner).is_some_and(|who| undo::has_twice(c, set, at, who));
        demand(report, !both, location, "a process has two adjustments of one semaphore", owner);
    }
    let ends = steps < MAX_PROCS;
    demand(report, ends, location, "its list of adjustments does not end", steps.into());
}

/// Everybody in the queue waits, for something that is not so, and fast paths keep off its semaphores.
fn queue(c: &Ctx, set: &Set, location: Location, queued: &mut Queued, report: Report) {
    participants::queue(c, set.queue(), set.reference(), location, queued, report);
    for ticket in waiters::each(c, set.queue()) {
        let w = ticket.waiter;
        let n = waiter::count(c, w);
        let sops = || (0..n).map(|i| waiter::sop(c, w, i));
        let at = Location::Waiter(ticket.index);
        demand(report, n > 0, at, "it waits for nothing", 0);
        for s in sops() {
            let lo = set.cell(c, s.num.into()).map(|cell| cell.lo.load(Relaxed));
            let slow = lo.is_ok_and(|lo| lo & SLOW != 0);
            demand(report, slow, at, "fast paths use a semaphore that it waits for", s.num.into());
        }
        let owes = || undo::dead_owner(c, set, n, |i| waiter::sop(c, w, i), undo::Gone::Now);
        if let (1, Some(s)) = (n, sops().next()) {
            let blocked = waiter::is_blocked(c, set, s) || owes().is_some();
            demand(report, blocked, at, "nothing is in its way, and it still waits", s.num.into());
        }
    }
}
