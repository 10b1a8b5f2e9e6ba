//! Retired rings: rings that a queue has left while somebody was in the middle of a message there.
//!
//! A queue that needs a larger ring can't wait for ever for a process that is stopped between taking its
//! cells and its last store, or for a thread that is in a signal handler there, or has left by `siglongjmp`.
//! So it leaves. The old ring stays as it is, *retired*, since that thread writes or reads there when it goes
//! on. What keeps the ring is listed in the quarter of its block that nobody uses.
//!
//! * A message that is being *sent* has its place in the new ring: a mark IN RETIRED with as many cells, and
//!   in the head where the message will be in the old ring. It is a message when the old mark says READY, and
//!   is then moved to its place.
//! * A message that is being *received* has left the queue. Only the memory has to stay.
//!
//! # Why it is correct
//! Both ends are frozen and the last movers are named when a queue leaves its ring. So every cell that a
//! thread is at work on has a mark RESERVED or TAKEN with a name, and no other begins: a fast path that read
//! an end before can't swap it any more, for positions never come back. The thread at work ends with one
//! store to that mark, and need not know that the queue has gone on: a sender always does, and a receiver
//! because *done*, which it would move instead, is held while the list is made, and is another one
//! afterwards. The list is made before the messages are copied, so whatever gets a place IN RETIRED is
//! listed: a sender that finishes between the two is listed, and its message is copied.
//!
//! A collector takes a listed mark for finished if it is no more what it was. If its owner is dead, the mark
//! is *swapped* to CONSUMED: either the owner's last store came before, then the swap fails and the message
//! counts, or it never comes. Only then the collector goes through the marks IN RETIRED. So a ring all of
//! whose list was finished at first has nothing left that is not moved, and its memory is given back. One
//! transaction moves a message: its text to cells that nobody else uses, then type, short text and mark
//! together. A collector that dies before has done nothing that could not be done again.

use super::done;
use super::mark::{Mark, State};
use super::queue::{Queue, Slow};
use super::ring::{self, Ring};
use super::scan::{self, owner_is_dead, Item};
use crate::{directory as dir, Ctx, Errno};
use vshmem_pool::atomic::AtomicU64;
use vshmem_pool::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use vshmem_pool::budget::LOOK;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::log::Txn;

/// Most rings that a queue leaves behind at a time.
const MOST_RINGS: usize = 64;
/// Most messages that a retired ring may be kept for.
const MOST_HELD: u64 = 1024;

/// A retired ring. In the unused quarter: the link to the next, how many messages are listed, and each one's
/// position and mark.
#[derive(Clone, Copy)]
struct Retired {
    ring: Ring,
}

/// Offset of a ring and how many times two its cells are, in one word: rings begin at multiples of 64.
fn link(ring: &Ring) -> u64 {
    ring.offset() | u64::from(ring.cells().trailing_zeros())
}

impl Retired {
    /// `None` at the end, or where nothing sensible stands.
    fn of(c: &Ctx, link: u64) -> Option<Retired> {
        c.pay(LOOK)?;
        let ring = Ring::at(c.pool.mem(), link & !63, 1 << (link & 63))?;
        (link != 0).then_some(Retired { ring })
    }

    /// The n-th word of the quarter.
    fn word(&self, n: u64) -> &'static AtomicU64 {
        self.ring.spare_word(n)
    }

    fn capacity(ring: &Ring) -> u64 {
        ((ring.spare_words() - 2) / 2).min(MOST_HELD)
    }

    fn listed(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let count = self.word(1).load(Relaxed).min(Self::capacity(&self.ring));
        (0..count).map(|i| {
            let entry = 2 + 2 * i;
            let (pos, mark) = (self.word(entry), self.word(entry + 1));
            (pos.load(Relaxed) as u32, mark.load(Relaxed))
        })
    }

    /// Is everybody finished, or dead?
    fn is_finished(&self, c: &Ctx) -> bool {
        self.listed().fold(true, |all, (pos, mark)| all & is_finished(c, &self.ring, pos, mark))
    }
}

/// Is the process that this mark names no more at work? A message of a dead one is marked as consumed.
fn is_finished(c: &Ctx, ring: &Ring, pos: u32, word: u64) -> bool {
    let Some(mark) = ring.valid(pos, word) else {
        return true;
    };
    if c.pay(LOOK).is_none() {
        return false;
    }
    if ring.mark_word(pos).load(Acquire) != word {
        return true;
    }
    if !owner_is_dead(c, mark.owner) {
        return false;
    }
    let cells = scan::cells_of(mark).unwrap_or_default();
    let used = done::consumed(ring, pos, cells).word();
    let _ = ring.mark_word(pos).compare_exchange(word, used, AcqRel, Acquire);
    true
}

/// The rings that a queue has left, the last one first.
fn rings<'a>(c: &'a Ctx, queue: &Queue) -> impl Iterator<Item = Retired> + 'a {
    let mut next = queue.entry.retired.load(Acquire);
    core::iter::from_fn(move || {
        let retired = Retired::of(c, next)?;
        next = retired.word(0).load(Relaxed);
        Some(retired)
    })
    .take(MOST_RINGS)
}

/// Calls `each` with all rings that a queue has left.
pub fn each_ring(c: &Ctx, queue: &Queue, each: impl FnMut(Ring)) {
    rings(c, queue).map(|retired| retired.ring).for_each(each);
}

/// Puts into a transaction that the queue leaves its ring: it is retired if somebody is at work in it, else
/// its block is given back. `ENOMEM` if there are too many retired rings already.
pub fn leave(slow: &Slow, txn: &mut Txn, old: Ring) -> Result<(), Errno> {
    let c = slow.c;
    // From now on a receiver that has taken a message and finishes leaves a mark. One that finished before
    // needs none.
    done::hold(&slow.queue);
    let retired = Retired { ring: old };
    let mut held = 0;
    let mut list = |item: Item| {
        if held < Retired::capacity(&old) {
            retired.word(2 + 2 * held).store(item.pos.into(), Relaxed);
            retired.word(3 + 2 * held).store(item.mark.word(), Relaxed);
        }
        held += 1;
    };
    scan::find(slow, &old, |item| {
        if item.mark.state == State::Reserved {
            list(item);
        }
        false
    });
    scan::behind(slow, &old, |item| {
        if item.mark.state == State::Taken {
            list(item);
        }
    });
    if held == 0 {
        return give_back(c, txn, &old);
    }
    if held > Retired::capacity(&old) || rings(c, &slow.queue).count() == MOST_RINGS {
        done::let_go(&slow.queue);
        return Err(Errno::ENOMEM);
    }
    let first = &slow.queue.entry.retired;
    retired.word(0).store(first.load(Relaxed), Relaxed);
    retired.word(1).store(held, Relaxed);
    Ok(txn.put(first, link(&old))?)
}

fn give_back(c: &Ctx, txn: &mut Txn, ring: &Ring) -> Result<(), Errno> {
    dir::give_block(c, txn, ring.offset(), ring::bytes(ring.cells().into()))
}

/// Keeps the place of a message that is being sent, at `to` in the new ring.
pub fn keep_place(new: &Ring, to: u32, old: &Ring, item: Item) {
    let place = [link(old), item.pos.into(), 0];
    for (word, value) in new.head_words(to).iter().zip(place) {
        word.store(value, Relaxed);
    }
    let mark = Mark { state: State::InRetired, lap: new.lap(to), ..item.mark };
    new.mark_word(to).store(mark.word(), Relaxed);
}

/// Brings over what was finished in rings that were left, and gives back those where nobody is at work any
/// more.
#[cold]
pub fn collect(slow: &Slow, signals: &SignalsBlocked) -> Result<(), Errno> {
    let (c, queue) = (slow.c, &slow.queue);
    let mut finished = [false; MOST_RINGS];
    for (retired, is_finished) in rings(c, queue).zip(&mut finished) {
        *is_finished = retired.is_finished(c);
    }
    if let Some(ring) = queue.ring(c) {
        scan::find(slow, &ring, |item| {
            if item.mark.state == State::InRetired {
                move_over(slow, &ring, item);
            }
            false
        });
    }
    if !finished.contains(&true) {
        return Ok(());
    }
    // Their memory can go back later, too.
    let Ok(guard) = signals.in_passing(|| dir::lock(c, signals)) else {
        return Ok(());
    };
    let mut txn = guard.txn();
    let mut before = &queue.entry.retired;
    for (retired, is_finished) in rings(c, queue).zip(finished) {
        if is_finished {
            txn.put(before, retired.word(0).load(Relaxed))?;
            give_back(c, &mut txn, &retired.ring)?;
        } else {
            before = retired.word(0);
        }
    }
    txn.commit()?;
    Ok(())
}

/// Moves a message to its place if it was finished in the ring where it is, or drops it if it is none any
/// more.
fn move_over(slow: &Slow, ring: &Ring, item: Item) {
    let [old, from, _] = ring.head_words(item.pos);
    let from = from.load(Relaxed) as u32;
    let old = Retired::of(slow.c, old.load(Relaxed)).map(|p| p.ring);
    let mark = old.and_then(|old| old.mark(from));
    match (old, mark.map(|m| m.state)) {
        (_, Some(State::Reserved)) => {}
        (Some(old), Some(State::Ready)) => {
            let ready = mark.filter(|m| ring::cells_for(m.len as usize) == item.cells);
            match ready.map(|m| move_message(slow, ring, item, &old, from, m)) {
                Some(Ok(())) => {}
                _ => scan::consume_at(ring, item),
            }
        }
        _ => scan::consume_at(ring, item),
    }
}

fn move_message(
    slow: &Slow,
    ring: &Ring,
    item: Item,
    old: &Ring,
    from: u32,
    mark: Mark,
) -> Result<(), Errno> {
    ring.copy_text(item.pos, old, from, item.cells);
    let mut txn = slow.guard.txn();
    for (word, value) in ring.head_words(item.pos).iter().zip(old.head_words(from)) {
        txn.put(*word, value.load(Relaxed))?;
    }
    let moved = Mark { lap: ring.lap(item.pos), ..mark };
    txn.set(ring.mark_offset(item.pos), moved.word())?;
    txn.commit()?;
    Ok(())
}

/// Is somebody at work in a ring that the queue has left?
pub fn is_busy(slow: &Slow) -> bool {
    rings(slow.c, &slow.queue).any(|retired| !retired.is_finished(slow.c))
}

/// Puts into a transaction that the memory of all rings that were left is given back. Nobody is at work
/// there.
pub fn give_all_back(c: &Ctx, txn: &mut Txn, queue: &Queue) -> Result<(), Errno> {
    for retired in rings(c, queue) {
        give_back(c, txn, &retired.ring)?;
    }
    Ok(txn.put(&queue.entry.retired, 0)?)
}

#[cfg(test)]
mod tests;
