//! Waits that end without being served, and messages that dead processes have begun.

use super::end::{self, At};
use super::mark::{Mark, State};
use super::queue::{Queue, Slow};
use super::remove::finish_removal;
use super::scan;
use super::take::assigned;
use super::waiter::{retry, take_out};
use crate::waiters::{self, Ticket};
use crate::{directory as dir, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::lock::SignalsBlocked;

/// Ends the wait of a thread that a signal handler has interrupted ([`crate::interrupt`]).
pub(crate) fn interrupt(c: &Ctx, index: u32, ticket: Ticket, is_over: bool) -> bool {
    let signals = SignalsBlocked::brief(c.kernel);
    let Ok(queue) = Queue::at(c, index) else {
        return true;
    };
    let Ok(slow) = queue.lock(c, &signals) else {
        return false;
    };
    for list in [queue.receivers(), queue.senders()] {
        if waiters::find(c, list, |t| t.index == ticket.index).is_some() {
            let _ = take_out(&slow, list, ticket, Err(Errno::EINTR));
        }
    }
    if !is_over {
        return true;
    }
    if let (Some(Ok(())), true) = (waiters::outcome(ticket.waiter), queue.still()) {
        // If it was given a message, it is not there to take it any more.
        let _ = put_back(&slow, ticket.waiter.message().position.load(Relaxed) as u32);
    }
    drop(slow);
    waiters::give_back(ticket);
    true
}

/// Puts a message that was handed to the caller back where it would be if nobody had waited.
fn put_back(slow: &Slow, pos: u32) -> Result<(), Errno> {
    let Some((ring, item)) = assigned(slow, pos) else {
        return Ok(());
    };
    let (entry, tail) = (slow.queue.entry, slow.queue.tail());
    let counted =
        At { bytes: tail.bytes.wrapping_add(item.mark.len), msgs: tail.msgs.wrapping_add(1), ..tail };
    let ready = Mark { state: State::Ready, ..item.mark };
    let mut txn = slow.guard.txn();
    txn.set(ring.mark_offset(pos), ready.word())?;
    end::put(&mut txn, &entry.send, counted)?;
    txn.commit()?;
    retry(slow)
}

/// Takes a dead process's waiter out of its queue. False: a lock was not to be had.
pub(crate) fn drop_waiter(c: &Ctx, signals: &SignalsBlocked, index: u32, ticket: Ticket) -> bool {
    let Ok(queue) = Queue::at(c, index) else {
        return true;
    };
    let Ok(slow) = queue.lock(c, signals) else {
        return false;
    };
    for list in [queue.receivers(), queue.senders()] {
        if waiters::find(c, list, |t| t.index == ticket.index).is_some() {
            let _ = take_out(&slow, list, ticket, Err(Errno::EINTR));
        }
    }
    true
}

/// Has nobody ever sent or waited in a queue, as in most of very many? Asked while its lock is free: so all
/// that the dead did under it is done.
fn was_never_used(queue: &Queue) -> bool {
    let entry = queue.entry;
    entry.lock.load(Acquire) == 0
        && !dir::is_dying(&entry.head)
        && [&entry.ring, &entry.retired, &entry.first_receiver, &entry.first_sender]
            .iter()
            .all(|word| word.load(Acquire) == 0)
        && queue.still()
}

/// Takes from a queue what a dead process has begun there.
pub(crate) fn reap_process(c: &Ctx, signals: &SignalsBlocked, index: u32, dead: ProcId) {
    let Ok(queue) = Queue::at(c, index) else {
        return;
    };
    if queue.id == 0 || dead == c.me {
        return;
    }
    if was_never_used(&queue) {
        return c.pool.untouch(dead, queue.reference());
    }
    let Ok(slow) = queue.lock(c, signals) else {
        return;
    };
    if dir::is_dying(&queue.entry.head) {
        drop(slow);
        let _ = finish_removal(c, signals, index, queue.id);
        return;
    }
    if queue.still() {
        scan::reap(&slow);
        if let Some(ring) = queue.ring(c) {
            scan::reap_behind(&slow, &ring);
        }
        // The next call that looks sees the rest.
        if !c.budget.is_spent() {
            c.pool.untouch(dead, queue.reference());
        }
    }
}
