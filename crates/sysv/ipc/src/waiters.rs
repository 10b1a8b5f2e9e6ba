//! Waiter records and the queues they stand in.
//!
//! A record belongs to one thread that waits. It is taken by compare-and-swap, linked and unlinked under the
//! IPC object's lock, and freed by its owner, or by the process that cleans up after it.

use crate::{Ctx, Errno, ProcId, Waited};
use core::time::Duration;
use vshmem_pool::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use vshmem_pool::atomic::{AtomicU32, AtomicU64};
use vshmem_pool::budget::ASK;
use vshmem_pool::kernel::back_next;
use vshmem_pool::layout::{Waiter, DONE, ERRNO, WAITING};
use vshmem_pool::log::{Full, Txn};

/// A queue of waiters: the words that hold its first and last record's index + 1.
#[derive(Clone, Copy)]
pub struct Queue {
    /// First.
    pub first: &'static AtomicU64,
    /// Last.
    pub last: &'static AtomicU64,
}

/// A taken record.
#[derive(Clone, Copy)]
pub struct Ticket {
    /// The record's index.
    pub index: u32,
    /// The record.
    pub waiter: &'static Waiter,
}

/// The record that this process took last, + 1: it is free again as a rule, and in the processor's cache.
/// Only a hint, so it serves all pools.
static LAST: AtomicU32 = AtomicU32::new(0);

/// Forgets it, as in a process that has taken none yet.
#[cfg(all(test, feature = "model"))]
pub fn forget_last() {
    LAST.store(0, Relaxed);
}

/// Takes a record for the calling thread.
pub fn take(c: &Ctx, object: u32) -> Result<Ticket, Errno> {
    let root = c.pool.root();
    let (table, count) = c.pool.geometry().waiters;
    let high = root.waiter_high.load(Relaxed).min(count);
    let from = match LAST.load(Relaxed).checked_sub(1) {
        Some(last) => last,
        None => root.waiter_hint.load(Relaxed),
    };
    let from = if from < high { from } else { 0 };
    // Records that were used before are backed by memory; the others come last.
    for index in (from..high).chain(0..from).chain(high..count) {
        let waiter = c.waiter(index).ok_or(Errno::ENOMEM)?;
        // Before it is looked at for the first time.
        if index >= high
            && index >= root.waiter_high.load(Relaxed)
            && (c.pay(ASK).is_none() || !back_next(c.kernel, table, index.into(), size_of::<Waiter>() as u64))
        {
            return Err(Errno::ENOMEM);
        }
        if waiter.owner.load(Relaxed) != 0 {
            continue;
        }
        if index >= high {
            // First, so that it is found and freed if the caller dies with it.
            root.waiter_high.fetch_max(index + 1, Relaxed);
        }
        if waiter.owner.compare_exchange(0, c.me.word(), AcqRel, Relaxed).is_ok() {
            if LAST.swap(index + 1, Relaxed) == 0 {
                // Where others begin to look who have taken none yet.
                root.waiter_hint.store(index + 1, Relaxed);
            }
            waiter.semop().block_len.store(0, Relaxed);
            waiter.next.store(0, Relaxed);
            waiter.prev.store(0, Relaxed);
            waiter.since.store(c.kernel.now(), Relaxed);
            // Before the IPC object: the record must not say for a moment that it was served there.
            waiter.status.store(WAITING, Release);
            waiter.object.store(object, Release);
            return Ok(Ticket { index, waiter });
        }
    }
    Err(Errno::ENOMEM)
}

/// Is the lock free? Asked before a record is given back after it was served: its waker may have died before
/// the transaction was wholly done, and the next owner of the lock does it again, on the record too. So the
/// lock must have been free, or had, once since.
pub fn was_free(lock: &AtomicU32) -> bool {
    lock.load(Acquire) == 0
}

/// Is the transaction that served a record wholly done? Then its waker has cleared the IPC object's redo log,
/// which is at `log`. Its commit came before the status that was seen, so an earlier clear log is not seen.
pub fn is_applied(c: &Ctx, lock: &AtomicU32, log: &AtomicU64) -> bool {
    let state = c.word(log.load(Acquire));
    state.is_some_and(|s| s.load(Acquire) == 0) || was_free(lock)
}

/// Frees a record that stands in no queue.
pub fn give_back(ticket: Ticket) {
    ticket.waiter.object.store(0, Relaxed);
    ticket.waiter.owner.store(0, Release);
}

/// The word that holds status and IPC object, as a transaction sets it.
pub fn status_word(waiter: &Waiter, status: u32) -> u64 {
    status as u64 | (waiter.object.load(Relaxed) as u64) << 32
}

/// Errno that a waiter gets that is to try again from the start.
pub const RETRY: Errno = Errno(0x7fff);

/// The outcome of a wait, if it has ended.
pub fn outcome(waiter: &Waiter) -> Option<Result<(), Errno>> {
    let status = waiter.status.load(Acquire);
    match (status & DONE != 0, status & ERRNO) {
        (false, _) if status == WAITING => None,
        // Nothing that anybody says: the pool was taken away, or scribbled on.
        (false, _) => Some(Err(Errno::EIDRM)),
        (true, 0) => Some(Ok(())),
        (true, errno) => match Errno(errno as i32) {
            said if said.is_known() || said == RETRY => Some(Err(said)),
            _ => Some(Err(Errno::EIDRM)),
        },
    }
}

fn at(c: &Ctx, link: u64) -> Option<Ticket> {
    let index = u32::try_from(link.checked_sub(1)?).ok()?;
    c.waiter(index).map(|waiter| Ticket { index, waiter })
}

/// Stands at the end of a queue.
pub fn enqueue(c: &Ctx, txn: &mut Txn, queue: Queue, ticket: Ticket) -> Result<(), Full> {
    let last = queue.last.load(Relaxed);
    txn.put(&ticket.waiter.prev, last)?;
    txn.put(&ticket.waiter.next, 0)?;
    match at(c, last) {
        Some(before) => txn.put(&before.waiter.next, ticket.index as u64 + 1)?,
        None => txn.put(queue.first, ticket.index as u64 + 1)?,
    }
    txn.put(queue.last, ticket.index as u64 + 1)
}

/// Leaves a queue.
pub fn dequeue(c: &Ctx, txn: &mut Txn, queue: Queue, ticket: Ticket) -> Result<(), Full> {
    let (next, prev) = (ticket.waiter.next.load(Relaxed), ticket.waiter.prev.load(Relaxed));
    match at(c, prev) {
        Some(before) => txn.put(&before.waiter.next, next)?,
        None => txn.put(queue.first, next)?,
    }
    match at(c, next) {
        Some(after) => txn.put(&after.waiter.prev, prev),
        None => txn.put(queue.last, prev),
    }
}

/// The waiters of a queue, in order. Each may be taken out of it while it is looked at.
pub fn each<'a>(c: &'a Ctx, queue: Queue) -> impl Iterator<Item = Ticket> + 'a {
    let mut link = queue.first.load(Acquire);
    core::iter::from_fn(move || {
        // A waiter that was served stands in no queue: a list with such a one in it was scribbled on.
        let ticket = at(c, link).filter(|t| outcome(t.waiter).is_none())?;
        link = ticket.waiter.next.load(Acquire);
        Some(ticket)
    })
    // A queue is never longer than the table.
    .take(c.pool.geometry().waiters.1 as usize)
}

/// The first waiter of a queue that is wanted.
pub fn find(c: &Ctx, queue: Queue, wanted: impl FnMut(&Ticket) -> bool) -> Option<Ticket> {
    each(c, queue).find(wanted)
}

/// Sleeps on a record, for `nap` at the most, until it is served. What the call has spent before begins anew.
pub fn sleep(c: &Ctx, waiter: &Waiter, nap: Duration) -> Waited {
    let begun = c.kernel.monotonic();
    let waited = c.kernel.wait(&waiter.status, WAITING, Some(nap));
    c.budget.rest(c.kernel.monotonic().saturating_sub(begun));
    waited
}

/// Is the thread that waits certainly dead? One that sleeps on its record is not, and that is asked in one
/// system call.
pub fn is_dead(c: &Ctx, waiter: &Waiter) -> bool {
    if c.pay(ASK).is_none() || c.kernel.has_sleeper(&waiter.status) {
        return false;
    }
    // What is read of the record after this is no older than the owner.
    match ProcId::of_word(waiter.owner.load(Acquire)) {
        Some(owner) => owner != c.me && c.owner_is_dead(owner),
        None => true,
    }
}

/// The calling thread stands in a queue from now on, with this record. To be said once more where the wait
/// begins.
pub fn stand(c: &Ctx, ticket: Ticket) {
    c.kernel.stands(Some(&ticket.waiter.status));
}

/// The calling thread stands in no queue any more, and gives its record back.
pub fn stand_down(c: &Ctx, ticket: Ticket) {
    c.kernel.stands(None);
    give_back(ticket);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sem::{self, Sembuf};
    use crate::testing::{until, World};
    use crate::tests::sem::set_of;
    use vshmem_pool::lock::{Guard, SignalsBlocked};
    use vshmem_pool::log::Log;

    /// Two that wait by turns, while a third waits all the time, need three records, however often.
    #[test]
    fn free_records_are_used_before_fresh_ones() {
        let world = World::new(8 << 20);
        let (a, b, c) = (world.process(), world.process(), world.process());
        let standing = take(&c.ctx(), 1).unwrap();
        for _ in 0..50 {
            let (one, other) = (take(&a.ctx(), 1).unwrap(), take(&b.ctx(), 1).unwrap());
            give_back(one);
            give_back(other);
        }
        give_back(standing);
        assert_eq!(world.pool().root().waiter_high.load(Relaxed), 3);
    }

    /// A reaper that can't have the lock in time leaves a record that stands in a queue as it is.
    #[test]
    fn a_record_stays_while_its_queue_can_not_be_locked() {
        let world = World::new(8 << 20);
        let (maker, owner, waiting) = (world.process(), world.process(), world.process());
        let id = set_of(&maker.ctx(), &[0]);
        let p = Sembuf { num: 0, op: -1, flg: 0 };
        waiting.start(move |c| sem::op(c, id, &[p], None));
        until("it waits", || sem::getncnt(&maker.ctx(), id, 0) == Ok(1));
        let record = world.pool().waiter(0).unwrap();
        let (c, set) = (owner.ctx(), world.pool().sem(id as u32 & 0x1ffff).unwrap());
        let log = || Log { at: set.log.load(Relaxed), entries: 1 };
        let signals = SignalsBlocked::new(c.kernel);
        let guard = Guard::lock(&c, &signals, &set.lock, log).unwrap();
        waiting.kill();
        let newcomer = world.process();
        assert_eq!(record.owner.load(Relaxed), waiting.id().word());
        drop(guard);
        let mended = crate::check::repair(&newcomer.ctx()).unwrap();
        assert_eq!((mended.processes, mended.waiters), (1, 0));
        assert_eq!((record.owner.load(Relaxed), set.first_waiter.load(Relaxed)), (0, 0));
    }

    /// With the lock in somebody's hands, a record may go only when the log says that nothing is half done.
    #[test]
    fn a_record_is_kept_while_the_log_is_not_clear() {
        let world = World::new(8 << 20);
        let process = world.process();
        let c = process.ctx();
        let state = &take(&c, 1).unwrap().waiter.wanted[0];
        let log = AtomicU64::new(c.pool.offset_of(state));
        let held = AtomicU32::new(1);
        state.store(2, Release);
        assert!(!is_applied(&c, &held, &log));
        assert!(is_applied(&c, &AtomicU32::new(0), &log));
        state.store(0, Release);
        assert!(is_applied(&c, &held, &log));
        log.store(u64::MAX, Release);
        assert!(!is_applied(&c, &held, &log), "a log outside of the pool");
    }
}
