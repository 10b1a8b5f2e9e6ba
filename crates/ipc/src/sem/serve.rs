//! The queue of a set: operations that wait, performed by whoever makes them possible (`do_smart_update` in Linux).

use super::set::{value, Set};
use super::slow::{perform, thaw_all, Actor, Gone, Outcome};
use super::trust::{self, Trust};
use super::Sembuf;
use crate::waiters::{self, Ticket};
use crate::{directory as dir, Ctx, Errno, ProcId};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Waiter, DONE};
use vshmem_pool::lock::{Guard, SignalsBlocked};

const ALTERS: u64 = 1 << 32;

/// Puts the caller at the end of the queue. The semaphores that it names are frozen already, and stay so.
#[allow(clippy::too_many_arguments)]
pub fn register(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    ticket: Ticket,
    sops: &[Sembuf],
    blocked: usize,
    pid: u64,
) -> Result<(), Errno> {
    let w = ticket.waiter;
    let alters = if sops.iter().any(|s| s.op != 0) {
        ALTERS
    } else {
        0
    };
    if sops.len() > w.ops.len() {
        take_list(c, signals, w, sops.len())?;
        for (i, s) in sops.iter().enumerate() {
            let word = c
                .word(w.semop().at.load(Relaxed) + i as u64 * 8)
                .ok_or(Errno::EINVAL)?;
            word.store(s.word(), Relaxed);
        }
    } else {
        for (slot, s) in w.ops.iter().zip(sops) {
            slot.store(s.word(), Relaxed);
        }
        w.semop().at.store(set.id as u64, Relaxed);
    }
    // What waits names all its semaphores, not only those up to the one that blocks.
    for s in sops {
        set.freeze(c, s.num.into())?;
    }
    if sops.iter().any(|s| s.undo() && s.op != 0) {
        c.pool.touch(c.me, set.reference());
    }
    let mut txn = guard.txn();
    txn.put(&w.semop().count, sops.len() as u64)?;
    txn.put(&w.semop().blocked, blocked as u64 | alters)?;
    txn.put(&w.semop().pid, pid)?;
    waiters::enqueue(c, &mut txn, set.queue(), ticket)?;
    txn.commit()?;
    waiters::stand(c, ticket);
    Ok(())
}

/// Takes a block for operations that don't fit into the record.
fn take_list(c: &Ctx, signals: &SignalsBlocked, w: &Waiter, n: usize) -> Result<(), Errno> {
    let guard = dir::lock(c, signals)?;
    let mut txn = guard.txn();
    let (at, len) = dir::take_block(c, &mut txn, n as u64 * 8)?;
    txn.put(&w.semop().at, at)?;
    txn.put(&w.semop().block_len, len)?;
    txn.commit()?;
    Ok(())
}

/// Frees a record that stands in no queue, and its list.
pub fn finish(c: &Ctx, ticket: Ticket) {
    let w = ticket.waiter;
    if w.semop().block_len.load(Relaxed) != 0 {
        // Fails where a lock is not to be had in time, or somebody has rewritten the record: then `vshmem check` finds the block.
        let _ = free_list(c, &SignalsBlocked::new(c.kernel), w);
    }
    waiters::give_back(ticket);
}

/// Gives the block of a waiter's operations back, if it has one.
fn free_list(c: &Ctx, signals: &SignalsBlocked, w: &Waiter) -> Result<(), Errno> {
    if w.semop().block_len.load(Relaxed) == 0 {
        return Ok(());
    }
    let guard = dir::lock(c, signals)?;
    let len = w.semop().block_len.load(Relaxed);
    if len == 0 {
        // Its owner died while it gave the block back, and that was finished when the lock was taken over.
        return Ok(());
    }
    let mut txn = guard.txn();
    dir::give_block(c, &mut txn, w.semop().at.load(Relaxed), len)?;
    txn.put(&w.semop().block_len, 0)?;
    txn.commit()?;
    Ok(())
}

/// How many operations a waiter has.
pub fn count(c: &Ctx, w: &Waiter) -> usize {
    w.semop()
        .count
        .load(Relaxed)
        .min(c.pool.limits().semopm as u64) as usize
}

/// A waiter's operation.
pub fn sop(c: &Ctx, w: &Waiter, i: usize) -> Sembuf {
    let word = match w.ops.get(i) {
        Some(slot) if count(c, w) <= w.ops.len() => slot.load(Relaxed),
        _ => {
            let at = w.semop().at.load(Relaxed).checked_add(i as u64 * 8);
            at.and_then(|a| c.word(a))
                .map_or(0, |word| word.load(Relaxed))
        }
    };
    Sembuf::of_word(word)
}

fn alters(w: &Waiter) -> bool {
    w.semop().blocked.load(Relaxed) & ALTERS != 0
}

/// Does a waiter name this semaphore?
pub fn is_named(c: &Ctx, set: &Set, num: u32) -> bool {
    let names = |t: &Ticket| (0..count(c, t.waiter)).any(|i| sop(c, t.waiter, i).num as u32 == num);
    waiters::find(c, set.queue(), names).is_some()
}

/// So many semaphores' bits are collected in one walk through the queue.
pub const PART: u32 = 2048;

/// Which of [`PART`] semaphores from `first` on waiters name, a bit each.
pub fn named(c: &Ctx, set: &Set, first: u32) -> [u64; PART as usize / 64] {
    let mut bits = [0; PART as usize / 64];
    for ticket in waiters::each(c, set.queue()) {
        for i in 0..count(c, ticket.waiter) {
            let bit = u32::from(sop(c, ticket.waiter, i).num).wrapping_sub(first);
            if let Some(word) = bits.get_mut(bit as usize / 64) {
                *word |= 1 << (bit % 64);
            }
        }
    }
    bits
}

/// Waiters that this semaphore blocks: for zero, or for an increase (`GETZCNT`, `GETNCNT`).
pub fn count_blocked(c: &Ctx, set: &Set, num: u32, for_zero: bool) -> Result<u32, Errno> {
    let is_blocked = |t: &Ticket| {
        let s = sop(
            c,
            t.waiter,
            t.waiter.semop().blocked.load(Relaxed) as u32 as usize,
        );
        let blocks = s.num as u32 == num && if for_zero { s.op == 0 } else { s.op < 0 };
        blocks && !waiters::is_dead(c, t.waiter)
    };
    let n = waiters::each(c, set.queue()).filter(is_blocked).count();
    if c.budget.is_spent() {
        return Err(Errno::EIDRM);
    }
    Ok(n as u32)
}

/// What became of a waiter that was looked at.
enum Look {
    /// It was served.
    Performed,
    /// It left the queue with an error.
    Failed,
    /// Somebody who died owed something to its semaphores, which has them now. The waiter is to be looked at again, and others too.
    Repaid,
}

/// Performs what waiters wait for, as far as it is possible now: those that wait for zero first, then in order.
pub fn serve(c: &Ctx, set: &Set, signals: &SignalsBlocked, guard: &Guard) -> Result<(), Errno> {
    serve_on_trust(c, set, signals, guard, None)
}

/// The same; some of those that are served may be dead, as [`Trust`] finds out.
pub fn serve_on_trust(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    trust: Option<&Trust>,
) -> Result<(), Errno> {
    if !set.has_waiters() {
        return Ok(());
    }
    // A waiter that is served leaves the queue; where somebody scribbles, the budget ends it.
    loop {
        serve_for_zero(c, set, signals, guard)?;
        if !serve_one_that_alters(c, set, signals, guard, trust)? {
            return Ok(());
        }
    }
}

/// Those that wait for zero change nothing, so all of them are served in one walk.
fn serve_for_zero(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
) -> Result<(), Errno> {
    let waiting = |t: &Ticket| !alters(t.waiter);
    loop {
        let mut repaid = false;
        for ticket in waiters::each(c, set.queue()).filter(waiting) {
            let look = serve_one(c, set, signals, guard, None, ticket)?;
            repaid = matches!(look, Some(Look::Repaid));
            if repaid {
                break;
            }
        }
        if !repaid {
            return Ok(());
        }
    }
}

/// Serves the first whose operations can be done and change something, or pays back what somebody who died owed it. Whether there was one.
fn serve_one_that_alters(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    trust: Option<&Trust>,
) -> Result<bool, Errno> {
    for ticket in waiters::each(c, set.queue()).filter(|t| alters(t.waiter)) {
        let look = serve_one(c, set, signals, guard, trust, ticket)?;
        if matches!(look, Some(Look::Performed | Look::Repaid)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `None`: it has to go on waiting.
fn serve_one(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    trust: Option<&Trust>,
    ticket: Ticket,
) -> Result<Option<Look>, Errno> {
    let w = ticket.waiter;
    let Some(who) = ProcId::of_word(w.owner.load(Acquire)) else {
        take_out(c, set, guard, ticket, Err(Errno::EIDRM))?;
        return Ok(Some(Look::Failed));
    };
    let n = count(c, w);
    if n == 1 && is_blocked(c, set, sop(c, w, 0)) {
        return Ok(None);
    }
    if let Some(dead) = undo::dead_owner(c, set, n, |i| sop(c, w, i), Gone::Lately) {
        if undo::take_back(c, set, guard, dead)? {
            return Ok(Some(Look::Repaid));
        }
    }
    let actor = Actor {
        who,
        pid: w.semop().pid.load(Relaxed),
    };
    undo::ensure_record_for(c, set, signals, who, n, |i| sop(c, w, i))?;
    let mut txn = guard.txn();
    match perform(c, set, &mut txn, actor, n, |i| sop(c, w, i))? {
        Outcome::Blocked(i) => {
            let blocked = i as u64 | w.semop().blocked.load(Relaxed) & ALTERS;
            if blocked != w.semop().blocked.load(Relaxed) {
                // Another semaphore is in the way now.
                w.semop().blocked.store(blocked, Relaxed);
            }
            return Ok(None);
        }
        Outcome::Possible if trust.is_some_and(|t| t.take_on(c, ticket)) => {
            let status = trust.map_or(DONE, Trust::status);
            txn.set(status_at(c, w), waiters::status_word(w, status))?;
        }
        _ if waiters::is_dead(c, w) => {
            take_out(c, set, guard, ticket, Err(Errno::EINTR))?;
            return Ok(Some(Look::Failed));
        }
        Outcome::Possible => {
            txn.set(status_at(c, w), waiters::status_word(w, DONE))?;
            guard.wake_later(&w.status);
        }
        Outcome::Failed(errno) => {
            take_out(c, set, guard, ticket, Err(errno))?;
            return Ok(Some(Look::Failed));
        }
    }
    txn.put(&set.entry.otime, c.kernel.now() as u64)?;
    waiters::dequeue(c, &mut txn, set.queue(), ticket)?;
    txn.commit()?;
    thaw_all(c, set, n, |i| sop(c, w, i).num as u32);
    Ok(Some(Look::Performed))
}

/// A single operation that waits, on a semaphore that its waiter keeps frozen: is the value still in its way? Spares most of those
/// who stand in a queue the transaction that would tell the same.
pub fn is_blocked(c: &Ctx, set: &Set, s: Sembuf) -> bool {
    set.cell(c, s.num.into()).is_ok_and(|cell| {
        let now = value(cell.lo.load(Acquire));
        !s.nowait() && ((s.op == 0 && now != 0) || now + (s.op as i32) < 0)
    })
}

fn status(result: Result<(), Errno>) -> u32 {
    DONE | result.err().map_or(0, |e| e.0 as u32)
}

/// Offset of the word that holds a waiter's status.
pub fn status_at(c: &Ctx, w: &Waiter) -> u64 {
    c.pool.offset_of(&w.status)
}

/// Takes a waiter out of the queue with a result, and wakes it; fast paths may use the semaphores again that it alone named.
pub fn take_out(
    c: &Ctx,
    set: &Set,
    guard: &Guard,
    ticket: Ticket,
    result: Result<(), Errno>,
) -> Result<(), Errno> {
    end_wait(c, set, guard, ticket, result)?;
    let w = ticket.waiter;
    thaw_all(c, set, count(c, w), |i| sop(c, w, i).num as u32);
    Ok(())
}

/// The same where the set is being removed: no fast path may use its semaphores any more.
pub fn end_wait(
    c: &Ctx,
    set: &Set,
    guard: &Guard,
    ticket: Ticket,
    result: Result<(), Errno>,
) -> Result<(), Errno> {
    let w = ticket.waiter;
    let mut txn = guard.txn();
    txn.set(status_at(c, w), waiters::status_word(w, status(result)))?;
    waiters::dequeue(c, &mut txn, set.queue(), ticket)?;
    txn.commit()?;
    guard.wake_later(&w.status);
    Ok(())
}

/// The caller stops waiting, unless it was served meanwhile.
pub fn withdraw(c: &Ctx, set: &Set, ticket: Ticket) -> Result<(), Errno> {
    let signals = SignalsBlocked::open(c.kernel);
    let guard = set.lock(c, &signals)?;
    if waiters::outcome(ticket.waiter).is_some() {
        return Ok(());
    }
    if !set.still() {
        // Its remover died on the way: finishing that wakes everybody, the caller too.
        drop(guard);
        return super::remove::finish_removal(c, &signals, set.index, set.id);
    }
    let w = ticket.waiter;
    let mut txn = guard.txn();
    waiters::dequeue(c, &mut txn, set.queue(), ticket)?;
    txn.commit()?;
    thaw_all(c, set, count(c, w), |i| sop(c, w, i).num as u32);
    // Others may have waited behind it only for its sake (an order of operations).
    serve(c, set, &signals, &guard)
}

/// See [`waiters::interrupt`].
pub(crate) fn interrupt(c: &Ctx, index: u32, ticket: Ticket, is_over: bool) -> bool {
    let signals = SignalsBlocked::brief(c.kernel);
    let Ok(set) = Set::at(c, index) else {
        return true;
    };
    let Ok(guard) = set.lock(c, &signals) else {
        return false;
    };
    if waiters::find(c, set.queue(), |t| t.index == ticket.index).is_some() {
        let _ = take_out(c, &set, &guard, ticket, Err(Errno::EINTR));
        let _ = serve(c, &set, &signals, &guard);
    } else if is_over && waiters::outcome(ticket.waiter) == Some(Ok(())) {
        // It was served, and is not there to know it.
        let _ = return_all(c, &set, &signals, &guard, ticket.waiter);
    }
    drop(guard);
    if is_over {
        finish(c, ticket);
    }
    true
}

/// Undoes the operations of a waiter of the caller's that was served, if that is possible, the last one first.
fn return_all(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    w: &Waiter,
) -> Result<(), Errno> {
    let n = count(c, w);
    // Where the operations stand in a block of their own, nothing says that the set is still the one that they were for.
    let is_it = n <= w.ops.len() && w.semop().at.load(Relaxed) == set.id as u64 && set.still();
    let changes = |i: &usize| sop(c, w, *i).op != 0;
    let inverse = |i: usize| {
        let given = (0..n).rev().filter(changes).nth(i);
        let given = sop(c, w, given.unwrap_or_default());
        let op = given.op.saturating_neg();
        Sembuf { op, ..given }
    };
    let m = (0..n).filter(changes).count();
    if !is_it || m == 0 {
        return Ok(());
    }
    for i in 0..m {
        set.freeze(c, inverse(i).num.into())?;
    }
    let me = Actor {
        who: c.me,
        pid: w.semop().pid.load(Relaxed),
    };
    let mut txn = guard.txn();
    if let Outcome::Possible = perform(c, set, &mut txn, me, m, inverse)? {
        txn.commit()?;
    }
    let served = serve(c, set, signals, guard);
    thaw_all(c, set, m, |i| inverse(i).num.into());
    served
}

/// Takes a dead process's waiter out of its queue, and gives its list back. False: a lock was not to be had.
pub(crate) fn drop_waiter(c: &Ctx, signals: &SignalsBlocked, index: u32, ticket: Ticket) -> bool {
    let Ok(set) = Set::at(c, index) else {
        return true;
    };
    let Ok(guard) = set.lock(c, signals) else {
        return false;
    };
    let queued = waiters::find(c, set.queue(), |t| t.index == ticket.index).is_some();
    if queued {
        let _ = take_out(c, &set, &guard, ticket, Err(Errno::EINTR));
    } else {
        let served = ticket.waiter.status.load(Acquire);
        let _ = trust::put_back(c, &set, signals, &guard, ticket, served);
    }
    drop(guard);
    free_list(c, signals, ticket.waiter).is_ok() || !signals.has_failed()
}

use super::undo;
