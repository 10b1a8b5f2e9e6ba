//! `msgsnd`.

use super::deliver::deliver;
use super::done;
use super::end::{self, At, MAX_STEP};
use super::mark::{Mark, State};
use super::name::name_sender;
use super::pause::Pause;
use super::queue::Queue;
use super::ring::{cells_for, Ring};
use super::space::{is_due_for_sweep, make_space, Space};
use super::spin::{is_receiver_waiting, spin_for_space};
use super::wait;
use super::waiter::register_sender;
use super::wary::Wary;
use crate::give_way::{give_way, glance, is_crowd_possible};
use crate::{perm, pid_word, Ctx, Errno, IPC_NOWAIT};
use core::ops::ControlFlow;
use vshmem_pool::atomic::Ordering::{Relaxed, Release};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::tuning::{FAST_ATTEMPTS, SENDER_PAUSES};

/// A message to be sent.
#[derive(Clone, Copy)]
pub struct Outgoing {
    /// Type.
    pub kind: i64,
    /// Text.
    pub text: *const u8,
    /// Bytes of text.
    pub len: usize,
}

enum Attempt {
    Done,
    /// The queue is full.
    Full,
    /// The queue is not full, but a receiver that has taken a message has not finished yet.
    Busy,
    /// Somebody has the lock, or waits for a message.
    KeptOff,
    Slow,
}

impl Attempt {
    /// Is it no more than a moment, perhaps, until another one succeeds?
    fn passes(&self, queue: &Queue) -> bool {
        match self {
            Attempt::Full | Attempt::Busy => true,
            Attempt::KeptOff => !is_receiver_waiting(queue),
            Attempt::Done | Attempt::Slow => false,
        }
    }
}

/// `msgsnd`.
///
/// # Safety
/// `text` must point to `len` readable bytes.
#[inline]
pub unsafe fn send(c: &Ctx, id: i32, mtype: i64, text: *const u8, len: usize, flg: i32) -> Result<(), Errno> {
    if len > c.pool.limits().msgmax as usize || mtype < 1 {
        return Err(Errno::EINVAL);
    }
    let queue = Queue::find(c, id)?;
    perm::check(c, &queue.entry.head, perm::WRITE)?;
    let message = Outgoing { kind: mtype, text, len };
    // SAFETY: the caller vouches for the text.
    match unsafe { attempt(c, &queue, message) } {
        Attempt::Done => Ok(()),
        // SAFETY: as above.
        other => unsafe { send_slowly(c, &queue, message, flg, other) },
    }
}

/// # Safety
/// As for [`send`].
#[inline(always)]
unsafe fn attempt(c: &Ctx, queue: &Queue, message: Outgoing) -> Attempt {
    let entry = queue.entry;
    let now = c.kernel.now();
    let mut beaten = 0;
    for _ in 0..FAST_ATTEMPTS {
        let pair = entry.send.at.load();
        let tail = At::of(pair);
        // Removed, and perhaps another queue since: asked after the end was read, which no later queue has
        // again.
        if tail.slow || !queue.still() {
            return if tail.slow { Attempt::KeptOff } else { Attempt::Slow };
        }
        let Some(ring) = queue.ring(c) else {
            return Attempt::Slow;
        };
        ring.prefetch_to_write(tail.pos);
        let unchanged = || end::read(&entry.send) == tail;
        if !queue.admits(tail, message.len) {
            if unchanged() {
                return Attempt::Full;
            }
            continue;
        }
        let cells = cells_for(message.len);
        if cells > MAX_STEP.min(ring.cells()) || is_due_for_sweep(queue, tail.pos) {
            return Attempt::Slow;
        }
        if !done::remembers_space(queue, &ring, tail.pos, cells)
            && !done::look_for_space(queue, &ring, tail.pos, cells)
        {
            if unchanged() {
                return Attempt::Busy;
            }
            continue;
        }
        name_sender(queue, &ring, tail);
        c.pool.touch(c.me, queue.reference());
        let next = after(Sender::of(c).owner, tail, cells, message.len);
        if entry.send.at.cas(pair, next.words()).is_ok() {
            // SAFETY: the compare-and-swap made the cells ours; the caller vouches for the text.
            unsafe { finish(Sender::of(c), queue, &ring, tail.pos, message, now) };
            return Attempt::Done;
        }
        end::was_beaten(c, SENDER_PAUSES, &mut beaten);
    }
    Attempt::Slow
}

/// Writes a message to the cells that were taken for it.
///
/// # Safety
/// As for [`send`], and the cells must be the caller's.
#[inline(always)]
pub unsafe fn finish(sender: Sender, queue: &Queue, ring: &Ring, pos: u32, message: Outgoing, now: i64) {
    let send = &queue.entry.send;
    end::note_use(send, sender.pid, now);
    // SAFETY: the caller vouches for cells and text.
    unsafe { ring.write(pos, message.kind, message.text, message.len) };
    ring.mark_word(pos).store(ready(sender.owner, ring, pos, message.len).word(), Release);
    let behind = pos.wrapping_add(cells_for(message.len));
    send.finished.store(behind.into(), Release);
}

/// The sending end after a message of `len` bytes.
pub fn after(owner: u16, tail: At, cells: u32, len: usize) -> At {
    At {
        pos: tail.pos.wrapping_add(cells),
        bytes: tail.bytes.wrapping_add(len as u32),
        msgs: tail.msgs.wrapping_add(1),
        owner,
        step: cells as u16,
        slow: tail.slow,
    }
}

fn ready(owner: u16, ring: &Ring, pos: u32, len: usize) -> Mark {
    Mark { state: State::Ready, lap: ring.lap(pos), len: len as u32, owner }
}

/// The sender of a message, as ends and marks name it.
#[derive(Clone, Copy)]
pub struct Sender {
    /// Process slot + 1.
    pub owner: u16,
    /// Pid word.
    pub pid: u64,
}

impl Sender {
    #[inline(always)]
    fn of(c: &Ctx) -> Sender {
        Sender { owner: c.me.slot as u16 + 1, pid: pid_word(c) }
    }
}

/// # Safety
/// As for [`send`].
#[cold]
unsafe fn send_slowly(
    c: &Ctx,
    queue: &Queue,
    message: Outgoing,
    flg: i32,
    mut found: Attempt,
) -> Result<(), Errno> {
    let nowait = flg & IPC_NOWAIT != 0;
    let first = is_crowd_possible(c).then(|| end::position(&queue.entry.receive));
    let mut rounds = c.kernel.rounds_in_flow();
    while rounds > 0 && found.passes(queue) {
        if nowait && matches!(found, Attempt::Full) {
            return Err(Errno::EAGAIN);
        }
        rounds = spin_for_space(c, queue, message.len, rounds);
        c.kernel.spun(rounds > 0);
        // SAFETY: as for send.
        found = unsafe { attempt(c, queue, message) };
        if let Attempt::Done = found {
            return Ok(());
        }
    }
    if nowait && matches!(found, Attempt::Full) {
        return Err(Errno::EAGAIN);
    }
    // SAFETY: as for send.
    if !nowait && unsafe { gave_way(c, queue, message, first)? } {
        return Ok(());
    }
    let (mut pause, mut wary) = (Pause::new(), Wary::new(c));
    loop {
        perm::check(c, &queue.entry.head, perm::WRITE)?;
        let is_long = pause.is_long();
        // SAFETY: as for send.
        let step = unsafe { try_send(c, queue, wary.attentive(), message, nowait, is_long)? };
        wary.let_through();
        match step {
            Step::Done => return Ok(()),
            Step::Busy if nowait && is_long => return Err(Errno::EAGAIN),
            Step::Busy => {
                pause.nap(c, &wary)?;
            }
            Step::Wait(ticket) => wait::for_space(c, queue, ticket, &mut wary)?,
        }
    }
}

/// Gives way for as long as the queue is full and others receive from it: then its head is not at `first` any
/// more. Returns whether the message was sent. Waiting senders come first.
///
/// # Safety
/// As for [`send`].
unsafe fn gave_way(c: &Ctx, queue: &Queue, message: Outgoing, first: Option<u64>) -> Result<bool, Errno> {
    let Some(first) = first else {
        return Ok(false);
    };
    let entry = queue.entry;
    let watched = || end::position(&entry.receive);
    let has_moved = || watched() != first || glance(c, || watched() != first);
    if queue.has_space(message.len) || !has_moved() {
        return Ok(false);
    }
    let sent = give_way(c, None, watched, || {
        if entry.first_sender.load(Relaxed) != 0 || At::of(entry.send.at.load()).slow {
            let waits = queue.still() && !queue.has_space(message.len);
            return Ok(if waits { ControlFlow::Continue(()) } else { ControlFlow::Break(false) });
        }
        // SAFETY: as for send.
        Ok(match unsafe { attempt(c, queue, message) } {
            Attempt::Done => ControlFlow::Break(true),
            Attempt::Full | Attempt::Busy | Attempt::KeptOff => ControlFlow::Continue(()),
            Attempt::Slow => ControlFlow::Break(false),
        })
    })?;
    let is_sent = sent == Some(true);
    if is_sent {
        c.kernel.spun(true);
    }
    Ok(is_sent)
}

enum Step {
    Done,
    Busy,
    Wait(crate::waiters::Ticket),
}

/// # Safety
/// As for [`send`].
unsafe fn try_send(
    c: &Ctx,
    queue: &Queue,
    signals: &SignalsBlocked,
    message: Outgoing,
    nowait: bool,
    leave: bool,
) -> Result<Step, Errno> {
    let slow = queue.lock(c, signals)?;
    if !queue.still() {
        return Err(Errno::EIDRM);
    }
    if !queue.has_space(message.len) {
        if nowait {
            return Err(Errno::EAGAIN);
        }
        return register_sender(&slow, message.len).map(Step::Wait);
    }
    let ring = match make_space(&slow, signals, cells_for(message.len), leave)? {
        Space::Here(ring) => ring,
        Space::Busy => return Ok(Step::Busy),
    };
    let tail = queue.tail();
    // SAFETY: the cells after the tail are free and both ends are frozen, so they are ours; the caller
    // vouches for the text.
    unsafe { ring.write(tail.pos, message.kind, message.text, message.len) };
    if deliver(&slow, &ring, tail, message.kind, message.len)? {
        return Ok(Step::Done);
    }
    let cells = cells_for(message.len);
    let next = At { owner: 0, step: 0, ..after(0, tail, cells, message.len) };
    let mut txn = slow.guard.txn();
    txn.set(ring.mark_offset(tail.pos), ready(Sender::of(c).owner, &ring, tail.pos, message.len).word())?;
    end::put(&mut txn, &queue.entry.send, next)?;
    txn.put(&queue.entry.send.time, c.kernel.now() as u64)?;
    txn.put(&queue.entry.send.pid, pid_word(c))?;
    txn.commit()?;
    Ok(Step::Done)
}

/// A sender that has taken its cells and does not go on. The second part lets it.
#[cfg(test)]
pub fn stopped_in_the_middle<'a>(c: &'a Ctx, id: i32, kind: i64, text: &'a [u8]) -> impl FnOnce() + 'a {
    let queue = Queue::find(c, id).unwrap();
    let (ring, pair) = (queue.ring(c).unwrap(), queue.entry.send.at.load());
    let tail = At::of(pair);
    assert!(!tail.slow);
    name_sender(&queue, &ring, tail);
    c.pool.touch(c.me, queue.reference());
    let cells = cells_for(text.len());
    assert!(done::look_for_space(&queue, &ring, tail.pos, cells));
    let next = after(Sender::of(c).owner, tail, cells, text.len());
    assert!(queue.entry.send.at.cas(pair, next.words()).is_ok());
    move || {
        let message = Outgoing { kind, text: text.as_ptr(), len: text.len() };
        // SAFETY: the cells are this sender's.
        unsafe { finish(Sender::of(c), &queue, &ring, tail.pos, message, c.kernel.now()) };
    }
}

/// Sends without the lock, or not at all.
///
/// # Safety
/// As for [`send`].
#[cfg(all(test, feature = "model"))]
pub unsafe fn send_at_once(c: &Ctx, id: i32, message: Outgoing) -> bool {
    let queue = Queue::find(c, id).ok();
    // SAFETY: the caller vouches for the text.
    queue.is_some_and(|queue| matches!(unsafe { attempt(c, &queue, message) }, Attempt::Done))
}

/// Sends under the lock, as after no room was found. `leave`: as after a long wait.
#[cfg(all(test, feature = "model"))]
pub fn send_under_lock(c: &Ctx, id: i32, kind: i64, text: &[u8], leave: bool) -> Result<(), Errno> {
    let queue = Queue::find(c, id)?;
    let message = Outgoing { kind, text: text.as_ptr(), len: text.len() };
    let signals = SignalsBlocked::new(c.kernel);
    // SAFETY: a slice.
    match unsafe { try_send(c, &queue, &signals, message, true, leave)? } {
        Step::Done => Ok(()),
        Step::Busy | Step::Wait(_) => Err(Errno::EAGAIN),
    }
}
