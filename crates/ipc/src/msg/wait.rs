//! Waiting for a message or for space, and what the dead leave of that.

use super::end::{self, At};
use super::mark::{Mark, State};
use super::queue::{Queue, Slow};
use super::receive::{assigned, take, take_assigned, Incoming, Received};
use super::scan::{self, Wanted};
use super::wary::Wary;
use crate::waiters::{self, Queue as WaitQueue, Ticket, RETRY};
use crate::{directory as dir, pid_word, Ctx, Errno, ProcId, Waited};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use vshmem_pool::layout::DONE;
use vshmem_pool::lock::SignalsBlocked;

/// A sleeper looks around now and then: at first after this time (no round number, as for semaphores),
const FIRST_LOOK: Duration = Duration::from_micros(9_370);
/// later less and less often, down to this.
const LAST_LOOK: Duration = Duration::from_micros(243_170);
/// As long as somebody has begun and not finished, it looks after this time.
const SOON: Duration = Duration::from_micros(50);

/// Growing naps, for things that only take somebody else a moment.
pub struct Pause {
    nap: Duration,
    slept: Duration,
}

impl Pause {
    /// Longest wait for somebody who has begun to write or read a message and is stopped in the middle of it.
    const MOST: Duration = Duration::from_secs(10);

    /// No nap yet.
    pub fn new() -> Pause {
        Pause {
            nap: Duration::from_micros(5),
            slept: Duration::ZERO,
        }
    }

    /// Naps; `ENOMEM` when it has been too long.
    pub fn nap(&mut self, c: &Ctx, wary: &Wary) -> Result<(), Errno> {
        if self.slept > Self::MOST {
            return Err(Errno::ENOMEM);
        }
        let nobody = AtomicU32::new(0);
        let waited = c.kernel.wait(&nobody, 0, Some(self.nap));
        if matches!(waited, Waited::Interrupted | Waited::Forked) || wary.signal_waits() {
            return Err(Errno::EINTR);
        }
        c.budget.rest(self.nap.as_nanos() as u64);
        self.slept += self.nap;
        self.nap = (self.nap * 2).min(Duration::from_millis(5));
        Ok(())
    }

    /// Has it been longer than a moment? Who is only not running now, though it might, takes no longer.
    pub fn is_long(&self) -> bool {
        self.slept >= Duration::from_millis(20)
    }

    /// Naps; false when it has been longer than a moment.
    pub fn nap_briefly(&mut self, c: &Ctx) -> bool {
        !self.is_long() && self.nap(c, &Wary::new(c)).is_ok()
    }
}

/// Puts the caller at the end of the receivers. The sending end stays frozen while anybody is there.
pub fn register_receiver(slow: &Slow, mtyp: i64, cap: usize, flg: i32) -> Result<Ticket, Errno> {
    register(
        slow,
        slow.queue.receivers(),
        [mtyp as u64, cap as u64, flg as u32 as u64],
    )
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
    txn.set(
        c.pool.offset_of(&ticket.waiter.status),
        waiters::status_word(ticket.waiter, status),
    )?;
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

/// How one sleep ended.
enum Slept {
    /// There is an outcome.
    Served,
    /// Time for a look around.
    Look,
    /// A signal handler ran.
    Interrupted,
    /// It was somebody else's.
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

/// See [`waiters::was_free`].
fn await_applied(c: &Ctx, queue: &Queue, signals: &SignalsBlocked) {
    if !waiters::was_free(&queue.entry.lock) {
        drop(queue.lock(c, signals));
    }
}

/// What becomes of a call that was told how its wait ended: an error, or it tries again, unless a signal has come.
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
    let mut nap = FIRST_LOOK;
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
        nap = (nap * 2).min(LAST_LOOK);
        let slow = lock_for_waiter(c, queue, signals)?;
        interrupted |= signals.handler_waits();
        if waiters::outcome(ticket.waiter).is_some() {
            continue;
        }
        check_there(c, queue, ticket)?;
        scan::reap(&slow);
        if interrupted || queue.has_space(ticket.waiter.message().len.load(Relaxed) as usize) {
            leave(&slow, queue.senders(), ticket)?;
            return if interrupted {
                Err(Errno::EINTR)
            } else {
                Ok(())
            };
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
    let mut nap = if unfinished { SOON } else { FIRST_LOOK };
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
        nap = (nap * 2).min(if unfinished {
            Duration::from_millis(1)
        } else {
            LAST_LOOK
        });
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
    let received = unsafe {
        take_assigned(
            &slow,
            into,
            ticket.waiter.message().position.load(Relaxed) as u32,
        )
    };
    waiters::stand_down(c, ticket);
    drop(slow);
    if !queue.still() {
        // Its memory was kept for this message.
        let _ = super::remove::finish_removal(c, signals, queue.index, queue.id);
    }
    received
}

/// The lock, for somebody who stands in a queue of waiters: if the queue is being removed by somebody who died, that is finished
/// first, which serves the caller.
fn lock_for_waiter<'a>(
    c: &'a Ctx,
    queue: &Queue,
    signals: &SignalsBlocked,
) -> Result<Slow<'a>, Errno> {
    let slow = queue.lock(c, signals)?;
    if !dir::is_dying(&queue.entry.head) {
        return Ok(slow);
    }
    drop(slow);
    super::remove::finish_removal(c, signals, queue.index, queue.id)?;
    queue.lock(c, signals)
}

/// Is the queue there? If not, and nobody has told the caller, who waits in it, then the pool was taken away just before it began to.
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

/// See [`waiters::interrupt`].
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
    let counted = At {
        bytes: tail.bytes.wrapping_add(item.mark.len),
        msgs: tail.msgs.wrapping_add(1),
        ..tail
    };
    let ready = Mark {
        state: State::Ready,
        ..item.mark
    };
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

/// Takes from a queue what a dead process has begun there.
pub(crate) fn reap_process(c: &Ctx, signals: &SignalsBlocked, index: u32, dead: ProcId) {
    let Ok(queue) = Queue::at(c, index) else {
        return;
    };
    if queue.id == 0 || dead == c.me {
        return;
    }
    let Ok(slow) = queue.lock(c, signals) else {
        return;
    };
    if dir::is_dying(&queue.entry.head) {
        drop(slow);
        let _ = super::remove::finish_removal(c, signals, index, queue.id);
        return;
    }
    if queue.still() {
        scan::reap(&slow);
        if let Some(ring) = queue.ring(c) {
            scan::reap_behind(&slow, &ring);
        }
        // What was not seen is left to who looks next.
        if !c.budget.is_spent() {
            c.pool.untouch(dead, queue.reference());
        }
    }
}
