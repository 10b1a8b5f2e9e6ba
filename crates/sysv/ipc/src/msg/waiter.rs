//! The records of a queue's waiters: how they come into a queue of waiters and out of it.

use super::queue::Slow;
use crate::waiters::{self, Queue as WaitQueue, Ticket, RETRY};
use crate::{pid_word, Errno};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::DONE;

/// Puts the caller at the end of the receivers. The sending end stays frozen while anybody is there.
pub fn register_receiver(slow: &Slow, mtyp: i64, cap: usize, flg: i32) -> Result<Ticket, Errno> {
    register(slow, slow.queue.receivers(), [mtyp as u64, cap as u64, flg as u32 as u64])
}

/// Puts the caller at the end of the senders. The receiving end stays frozen while anybody is there.
pub fn register_sender(slow: &Slow, len: usize) -> Result<Ticket, Errno> {
    register(slow, slow.queue.senders(), [0, len as u64, 0])
}

fn register(slow: &Slow, queue: WaitQueue, args: [u64; 3]) -> Result<Ticket, Errno> {
    let c = slow.c;
    c.pool.touch(c.me, slow.queue.reference());
    let ticket = waiters::take(c, slow.queue.reference())?;
    let w = ticket.waiter;
    w.message().kind.store(args[0], Relaxed);
    w.message().len.store(args[1], Relaxed);
    w.message().flags.store(args[2], Relaxed);
    w.message().position.store(0, Relaxed);
    w.message().pid.store(pid_word(c), Relaxed);
    let mut txn = slow.guard.txn();
    if waiters::enqueue(c, &mut txn, queue, ticket).is_err() {
        waiters::give_back(ticket);
        return Err(Errno::ENOMEM);
    }
    txn.commit()?;
    waiters::stand(c, ticket);
    Ok(ticket)
}

/// Takes a waiter out of its queue with a result, and wakes it.
pub fn take_out(
    slow: &Slow,
    queue: WaitQueue,
    ticket: Ticket,
    result: Result<(), Errno>,
) -> Result<(), Errno> {
    let c = slow.c;
    let status = DONE | result.err().map_or(0, |e| e.0 as u32);
    let mut txn = slow.guard.txn();
    txn.set(c.pool.offset_of(&ticket.waiter.status), waiters::status_word(ticket.waiter, status))?;
    waiters::dequeue(c, &mut txn, queue, ticket)?;
    txn.commit()?;
    slow.guard.wake_later(&ticket.waiter.status);
    Ok(())
}

/// Wakes the senders whose messages fit now, in order. They try again.
pub fn wake_senders(slow: &Slow) -> Result<(), Errno> {
    let mut promised = 0u64;
    for ticket in waiters::each(slow.c, slow.queue.senders()) {
        let len = ticket.waiter.message().len.load(Relaxed);
        let all = promised.saturating_add(len);
        if !slow.queue.has_space(all.min(usize::MAX as u64) as usize) {
            continue;
        }
        if !waiters::is_dead(slow.c, ticket.waiter) {
            promised = promised.saturating_add(len.max(1));
        }
        take_out(slow, slow.queue.senders(), ticket, Ok(()))?;
    }
    Ok(())
}

/// Lets a receiver try again.
pub fn retry_one(slow: &Slow, ticket: Ticket) -> Result<(), Errno> {
    take_out(slow, slow.queue.receivers(), ticket, Err(RETRY))
}

/// Limits or permissions have changed: receivers try again, and senders whose messages fit now.
pub fn retry(slow: &Slow) -> Result<(), Errno> {
    end_queue(slow, slow.queue.receivers(), Err(RETRY))?;
    wake_senders(slow)
}

/// Ends all waits with a result.
pub fn end_all(slow: &Slow, result: Result<(), Errno>) -> Result<(), Errno> {
    end_queue(slow, slow.queue.receivers(), result)?;
    end_queue(slow, slow.queue.senders(), result)
}

fn end_queue(slow: &Slow, queue: WaitQueue, result: Result<(), Errno>) -> Result<(), Errno> {
    waiters::each(slow.c, queue).try_for_each(|ticket| take_out(slow, queue, ticket, result))
}
