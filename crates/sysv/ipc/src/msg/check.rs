//! Checks of a queue, for [`crate::check`].

use super::choose::choose;
use super::end::At;
use super::mark::State;
use super::queue::{Queue, Slow, LOG_ENTRIES};
use super::ring::{self, Ring};
use super::scan::{self, Item};
use super::{deliver, done, retired};
use crate::check::finding::{demand, Location, Queued, Report};
use crate::check::participants;
use crate::{directory as dir, waiters, Ctx, Errno};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Kind, DONE};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::log::Log;

/// Takes over a queue's lock if a dead process holds it, and drops what that process had begun. Returns
/// whether it was taken over.
pub(crate) fn recover(c: &Ctx, signals: &SignalsBlocked, index: u32) -> Result<bool, Errno> {
    let Ok(queue) = Queue::at(c, index) else {
        return Ok(false);
    };
    if queue.id == 0 {
        return Ok(false);
    }
    let slow = queue.lock(c, signals)?;
    if queue.still() {
        scan::reap(&slow);
        if let Some(ring) = queue.ring(c) {
            scan::reap_behind(&slow, &ring);
        }
    }
    Ok(slow.guard.inherited())
}

/// Calls `each` with offset and length of every piece of the small heap that a queue has. The pool's lock is
/// held.
pub(crate) fn pieces(c: &Ctx, index: u32, each: &mut dyn FnMut(u64, u64) -> bool) {
    let Ok(queue) = Queue::at(c, index) else {
        return;
    };
    each(queue.entry.log.load(Relaxed), Log::size(LOG_ENTRIES));
    let ring = queue.entry.ring.load(Relaxed);
    if ring != 0 {
        let cells = queue.entry.cells.load(Relaxed).min(ring::MOST_CELLS.into());
        each(ring, ring::bytes(cells));
    }
    retired::each_ring(c, &queue, |ring| {
        each(ring.offset(), ring::bytes(ring.cells().into()));
    });
}

/// Looks a queue over, under its lock.
pub(crate) fn inspect(
    c: &Ctx,
    signals: &SignalsBlocked,
    index: u32,
    queued: &mut Queued,
    report: Report,
) -> Result<(), Errno> {
    let location = Location::Object(Kind::Msg, index);
    let Ok(queue) = Queue::at(c, index) else {
        return Ok(());
    };
    if queue.id == 0 {
        return Ok(());
    }
    let slow = queue.lock(c, signals)?;
    let entry = queue.entry;
    if !queue.still() {
        let dying = dir::is_dying(&entry.head) && entry.head.id.load(Relaxed) == queue.id as u32;
        demand(report, !dying, location, "nobody finishes its removal", queue.id as u64);
        return Ok(());
    }
    let log = entry.log.load(Relaxed);
    let state = c.word(log).map_or(u64::MAX, |w| w.load(Relaxed));
    demand(report, state == 0, location, "its redo log is not clear", state);
    let (head, tail) = (queue.head(), queue.tail());
    match (queue.ring(c), entry.ring.load(Relaxed)) {
        (Some(ring), _) => positions(&slow, &ring, head, tail, location, report),
        (None, 0) => {
            let empty = head.pos == tail.pos && head.counts() == tail.counts();
            demand(report, empty, location, "it has no ring, and is not empty", tail.pos.into());
        }
        (None, at) => report(location, "its ring is not in the pool", at),
    }
    for list in [queue.receivers(), queue.senders()] {
        participants::queue(c, list, queue.reference(), location, queued, report);
    }
    nobody_waits_in_vain(&slow, report);
    Ok(())
}

/// Checks that message follows upon message from where all is free to the tail, and that they are as many as
/// the ends say.
fn positions(slow: &Slow, ring: &Ring, head: At, tail: At, location: Location, report: Report) {
    let free = done::at(&slow.queue);
    let (taken, all) = (head.pos.wrapping_sub(free), tail.pos.wrapping_sub(free));
    let fits = taken <= all && all <= ring.cells();
    demand(report, fits, location, "its positions are not in order", head.pos.into());
    let (mut cells, mut bytes, mut msgs, mut unfinished) = (0, 0, 0, false);
    scan::find(slow, ring, |item| {
        cells += item.cells;
        match item.mark.state {
            State::Ready => {
                bytes += item.mark.len;
                msgs += 1;
            }
            State::Reserved | State::InRetired => {
                unfinished = true;
                names_the_living(slow, item, location, report);
            }
            State::Assigned => {
                names_the_living(slow, item, location, report);
                let known = is_awaited(slow, item);
                demand(report, known, location, "a message was handed to nobody", item.pos.into());
            }
            State::Consumed => {}
            State::Taken | State::Free => report(location, "a mark is out of place", item.pos.into()),
        }
        false
    });
    let whole = cells == tail.pos.wrapping_sub(head.pos);
    demand(report, whole, location, "its messages do not follow upon each other", cells.into());
    let count = (tail.bytes.wrapping_sub(head.bytes), tail.msgs.wrapping_sub(head.msgs));
    let right = count == (bytes, msgs) || (unfinished && count.0 >= bytes && count.1 >= msgs);
    demand(report, right, location, "it counts its messages wrongly", count.1.into());
    let mut behind = 0;
    scan::behind(slow, ring, |item| {
        behind += item.cells;
        match item.mark.state {
            State::Taken => names_the_living(slow, item, location, report),
            State::Consumed => {}
            _ => report(location, "a mark behind the head is out of place", item.pos.into()),
        }
    });
    demand(report, behind == taken, location, "what was taken does not end at the head", behind.into());
}

fn names_the_living(slow: &Slow, item: Item, location: Location, report: Report) {
    let owner = u32::from(item.mark.owner);
    // The caller itself waits for no message, nor is it in the middle of one.
    let mine = owner == slow.c.me.slot + 1;
    let what = "a mark names a process that is not at work";
    demand(report, !mine, location, what, item.pos.into());
    let lives = mine || !scan::owner_is_dead(slow.c, item.mark.owner);
    let what = "a mark names a dead process";
    demand(report, lives, location, what, item.pos.into());
    let who = owner.checked_sub(1).and_then(|slot| slow.c.process(slot));
    if let Some((who, _, _)) = who {
        participants::is_known_to(slow.c, who.word(), slow.queue.reference(), report);
    }
}

/// Does a waiter's record say that this message is its owner's?
fn is_awaited(slow: &Slow, item: Item) -> bool {
    let c = slow.c;
    let high = c.pool.root().waiter_high.load(Acquire);
    let mut all = (0..high.min(c.pool.geometry().waiters.1)).filter_map(|i| c.waiter(i));
    all.any(|w| {
        w.owner.load(Relaxed) as u32 == item.mark.owner.into()
            && w.object.load(Relaxed) == slow.queue.reference()
            && w.status.load(Relaxed) == DONE
            && w.message().position.load(Relaxed) == item.pos.into()
    })
}

/// No message that a waiting receiver wants is in the queue.
fn nobody_waits_in_vain(slow: &Slow, report: Report) {
    let Some(ring) = slow.queue.ring(slow.c) else {
        return;
    };
    for ticket in waiters::each(slow.c, slow.queue.receivers()) {
        let wanted = deliver::wanted(ticket.waiter);
        let there = choose(slow, &ring, wanted).is_some();
        demand(report, !there, Location::Waiter(ticket.index), "its message is there, and it still waits", 0);
    }
}
