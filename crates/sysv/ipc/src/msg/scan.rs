//! Walking the messages of a queue whose lock is held.

use super::done;
use super::end;
use super::mark::{Mark, State};
use super::queue::Slow;
use super::ring::{cells_for, Ring};
use crate::{Ctx, Errno};
use vshmem_pool::atomic::Ordering::{AcqRel, Relaxed};
use vshmem_pool::budget::LOOK;

/// Something in the ring.
#[derive(Clone, Copy)]
pub struct Item {
    /// Position of its first cell.
    pub pos: u32,
    /// Its mark, which says what it is.
    pub mark: Mark,
    /// Cells that it takes.
    pub cells: u32,
}

/// The item at a position, if the ring is sound there.
#[inline]
pub fn item(ring: &Ring, pos: u32, left: u32) -> Option<Item> {
    let mark = ring.mark(pos)?;
    let cells = cells_of(mark)?;
    (cells >= 1 && cells <= left).then_some(Item { pos, mark, cells })
}

/// The price of a look at an item. Short ones follow closely upon each other, which costs little.
#[inline]
pub fn price(item: Item) -> u64 {
    LOOK.min(item.cells.into())
}

/// Cells of what a mark stands before.
#[inline]
pub fn cells_of(mark: Mark) -> Option<u32> {
    match mark.state {
        State::Ready | State::Taken | State::Assigned => Some(cells_for(mark.len as usize)),
        State::Reserved | State::InRetired | State::Consumed => Some(mark.len),
        State::Free => None,
    }
}

/// The position of the head, and the number of cells up to the tail.
pub fn all(slow: &Slow, ring: &Ring) -> (u32, u32) {
    let (head, tail) = (slow.queue.head().pos, slow.queue.tail().pos);
    (head, tail.wrapping_sub(head).min(ring.cells()))
}

/// Looks are paid for in sums of about this much.
const SUM: u64 = 64;

/// Calls `stop` with everything between head and tail, in order, until it returns true; returns that.
#[inline]
pub fn find(slow: &Slow, ring: &Ring, mut stop: impl FnMut(Item) -> bool) -> Option<Item> {
    let (mut pos, mut left) = all(slow, ring);
    let mut owed = 0;
    while left > 0 {
        let item = item(ring, pos, left)?;
        owed += price(item);
        if owed >= SUM {
            slow.c.pay(owed)?;
            owed = 0;
        }
        if stop(item) {
            // Nothing is found that can't be paid for.
            return slow.c.pay(owed).map(|()| item);
        }
        pos = pos.wrapping_add(item.cells);
        left -= item.cells;
    }
    slow.c.pay(owed)?;
    None
}

/// Is the process that a mark names certainly dead?
pub fn owner_is_dead(c: &Ctx, owner: u16) -> bool {
    match (owner as u32).checked_sub(1) {
        Some(slot) => slot != c.me.slot && c.is_dead(slot, |_| true),
        None => true,
    }
}

/// Drops what dead processes have begun and not finished, and frees what is used up at the head. Returns
/// whether something unfinished of the living is left between head and tail.
pub fn reap(slow: &Slow) -> bool {
    let Some(ring) = slow.queue.ring(slow.c) else {
        return false;
    };
    let mut unfinished = false;
    let (mut bytes, mut msgs) = (0, 0);
    find(slow, &ring, |item| {
        match item.mark.state {
            State::Reserved | State::Assigned if owner_is_dead(slow.c, item.mark.owner) => {
                consume_at(&ring, item)
            }
            State::Reserved | State::InRetired => unfinished = true,
            State::Ready => {
                bytes += item.mark.len;
                msgs += 1;
            }
            _ => {}
        }
        false
    });
    if !unfinished {
        recount(slow, bytes, msgs);
    }
    advance(slow, &ring);
    unfinished
}

/// A sender counts its message before it is there. If it died in between, the counts are put right.
fn recount(slow: &Slow, bytes: u32, msgs: u32) {
    let (head, tail) = (slow.queue.head(), slow.queue.tail());
    let right = end::At { bytes: head.bytes.wrapping_add(bytes), msgs: head.msgs.wrapping_add(msgs), ..tail };
    if right == tail {
        return;
    }
    let mut txn = slow.guard.txn();
    if end::put(&mut txn, &slow.queue.entry.send, right).is_ok() {
        // Else the next owner of the lock puts it right.
        let _ = txn.commit();
    }
}

/// Marks an item as used up. Its counts are right already: it was never counted as received, or is no
/// message.
pub fn consume_at(ring: &Ring, item: Item) {
    let used = done::consumed(ring, item.pos, item.cells);
    let _ = ring.mark_word(item.pos).compare_exchange(item.mark.word(), used.word(), AcqRel, Relaxed);
}

/// Moves the head over what is used up, and frees that.
pub fn advance(slow: &Slow, ring: &Ring) {
    let head = slow.queue.head();
    let mut pos = head.pos;
    find(slow, ring, |item| {
        let used = item.mark.state == State::Consumed;
        if used {
            pos = item.pos.wrapping_add(item.cells);
        }
        !used
    });
    if pos != head.pos {
        let moved = end::At { pos, step: 0, owner: 0, ..head };
        let mut txn = slow.guard.txn();
        if end::put(&mut txn, &slow.queue.entry.receive, moved).is_ok() {
            let _ = txn.commit();
        }
    }
    done::catch_up(slow.c, &slow.queue, ring);
}

/// Frees what dead receivers had taken behind the head. Returns something that the living have taken, if it
/// is left there.
pub fn reap_behind(slow: &Slow, ring: &Ring) -> Option<Item> {
    done::catch_up(slow.c, &slow.queue, ring);
    let mut unfinished = None;
    behind(slow, ring, |item| match item.mark.state {
        State::Taken if owner_is_dead(slow.c, item.mark.owner) => consume_at(ring, item),
        State::Taken => unfinished = Some(item),
        _ => {}
    });
    done::catch_up(slow.c, &slow.queue, ring);
    unfinished
}

/// Calls `see` with everything behind the head that is not free yet, in order.
pub fn behind(slow: &Slow, ring: &Ring, mut see: impl FnMut(Item)) {
    let mut pos = done::at(&slow.queue);
    let mut left = slow.queue.head().pos.wrapping_sub(pos);
    // What makes no sense there was written by somebody who scribbles, and keeps nobody.
    while let Some(item) = (left > 0).then(|| item(ring, pos, left)).flatten() {
        if slow.c.pay(price(item)).is_none() {
            return;
        }
        see(item);
        pos = pos.wrapping_add(item.cells);
        left -= item.cells;
    }
}

/// Reaps everything; is no living process at work in this ring then?
pub fn is_quiet(slow: &Slow, ring: &Ring) -> bool {
    at_work(slow, ring).is_none() && !slow.c.budget.is_spent()
}

/// Reaps everything; where is a living process at work in this ring then?
pub fn at_work(slow: &Slow, ring: &Ring) -> Option<Item> {
    reap(slow);
    let reserved = |item: Item| item.mark.state == State::Reserved;
    reap_behind(slow, ring).or_else(|| find(slow, ring, reserved))
}

/// Was a message handed to a living receiver that has not taken it out yet? What the dead were given is
/// reaped.
pub fn is_owed(slow: &Slow, ring: &Ring) -> bool {
    find(slow, ring, |item| item.mark.state == State::Assigned).is_some()
}

/// A transaction could not be made: the ring is damaged.
pub const DAMAGED: Errno = Errno::EIDRM;
