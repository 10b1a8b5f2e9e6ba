//! The records of a set's waiters: what they wait for, and how they come into the queue and out of it.

use super::set::{value, Set};
use super::Sembuf;
use crate::waiters::{self, Ticket};
use crate::{directory as dir, Ctx, Errno};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Waiter, DONE};
use vshmem_pool::lock::{Guard, SignalsBlocked};

pub const ALTERS: u64 = 1 << 32;

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
    let alters = if sops.iter().any(|s| s.op != 0) { ALTERS } else { 0 };
    if sops.len() > w.ops.len() {
        take_list(c, signals, w, sops.len())?;
        for (i, s) in sops.iter().enumerate() {
            let word = c.word(w.semop().at.load(Relaxed) + i as u64 * 8).ok_or(Errno::EINVAL)?;
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
    signals.nothing_changed();
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
        // Fails where a lock is not to be had in time, or somebody has rewritten the record: then `vshmem
        // check` finds the block.
        let _ = free_list(c, &SignalsBlocked::open(c.kernel), w);
    }
    waiters::give_back(ticket);
}

/// Gives the block of a waiter's operations back, if it has one.
pub fn free_list(c: &Ctx, signals: &SignalsBlocked, w: &Waiter) -> Result<(), Errno> {
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

/// The number of operations that a waiter has.
pub fn count(c: &Ctx, w: &Waiter) -> usize {
    w.semop().count.load(Relaxed).min(c.pool.limits().semopm as u64) as usize
}

/// A waiter's operation.
pub fn sop(c: &Ctx, w: &Waiter, i: usize) -> Sembuf {
    let word = match w.ops.get(i) {
        Some(slot) if count(c, w) <= w.ops.len() => slot.load(Relaxed),
        _ => {
            let at = w.semop().at.load(Relaxed).checked_add(i as u64 * 8);
            at.and_then(|a| c.word(a)).map_or(0, |word| word.load(Relaxed))
        }
    };
    Sembuf::of_word(word)
}

pub fn alters(w: &Waiter) -> bool {
    w.semop().blocked.load(Relaxed) & ALTERS != 0
}

/// Does a waiter name this semaphore?
pub fn is_named(c: &Ctx, set: &Set, num: u32) -> bool {
    let names = |t: &Ticket| (0..count(c, t.waiter)).any(|i| sop(c, t.waiter, i).num as u32 == num);
    waiters::find(c, set.queue(), names).is_some()
}

/// Semaphores whose bits are collected in one walk through the queue.
pub const PART: u32 = 2048;

/// The semaphores that waiters name among [`PART`] of them from `first` on, a bit each.
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
        let s = sop(c, t.waiter, t.waiter.semop().blocked.load(Relaxed) as u32 as usize);
        let blocks = s.num as u32 == num && if for_zero { s.op == 0 } else { s.op < 0 };
        blocks && !waiters::is_dead(c, t.waiter)
    };
    let n = waiters::each(c, set.queue()).filter(is_blocked).count();
    if c.budget.is_spent() {
        return Err(Errno::EIDRM);
    }
    Ok(n as u32)
}

/// Is this value in the way of an operation that waits?
#[inline]
pub fn blocks(lo: u64, s: Sembuf) -> bool {
    let now = value(lo);
    !s.nowait() && ((s.op == 0 && now != 0) || now + (s.op as i32) < 0)
}

/// A single operation that waits, on a semaphore that its waiter keeps frozen: is the value still in its way?
/// Spares most of those who stand in a queue the transaction that would tell the same.
pub fn is_blocked(c: &Ctx, set: &Set, s: Sembuf) -> bool {
    set.cell(c, s.num.into()).is_ok_and(|cell| blocks(cell.lo.load(Acquire), s))
}

fn status(result: Result<(), Errno>) -> u32 {
    DONE | result.err().map_or(0, |e| e.0 as u32)
}

/// Offset of the word that holds a waiter's status.
pub fn status_at(c: &Ctx, w: &Waiter) -> u64 {
    c.pool.offset_of(&w.status)
}

/// Takes a waiter out of the queue with a result, and wakes it; fast paths may use the semaphores again that
/// it alone named.
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

/// Takes a waiter out of the queue of a set that is being removed: no fast path may use its semaphores any
/// more.
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

/// Lets fast paths use semaphores again that no waiter names. What can't be known, because the budget is
/// spent, stays as it is.
pub fn thaw_all(c: &Ctx, set: &Set, n: usize, num: impl Fn(usize) -> u32) {
    if !set.has_waiters() {
        (0..n).for_each(|i| set.thaw(c, num(i)));
        return;
    }
    if n == 1 {
        if !is_named(c, set, num(0)) {
            set.thaw(c, num(0));
        }
        return;
    }
    for part in 0..set.nsems.div_ceil(PART) {
        let nums = || (0..n).map(&num).filter(|num| num / PART == part);
        if nums().next().is_none() {
            continue;
        }
        let first = part * PART;
        let named = named(c, set, first);
        let is_named = |num: &u32| named[(num - first) as usize / 64] >> (num % 64) & 1 == 1;
        (nums().filter(|num| !is_named(num))).for_each(|num| set.thaw(c, num));
    }
}
