//! Waiting for a message or for space.

use super::choose::Wanted;
use super::queue::{Queue, Slow};
use super::remove::finish_removal;
use super::scan;
use super::take::{take, take_assigned, Incoming, Received};
use super::wary::Wary;
use crate::waiters::{self, Queue as WaitQueue, Ticket, RETRY};
use crate::{directory as dir, Ctx, Errno, Waited};
use core::time::Duration;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::tuning::{
    FIRST_MESSAGE_SLEEP, FIRST_UNFINISHED_SLEEP, LONGEST_SLEEP, LONGEST_UNFINISHED_SLEEP,
};

/// The end of one sleep.
enum Slept {
    /// There is an outcome.
    Served,
    /// Time for a look around.
    Look,
    /// A signal handler ran.
    Interrupted,
    /// The process is a child, and the wait its parent's.
    Forked,
}

fn sleep(c: &Ctx, ticket: Ticket, nap: Duration, wary: &mut Wary) -> Slept {
    wary.let_through();
    let mut left = nap;
    loop {
        if c.kernel.is_child_of(c.pid) {
            return Slept::Forked;
        }
        if waiters::outcome(ticket.waiter).is_some() {
            return Slept::Served;
        }
        if wary.signal_waits() {
            return Slept::Interrupted;
        }
        let part = wary.part_of(left);
        match waiters::sleep(c, ticket.waiter, part) {
            Waited::Woken => {}
            Waited::TimedOut if part < left => left -= part,
            Waited::TimedOut => return Slept::Look,
            Waited::Interrupted => return Slept::Interrupted,
            Waited::Forked => return Slept::Forked,
        }
    }
}

/// Waits until the transaction that served the caller is wholly done ([`waiters::was_free`]).
fn await_applied(c: &Ctx, queue: &Queue, signals: &SignalsBlocked) {
    if !waiters::was_free(&queue.entry.lock) {
        drop(queue.lock(c, signals));
    }
}

/// Ends a call that was told how its wait ended, or lets it try again, unless a signal has come.
fn end_or_again(
    c: &Ctx,
    queue: &Queue,
    ticket: Ticket,
    result: Result<(), Errno>,
    interrupted: bool,
    wary: &mut Wary,
) -> Result<(), Errno> {
    let signals = wary.open();
    await_applied(c, queue, signals);
    let interrupted = interrupted || signals.handler_waits();
    waiters::stand_down(c, ticket);
    match result {
        Ok(()) | Err(RETRY) if interrupted => Err(Errno::EINTR),
        Ok(()) | Err(RETRY) => {
            wary.stay();
            Ok(())
        }
        error => error,
    }
}

/// Waits until there may be space in the queue.
pub fn for_space(c: &Ctx, queue: &Queue, ticket: Ticket, wary: &mut Wary) -> Result<(), Errno> {
    let mut nap = FIRST_MESSAGE_SLEEP;
    let mut interrupted = false;
    waiters::stand(c, ticket);
    loop {
        match sleep(c, ticket, nap, wary) {
            Slept::Served | Slept::Look => {}
            Slept::Interrupted => interrupted = true,
            Slept::Forked => return Err(Errno::EINTR),
        }
        // No handler runs unseen from here on.
        let signals = wary.open();
        if let Some(result) = waiters::outcome(ticket.waiter) {
            return end_or_again(c, queue, ticket, result, interrupted, wary);
        }
        nap = (nap * 2).min(LONGEST_SLEEP);
        let slow = lock_for_waiter(c, queue, signals)?;
        interrupted |= signals.handler_waits();
        if waiters::outcome(ticket.waiter).is_some() {
            continue;
        }
        check_there(c, queue, ticket)?;
        scan::reap(&slow);
        if interrupted || queue.has_space(ticket.waiter.message().len.load(Relaxed) as usize) {
            leave(&slow, queue.senders(), ticket)?;
            return if interrupted { Err(Errno::EINTR) } else { Ok(()) };
        }
    }
}

/// Waits for a message. `None`: try again from the start.
///
/// # Safety
/// As for [`super::receive()`].
pub unsafe fn for_message(
    c: &Ctx,
    queue: &Queue,
    ticket: Ticket,
    into: Incoming,
    wanted: Wanted,
    mut unfinished: bool,
    wary: &mut Wary,
) -> Result<Option<Received>, Errno> {
    let mut nap = if unfinished { FIRST_UNFINISHED_SLEEP } else { FIRST_MESSAGE_SLEEP };
    let mut interrupted = false;
    waiters::stand(c, ticket);
    loop {
        match sleep(c, ticket, nap, wary) {
            Slept::Served | Slept::Look => {}
            Slept::Interrupted => interrupted = true,
            Slept::Forked => return Err(Errno::EINTR),
        }
        // No handler runs unseen from here on.
        let signals = wary.open();
        match waiters::outcome(ticket.waiter) {
            None => {}
            Some(Ok(())) => {
                // SAFETY: as for receive.
                return unsafe { take_given(c, queue, signals, ticket, into) }.map(Some);
            }
            Some(result) => {
                let again = end_or_again(c, queue, ticket, result, interrupted, wary);
                return again.map(|()| None);
            }
        }
        nap = (nap * 2).min(if unfinished { LONGEST_UNFINISHED_SLEEP } else { LONGEST_SLEEP });
        let slow = lock_for_waiter(c, queue, signals)?;
        interrupted |= signals.handler_waits();
        if waiters::outcome(ticket.waiter).is_some() {
            continue;
        }
        check_there(c, queue, ticket)?;
        if interrupted {
            leave(&slow, queue.receivers(), ticket)?;
            return Err(Errno::EINTR);
        }
        unfinished = scan::reap(&slow);
        // SAFETY: as for receive.
        let found = unsafe { take(&slow, into, wanted) };
        if !matches!(found, Ok(None)) {
            leave(&slow, queue.receivers(), ticket)?;
            return found;
        }
    }
}

/// Takes the message that a sender has handed to the caller.
///
/// # Safety
/// As for [`super::receive()`].
unsafe fn take_given(
    c: &Ctx,
    queue: &Queue,
    signals: &SignalsBlocked,
    ticket: Ticket,
    into: Incoming,
) -> Result<Received, Errno> {
    let slow = queue.lock(c, signals)?;
    check_there(c, queue, ticket)?;
    // SAFETY: as for receive.
    let received =
        unsafe { take_assigned(&slow, into, ticket.waiter.message().position.load(Relaxed) as u32) };
    waiters::stand_down(c, ticket);
    drop(slow);
    if !queue.still() {
        // Its memory was kept for this message.
        let _ = finish_removal(c, signals, queue.index, queue.id);
    }
    received
}

/// The lock, for a caller that stands in a queue of waiters. A removal that a dead process has begun is
/// finished first, which serves the caller.
fn lock_for_waiter<'a>(c: &'a Ctx, queue: &Queue, signals: &SignalsBlocked) -> Result<Slow<'a>, Errno> {
    let slow = queue.lock(c, signals)?;
    if !dir::is_dying(&queue.entry.head) {
        return Ok(slow);
    }
    drop(slow);
    finish_removal(c, signals, queue.index, queue.id)?;
    queue.lock(c, signals)
}

/// Is the queue there? If not, and the caller, which waits in it, was not told, the pool was taken away just
/// before it began to wait.
fn check_there(c: &Ctx, queue: &Queue, ticket: Ticket) -> Result<(), Errno> {
    if queue.is_there() {
        return Ok(());
    }
    waiters::stand_down(c, ticket);
    Err(Errno::EIDRM)
}

fn leave(slow: &Slow, queue: WaitQueue, ticket: Ticket) -> Result<(), Errno> {
    let mut txn = slow.guard.txn();
    waiters::dequeue(slow.c, &mut txn, queue, ticket)?;
    txn.commit()?;
    waiters::stand_down(slow.c, ticket);
    Ok(())
}
