//! Handing a message to a receiver that waits (`pipelined_send` in Linux).

use super::choose::{choose, Wanted};
use super::end::{self, At};
use super::mark::{Mark, State};
use super::queue::Slow;
use super::ring::{cells_for, Ring};
use super::scan::{self, Item};
use super::{waiter, MSG_NOERROR};
use crate::waiters::{self, Ticket};
use crate::{pid_word, Errno, ProcId};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::{Waiter, DONE};

/// The kind of message that a waiting receiver wants.
pub fn wanted(w: &Waiter) -> Wanted {
    Wanted::new(w.message().kind.load(Relaxed) as i64, w.message().flags.load(Relaxed) as i32)
}

/// Hands the message that was written after the tail to the first receiver that wants it and has room for it;
/// those that want it and have not get `E2BIG`. False if there is none: the message is for the queue.
///
/// No message overtakes an earlier one. While one before it is unfinished, it goes to the queue: receivers
/// that have seen something unfinished look again soon. A receiver for whom one has become ready since it
/// looked takes that one.
pub fn deliver(slow: &Slow, ring: &Ring, tail: At, kind: i64, len: usize) -> Result<bool, Errno> {
    let (c, queue) = (slow.c, slow.queue);
    let is_unfinished = |item: Item| matches!(item.mark.state, State::Reserved | State::InRetired);
    if scan::find(slow, ring, is_unfinished).is_some() {
        return Ok(false);
    }
    loop {
        let Some(ticket) = waiters::find(c, queue.receivers(), |t| wanted(t.waiter).accepts(kind)) else {
            return Ok(false);
        };
        let w = ticket.waiter;
        if waiters::is_dead(c, w) {
            waiter::take_out(slow, queue.receivers(), ticket, Err(Errno::EINTR))?;
            continue;
        }
        if choose(slow, ring, wanted(w)).is_some() {
            waiter::retry_one(slow, ticket)?;
            continue;
        }
        let takes = w.message().flags.load(Relaxed) as i32 & MSG_NOERROR != 0
            || len as u64 <= w.message().len.load(Relaxed);
        if !takes {
            waiter::take_out(slow, queue.receivers(), ticket, Err(Errno::E2BIG))?;
            continue;
        }
        return hand_over(slow, ring, tail, ticket, len).map(|()| true);
    }
}

/// The count of messages handed over, with one more.
fn one_more(handed: u64, len: usize) -> u64 {
    let (messages, bytes) = (handed as u32, (handed >> 32) as u32);
    u64::from(messages.wrapping_add(1)) | u64::from(bytes.wrapping_add(len as u32)) << 32
}

fn hand_over(slow: &Slow, ring: &Ring, tail: At, ticket: Ticket, len: usize) -> Result<(), Errno> {
    let (c, queue, w) = (slow.c, slow.queue, ticket.waiter);
    let entry = queue.entry;
    let receiver = ProcId::of_word(w.owner.load(Relaxed)).ok_or(Errno::EIDRM)?;
    let owner = receiver.slot as u16 + 1;
    let mark = Mark { state: State::Assigned, lap: ring.lap(tail.pos), len: len as u32, owner };
    // The message never counts as being in the queue.
    let pos = tail.pos.wrapping_add(cells_for(len));
    let next = At { pos, owner: 0, step: 0, ..tail };
    let now = c.kernel.now() as u64;
    let mut txn = slow.guard.txn();
    txn.set(ring.mark_offset(tail.pos), mark.word())?;
    end::put(&mut txn, &entry.send, next)?;
    txn.put(&entry.send.time, now)?;
    txn.put(&entry.send.pid, pid_word(c))?;
    txn.put(&entry.receive.time, now)?;
    txn.put(&entry.receive.pid, w.message().pid.load(Relaxed))?;
    txn.put(&w.message().position, tail.pos.into())?;
    let handed = &entry.receive.finished;
    txn.put(handed, one_more(handed.load(Relaxed), len))?;
    txn.set(c.pool.offset_of(&w.status), waiters::status_word(w, DONE))?;
    waiters::dequeue(c, &mut txn, queue.receivers(), ticket)?;
    txn.commit()?;
    slow.guard.wake_later(&w.status);
    Ok(())
}
