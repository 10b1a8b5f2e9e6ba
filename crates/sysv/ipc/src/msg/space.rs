//! Space for messages: a ring is made at the first message, and grows with need.

use super::done;
use super::end::{self, At, MAX_STEP};
use super::mark::{Mark, State};
use super::queue::{Queue, Slow};
use super::retired;
use super::ring::{self, Ring, CELL, MOST_CELLS};
use super::scan::{self, Item};
use crate::{directory as dir, Ctx, Errno};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Waiter, DONE};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::log::{Full, Txn};

/// Cells of a queue's first ring.
const FIRST: u32 = 64;

/// The answer to a request for space after the tail.
pub enum Space {
    /// Yes, in this ring.
    Here(Ring),
    /// Not until somebody who lives has finished: try again.
    Busy,
}

/// Makes sure that `cells` cells after the tail are free.
///
/// `leave`: also if somebody is at work in the ring, and seems to be stopped.
pub fn make_space(slow: &Slow, signals: &SignalsBlocked, cells: u32, leave: bool) -> Result<Space, Errno> {
    if cells > MAX_STEP {
        return Err(Errno::ENOMEM);
    }
    if let Some(ring) = slow.queue.ring(slow.c) {
        let tail = slow.queue.tail().pos;
        let has_space = |ring: &Ring| done::look_for_space(&slow.queue, ring, tail, cells);
        if is_due_for_sweep(&slow.queue, tail) {
            sweep(slow, &ring)?;
        }
        if has_space(&ring) {
            return Ok(Space::Here(ring));
        }
        let is_ample = ring.cells() >= ample(slow, cells);
        let mut rounds = if is_ample { 0 } else { slow.c.kernel.spin_rounds() };
        while let Some(item) = scan::at_work(slow, &ring) {
            rounds = spin_while(slow, &ring, item, rounds);
            if rounds == 0 {
                return Ok(if has_space(&ring) {
                    Space::Here(ring)
                } else if leave {
                    grow(slow, signals, cells).map_or(Space::Busy, Space::Here)
                } else {
                    Space::Busy
                });
            }
        }
        if has_space(&ring) {
            let larger =
                (!is_ample).then(|| signals.in_passing(|| grow(slow, signals, cells)).ok()).flatten();
            return Ok(Space::Here(larger.unwrap_or(ring)));
        }
    }
    grow(slow, signals, cells).map(Space::Here)
}

/// Spins as long as somebody is at work on an item; returns the rounds that are left.
fn spin_while(slow: &Slow, ring: &Ring, item: Item, rounds: u32) -> u32 {
    for left in (0..rounds).rev() {
        if ring.mark_word(item.pos).load(Acquire) != item.mark.word() {
            return left;
        }
        slow.c.kernel.spinning();
    }
    0
}

/// Cells of a ring that has room for some messages of this size, as far as the queue's limit admits them: a
/// sender and a receiver that have only one or two in flight wait for each other all the time.
fn ample(slow: &Slow, cells: u32) -> u32 {
    let limit = slow.queue.entry.qbytes.load(Relaxed).div_ceil(CELL as u64);
    let most = limit.clamp(cells.into(), MOST_CELLS.into()) as u32;
    (cells * IN_FLIGHT).min(most).next_power_of_two().max(FIRST)
}

/// Messages that [`ample`] rings have room for.
const IN_FLIGHT: u32 = 4;

/// Moves the queue into a larger ring, or into one that nobody holds up.
fn grow(slow: &Slow, signals: &SignalsBlocked, cells: u32) -> Result<Ring, Errno> {
    let old = slow.queue.ring(slow.c);
    let mut used = 0;
    if let Some(old) = &old {
        scan::find(slow, old, |item| {
            used += if item.mark.state == State::Consumed { 0 } else { item.cells };
            false
        });
    }
    let need = (used as u64 + cells as u64).next_power_of_two().max(ample(slow, cells).into());
    let count = match &old {
        // Half full means that it was only in disorder.
        Some(old) if used * 2 > old.cells() => need.max(old.cells() as u64 * 2),
        _ => need,
    };
    if count > MOST_CELLS as u64 {
        return Err(Errno::ENOMEM);
    }
    enter(slow, signals, count)
}

/// Moves the queue into a new ring of so many cells.
pub fn enter(slow: &Slow, signals: &SignalsBlocked, count: u64) -> Result<Ring, Errno> {
    let (c, entry) = (slow.c, slow.queue.entry);
    let (head, tail) = (slow.queue.head(), slow.queue.tail());
    let old = slow.queue.ring(c);
    signals.nothing_changed();
    let guard = dir::lock(c, signals)?;
    let mut txn = guard.txn();
    let (at, _) = dir::take_block(c, &mut txn, ring::bytes(count))?;
    let new = Ring::at(c.pool.mem(), at, count).ok_or(Errno::ENOMEM)?;
    // Positions never come back, so a fast path that looked before the move can't mistake the new ring for
    // the old one.
    let first = (tail.pos as u64 + 1).next_multiple_of(count) as u32;
    c.pay(count).ok_or(Errno::EIDRM)?;
    clear(&new, first, count as u32);
    let mut to = first;
    let mut lost = false;
    if let Some(old) = &old {
        // First, so that whatever gets a place IN RETIRED is listed: a sender may finish meanwhile.
        retired::leave(slow, &mut txn, *old)?;
        scan::find(slow, old, |item| {
            match item.mark.state {
                State::Consumed => return false,
                State::Reserved => retired::keep_place(&new, to, old, item),
                _ if c.pay(item.cells.into()).is_none() => return true,
                _ => new.copy_message(to, old, item.pos, item.mark, item.cells),
            }
            if item.mark.state == State::Assigned {
                lost |= tell_receiver(c, &mut txn, slow, item.mark, item.pos, to).is_err();
            }
            to = to.wrapping_add(item.cells);
            false
        });
        if lost {
            done::let_go(&slow.queue);
            return Err(Errno::ENOMEM);
        }
    }
    txn.put(&entry.ring, at)?;
    txn.put(&entry.cells, count)?;
    for (end, pos, at) in [(&entry.send, to, tail), (&entry.receive, first, head)] {
        let moved = At { pos, owner: 0, step: 0, ..at };
        end::put(&mut txn, end, moved)?;
    }
    for end in [&entry.send, &entry.receive] {
        txn.put(&end.done, first.into())?;
    }
    txn.put(&entry.send.sweep, next_sweep(&new, to))?;
    txn.commit()?;
    Ok(new)
}

/// Laps, as a power of two, after which old marks are swept away. Marks are told apart by 20 bits of their
/// lap, and a position's mark is only written when a message begins there; so that has to be before laps come
/// round.
const SWEEP_LAPS: u32 = 18;
/// Positions that the tail moves at the most before old marks are swept away.
const SWEEP_MOST: u64 = 1 << 30;

fn next_sweep(ring: &Ring, tail: u32) -> u64 {
    let after = (u64::from(ring.cells()) << SWEEP_LAPS).min(SWEEP_MOST);
    tail.wrapping_add(after as u32).into()
}

/// Has the tail come so far that marks must be swept before the next message?
#[inline]
pub fn is_due_for_sweep(queue: &Queue, tail: u32) -> bool {
    let sweep = queue.entry.send.sweep.load(Relaxed) as u32;
    tail.wrapping_sub(sweep) as i32 >= 0
}

/// Sweeps the marks of all free positions.
fn sweep(slow: &Slow, ring: &Ring) -> Result<(), Errno> {
    let tail = slow.queue.tail().pos;
    let used = tail.wrapping_sub(done::at(&slow.queue)).min(ring.cells());
    slow.c.pay(ring.cells().into()).ok_or(Errno::EIDRM)?;
    clear(ring, tail, ring.cells() - used);
    let mut txn = slow.guard.txn();
    txn.put(&slow.queue.entry.send.sweep, next_sweep(ring, tail))?;
    txn.commit()?;
    Ok(())
}

/// Says of positions from `first` that nothing stands there: their marks are of the lap before.
fn clear(ring: &Ring, first: u32, count: u32) {
    for i in 0..count {
        let pos = first.wrapping_add(i);
        let nothing = Mark::free(ring.lap(pos).wrapping_sub(1));
        ring.mark_word(pos).store(nothing.word(), Relaxed);
    }
}

/// A message that was handed to a receiver moves: the receiver's record has to say where it is then. The
/// receiver looks under the queue's lock.
fn tell_receiver(c: &Ctx, txn: &mut Txn, slow: &Slow, mark: Mark, from: u32, to: u32) -> Result<(), Full> {
    let high = c.pool.root().waiter_high.load(Relaxed).min(c.pool.geometry().waiters.1);
    let is_it = |w: &Waiter| {
        w.owner.load(Relaxed) as u32 == mark.owner as u32
            && w.object.load(Relaxed) == slow.queue.reference()
            && w.status.load(Acquire) == DONE
            && w.message().position.load(Relaxed) == from as u64
    };
    match (0..high).filter_map(|i| c.waiter(i)).find(|w| is_it(w)) {
        Some(w) => txn.put(&w.message().position, to.into()),
        None => Ok(()),
    }
}
