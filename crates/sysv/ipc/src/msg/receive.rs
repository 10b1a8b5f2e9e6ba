//! `msgrcv`.

use super::choose::Wanted;
use super::done;
use super::end::{self, record_use, At, MAX_STEP};
use super::mark::State;
use super::name::name_receiver;
use super::queue::Queue;
use super::ring::cells_for;
use super::scan;
use super::spin::{ends, spin_for_change, spin_for_message, spin_for_thaw, what_is_there, There};
use super::take::{after, take, Incoming, Received};
use super::waiter::register_receiver;
use super::wary::Wary;
use super::{wait, MSG_COPY, MSG_EXCEPT};
use crate::give_way::{give_way, glance, is_crowd_possible};
use crate::{perm, Ctx, Errno, IPC_NOWAIT};
use core::ops::ControlFlow;
use vshmem_pool::tuning::{FAST_ATTEMPTS, RECEIVER_PAUSES};

enum Attempt {
    Done(Received),
    /// No message is at the head.
    Free,
    Slow,
}

/// `msgrcv`. Returns the number of bytes copied and the type.
///
/// # Safety
/// `text` must point to `cap` writable bytes.
#[inline]
pub unsafe fn receive(
    c: &Ctx,
    id: i32,
    text: *mut u8,
    cap: usize,
    mtyp: i64,
    flg: i32,
) -> Result<Received, Errno> {
    if cap > isize::MAX as usize {
        return Err(Errno::EINVAL);
    }
    if flg & MSG_COPY != 0 && (flg & MSG_EXCEPT != 0 || flg & IPC_NOWAIT == 0) {
        return Err(Errno::EINVAL);
    }
    let queue = Queue::find(c, id)?;
    perm::check(c, &queue.entry.head, perm::READ)?;
    let into = Incoming::new(text, cap, flg);
    let wanted = Wanted::new(mtyp, flg);
    // SAFETY: the caller vouches for the buffer.
    match unsafe { attempt(c, &queue, into, wanted, c.kernel.now())? } {
        Attempt::Done(received) => Ok(received),
        Attempt::Free if flg & IPC_NOWAIT != 0 && is_empty(&queue) => Err(Errno::ENOMSG),
        // SAFETY: as above.
        _ => unsafe { receive_slowly(c, &queue, into, wanted, mtyp, flg) },
    }
}

/// Takes the message at the head, if it is there and wanted. `now` was read from the clock a moment ago: that
/// takes as long as half of the rest, and is better done before the message is there.
///
/// # Safety
/// As for [`receive`].
#[inline(always)]
unsafe fn attempt(
    c: &Ctx,
    queue: &Queue,
    into: Incoming,
    wanted: Wanted,
    now: i64,
) -> Result<Attempt, Errno> {
    let entry = queue.entry;
    let mut beaten = 0;
    for _ in 0..FAST_ATTEMPTS {
        let pair = entry.receive.at.load();
        let head = At::of(pair);
        // As in `send`.
        if head.slow || !queue.still() {
            return Ok(Attempt::Slow);
        }
        let Some(ring) = queue.ring(c) else {
            return Ok(Attempt::Slow);
        };
        let unchanged = || end::read(&entry.receive) == head;
        let mark = match ring.mark(head.pos) {
            Some(mark) if mark.state == State::Ready => mark,
            _ if !unchanged() => continue,
            Some(_) => return Ok(Attempt::Slow),
            None => return Ok(Attempt::Free),
        };
        ring.prefetch_to_read(head.pos);
        let kind = ring.kind(head.pos);
        let len = mark.len as usize;
        let cells = cells_for(len);
        if !wanted.takes_first(kind) || cells > MAX_STEP.min(ring.cells()) {
            return Ok(Attempt::Slow);
        }
        if len > into.cap && !into.cut {
            if unchanged() {
                return Err(Errno::E2BIG);
            }
            continue;
        }
        name_receiver(queue, &ring, head);
        c.pool.touch(c.me, queue.reference());
        let next = At { owner: c.me.slot as u16 + 1, step: cells as u16, ..after(head, cells, len) };
        if entry.receive.at.cas(pair, next.words()).is_ok() {
            let n = into.part_of(c, len);
            // SAFETY: the compare-and-swap made the message ours; the caller vouches for the buffer.
            unsafe { ring.read(head.pos, len, into.text, n) };
            record_use(c, &entry.receive, now);
            done::finish(queue, &ring, head.pos, cells);
            return Ok(Attempt::Done((n, kind)));
        }
        end::was_beaten(c, RECEIVER_PAUSES, &mut beaten);
    }
    Ok(Attempt::Slow)
}

/// # Safety
/// As for [`receive`].
#[cold]
unsafe fn receive_slowly(
    c: &Ctx,
    queue: &Queue,
    into: Incoming,
    wanted: Wanted,
    mtyp: i64,
    flg: i32,
) -> Result<Received, Errno> {
    let may_wait = flg & IPC_NOWAIT == 0;
    let first = is_crowd_possible(c).then(|| end::position(&queue.entry.send));
    let mut spins = if may_wait { c.kernel.rounds_in_flow() } else { 0 };
    // SAFETY: as for receive.
    if let Some(received) = unsafe { spin_unlocked(c, queue, into, wanted, &mut spins)? } {
        return Ok(received);
    }
    if may_wait {
        // SAFETY: as for receive.
        if let Some(received) = unsafe { gave_way(c, queue, into, wanted, first)? } {
            return Ok(received);
        }
    }
    let mut wary = Wary::new(c);
    loop {
        perm::check(c, &queue.entry.head, perm::READ)?;
        let seen = ends(queue);
        let (ticket, unfinished) = {
            let slow = queue.lock(c, wary.attentive())?;
            if !queue.still() {
                return Err(Errno::EIDRM);
            }
            // SAFETY: as for receive.
            if let Some(received) = unsafe { take(&slow, into, wanted)? } {
                return Ok(received);
            }
            if may_wait && spins > 0 {
                drop(slow);
                wary.let_through();
                spins = spin_for_change(c, queue, seen, spins);
                c.kernel.spun(spins > 0);
                // SAFETY: as for receive.
                match unsafe { spin_unlocked(c, queue, into, wanted, &mut spins)? } {
                    Some(received) => return Ok(received),
                    None => continue,
                }
            }
            if !may_wait {
                return Err(Errno::ENOMSG);
            }
            // What is finished after this is looked for soon; what was finished before is found now.
            let unfinished = scan::reap(&slow);
            // SAFETY: as for receive.
            if let Some(received) = unsafe { take(&slow, into, wanted)? } {
                return Ok(received);
            }
            (register_receiver(&slow, mtyp, into.cap, flg)?, unfinished)
        };
        // SAFETY: as for receive.
        let received = unsafe { wait::for_message(c, queue, ticket, into, wanted, unfinished, &mut wary)? };
        if let Some(received) = received {
            return Ok(received);
        }
        spins = 0;
    }
}

/// Spins as long as there is nothing, or one message that is not wanted: it may be for another receiver,
/// which must not find the queue locked for the sake of this caller. The rounds that are left are for the
/// owner of the lock.
///
/// # Safety
/// As for [`receive`].
unsafe fn spin_unlocked(
    c: &Ctx,
    queue: &Queue,
    into: Incoming,
    wanted: Wanted,
    rounds: &mut u32,
) -> Result<Option<Received>, Errno> {
    while *rounds > 0 {
        *rounds = match what_is_there(c, queue, wanted) {
            // The sending end is not looked at while spinning: that would slow the sender down.
            There::Nothing => spin_for_message(c, queue, *rounds),
            There::Locked => spin_for_thaw(c, queue, *rounds),
            There::OneUnwanted(seen) => spin_for_change(c, queue, seen, *rounds),
            There::Changed => *rounds - 1,
            There::Other => break,
        };
        // SAFETY: as for receive.
        match unsafe { attempt(c, queue, into, wanted, c.kernel.now())? } {
            Attempt::Done(received) => {
                c.kernel.spun(true);
                return Ok(Some(received));
            }
            Attempt::Free | Attempt::Slow => {}
        }
        if *rounds == 0 {
            c.kernel.spun(false);
        }
    }
    Ok(None)
}

/// Gives way for as long as the queue is empty and others send to it: then its tail is not at `first` any
/// more.
///
/// # Safety
/// As for [`receive`].
unsafe fn gave_way(
    c: &Ctx,
    queue: &Queue,
    into: Incoming,
    wanted: Wanted,
    first: Option<u64>,
) -> Result<Option<Received>, Errno> {
    let Some(first) = first else {
        return Ok(None);
    };
    let entry = queue.entry;
    let watched = || end::position(&entry.send);
    let has_moved = || watched() != first || glance(c, || watched() != first);
    let has_nothing = || end::position(&entry.receive) as u32 == watched() as u32 && queue.still();
    if !has_nothing() || !has_moved() {
        return Ok(None);
    }
    let received = give_way(c, None, watched, || {
        // SAFETY: as for receive.
        Ok(match unsafe { attempt(c, queue, into, wanted, c.kernel.now())? } {
            Attempt::Done(received) => ControlFlow::Break(Some(received)),
            Attempt::Free => ControlFlow::Continue(()),
            Attempt::Slow if !queue.still() => ControlFlow::Break(None),
            Attempt::Slow => match what_is_there(c, queue, wanted) {
                There::Nothing | There::Locked | There::Changed => ControlFlow::Continue(()),
                There::OneUnwanted(_) | There::Other => ControlFlow::Break(None),
            },
        })
    })?;
    let received = received.flatten();
    if received.is_some() {
        c.kernel.spun(true);
    }
    Ok(received)
}

/// Is there certainly nothing, and nothing on its way?
fn is_empty(queue: &Queue) -> bool {
    let (head, tail) = (queue.head(), queue.tail());
    head.pos == tail.pos && !head.slow && !tail.slow
}

/// A receiver that has taken the first message and does not go on. The second part lets it.
#[cfg(test)]
pub fn stopped_in_the_middle<'a>(c: &'a Ctx, id: i32) -> impl FnOnce() -> std::vec::Vec<u8> + 'a {
    let queue = Queue::find(c, id).unwrap();
    let (ring, pair) = (queue.ring(c).unwrap(), queue.entry.receive.at.load());
    let head = At::of(pair);
    let len = ring.mark(head.pos).unwrap().len as usize;
    name_receiver(&queue, &ring, head);
    c.pool.touch(c.me, queue.reference());
    let cells = cells_for(len);
    let next = At { owner: c.me.slot as u16 + 1, step: cells as u16, ..after(head, cells, len) };
    assert!(queue.entry.receive.at.cas(pair, next.words()).is_ok());
    move || {
        let mut text = std::vec![0; len];
        // SAFETY: the message is this receiver's, and the buffer has room for it.
        unsafe { ring.read(head.pos, len, text.as_mut_ptr(), len) };
        record_use(c, &queue.entry.receive, c.kernel.now());
        done::finish(&queue, &ring, head.pos, cells);
        text
    }
}

/// Receives the message at the head without the lock, or not at all.
///
/// # Safety
/// As for [`receive`].
#[cfg(all(test, feature = "model"))]
pub unsafe fn receive_at_once(c: &Ctx, id: i32, text: *mut u8, cap: usize) -> Option<Received> {
    let queue = Queue::find(c, id).ok()?;
    let (into, wanted) = (Incoming::new(text, cap, 0), Wanted::new(0, 0));
    // SAFETY: the caller vouches for the buffer.
    match unsafe { attempt(c, &queue, into, wanted, c.kernel.now()) } {
        Ok(Attempt::Done(received)) => Some(received),
        _ => None,
    }
}
