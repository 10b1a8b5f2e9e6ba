//! A queue that was found.

use super::done;
use super::end::{self, At};
use super::mark::{Mark, State};
use super::retired;
use super::ring::Ring;
use crate::waiters::Queue as WaitQueue;
use crate::{directory as dir, perm, Ctx, Errno};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use vshmem_pool::layout::{Kind, Msg, MsgEnd, MAX_ENTRIES};
use vshmem_pool::lock::{Guard, SignalsBlocked};
use vshmem_pool::log::Log;

/// Entries of a queue's redo log.
pub const LOG_ENTRIES: u64 = 24;

/// A queue that was found.
#[derive(Clone, Copy)]
pub struct Queue {
    /// The entry.
    pub entry: &'static Msg,
    /// Its index.
    pub index: u32,
    /// The id by which it was found.
    pub id: i32,
}

impl Queue {
    /// Finds a queue by id.
    #[inline]
    pub fn find(c: &Ctx, id: i32) -> Result<Queue, Errno> {
        let (index, _) = dir::lookup(c, Kind::Msg, id)?;
        Ok(Queue {
            entry: c.pool.msg(index).ok_or(Errno::EINVAL)?, // unpaid
            index,
            id,
        })
    }

    /// The same for a fast path. `None` says nothing.
    #[inline(always)]
    pub fn find_fast(c: &Ctx, id: i32, wanted: u32) -> Option<Queue> {
        let index = id as u32 & (MAX_ENTRIES - 1);
        let entry = c.pool.known_msg(index)?; // unpaid
        let granted =
            dir::other_than(&entry.head, id) == 0 && perm::grants_fast(c, &entry.head, wanted);
        granted.then_some(Queue { entry, index, id })
    }

    /// The queue at an index, in whatever state it is.
    pub fn at(c: &Ctx, index: u32) -> Result<Queue, Errno> {
        let entry = c.pool.msg(index).ok_or(Errno::EINVAL)?; // unpaid
        Ok(Queue {
            entry,
            index,
            id: entry.head.id.load(Acquire) as i32,
        })
    }

    /// The ring, if there is one. Read the end before the ring: if the end has not changed, neither has the ring.
    #[inline]
    pub fn ring(&self, c: &Ctx) -> Option<Ring> {
        Ring::at(
            c.pool.mem(),
            self.entry.ring.load(Relaxed),
            self.entry.cells.load(Relaxed),
        )
    }

    /// Receivers that wait.
    pub fn receivers(&self) -> WaitQueue {
        WaitQueue {
            first: &self.entry.first_receiver,
            last: &self.entry.last_receiver,
        }
    }

    /// Senders that wait.
    pub fn senders(&self) -> WaitQueue {
        WaitQueue {
            first: &self.entry.first_sender,
            last: &self.entry.last_sender,
        }
    }

    /// The reference by which processes remember the queue.
    #[inline]
    pub fn reference(&self) -> u32 {
        Kind::Msg.reference(self.index)
    }

    /// Is it still the queue that was found?
    pub fn still(&self) -> bool {
        dir::still(&self.entry.head, self.id)
    }

    /// Is its memory still its own? It may have been removed, while somebody has yet to take what is his from it.
    pub fn is_there(&self) -> bool {
        self.entry.head.id.load(Acquire) == self.id as u32
    }

    /// Where the tail is.
    pub fn tail(&self) -> At {
        end::read(&self.entry.send)
    }

    /// Where the head is.
    pub fn head(&self) -> At {
        end::read(&self.entry.receive)
    }

    /// Does a message of this size fit by the queue's limits, given how much is in it?
    #[inline]
    pub fn fits(&self, len: usize, bytes_in: u32, msgs_in: u32) -> bool {
        let limit = self.entry.qbytes.load(Relaxed);
        (len as u64).saturating_add(bytes_in.into()) <= limit && (msgs_in as u64) < limit
    }

    /// The same, with fresh counts. Call it with both ends frozen.
    pub fn has_space(&self, len: usize) -> bool {
        let (tail, head) = (self.tail(), self.head());
        self.fits(
            len,
            tail.bytes.wrapping_sub(head.bytes),
            tail.msgs.wrapping_sub(head.msgs),
        )
    }

    /// Takes the lock, freezes both ends, and brings what the dead have left in order.
    pub fn lock<'a>(&self, c: &'a Ctx, signals: &SignalsBlocked) -> Result<Slow<'a>, Errno> {
        let log = || Log {
            at: self.entry.log.load(Relaxed),
            entries: LOG_ENTRIES as u32,
        };
        let guard = dir::lock_object(c, signals, &self.entry.lock, log)?;
        end::freeze(&self.entry.send);
        end::freeze(&self.entry.receive);
        let slow = Slow {
            c,
            queue: *self,
            guard,
        };
        // The process that was about to leave the ring died, or found no memory for another.
        done::let_go(self);
        if self.still() {
            name_the_last(c, self);
        }
        if self.entry.retired.load(Relaxed) != 0 {
            retired::collect(&slow, signals)?;
        }
        Ok(slow)
    }
}

/// A queue whose lock is held and whose ends are frozen. Dropping it thaws what nobody's waiting needs frozen.
pub struct Slow<'a> {
    /// The caller, which holds it.
    pub c: &'a Ctx<'a>,
    /// The queue.
    pub queue: Queue,
    /// The lock.
    pub guard: Guard<'a>,
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        if !self.queue.still() || self.queue.ring(self.c).is_none() {
            return;
        }
        let entry = self.queue.entry;
        if entry.first_receiver.load(Relaxed) == 0 {
            end::thaw(&entry.send);
        }
        if entry.first_sender.load(Relaxed) == 0 {
            end::thaw(&entry.receive);
        }
    }
}

/// Writes the names of those who moved the ends last beside their messages, if these are not finished.
pub fn name_the_last(c: &Ctx, queue: &Queue) {
    let (tail, head) = (queue.tail(), queue.head());
    if let Some(ring) = queue.ring(c) {
        name_sender(queue, &ring, tail);
        name_receiver(queue, &ring, head);
    }
}

/// Names the last sender, if its message is not there yet.
#[inline]
pub fn name_sender(queue: &Queue, ring: &Ring, tail: At) {
    // Said beside the tail, so that its mark need not be looked at: that one is in the receiver's cache.
    if tail.step == 0 || queue.entry.send.finished.load(Acquire) as u32 == tail.pos {
        return;
    }
    let pos = tail.pos.wrapping_sub(tail.step.into());
    let word = ring.mark_word(pos);
    let mut old = word.load(Acquire);
    // Somebody who is late may yet name a receiver of the lap before, once or twice. Only who scribbles goes on for ever.
    for _ in 0..ATTEMPTS {
        // A mark of another lap is of an earlier one only as long as the tail stands still. Of a later one, it would be a message's.
        if ring.valid(pos, old).is_some() || has_moved(&queue.entry.send, tail) {
            return;
        }
        let named = Mark {
            state: State::Reserved,
            lap: ring.lap(pos),
            len: tail.step.into(),
            owner: tail.owner,
        };
        // A mark of an earlier lap never comes back, so whoever is late here does nothing.
        match word.compare_exchange(old, named.word(), AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

/// How often a mark may change while its lap is over.
const ATTEMPTS: u32 = 1000;

/// Names the last receiver, if it has not finished.
#[inline]
pub fn name_receiver(queue: &Queue, ring: &Ring, head: At) {
    let pos = head.pos.wrapping_sub(head.step.into());
    // In turn, `done` is at the head, and there is nothing to do.
    if head.step == 0 || done::at(queue) == head.pos {
        return;
    }
    let old = ring.mark_word(pos).load(Acquire);
    let mark = (ring.valid(pos, old)).filter(|m| m.state == State::Ready);
    // If the head has moved, the ring may have become somebody's memory, who writes there what looks like a mark.
    if let Some(mark) = mark.filter(|_| !has_moved(&queue.entry.receive, head)) {
        let named = Mark {
            state: State::Taken,
            owner: head.owner,
            ..mark
        };
        let _ = ring
            .mark_word(pos)
            .compare_exchange(old, named.word(), AcqRel, Relaxed);
    }
}

fn has_moved(end: &MsgEnd, at: At) -> bool {
    end.at.lo.load(Acquire) as u32 != at.pos
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use crate::tests::msg::{queue, receive, send};
    use crate::IPC_NOWAIT;

    #[test]
    fn names_that_come_a_lap_late_harm_no_message() {
        let world = World::new(4 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = queue(c);
        let pass = |text: &[u8]| {
            send(c, id, 1, text).unwrap();
            assert_eq!(receive(c, id, 100, 0, IPC_NOWAIT), Ok((1, text.to_vec())));
        };
        // The first makes the ring.
        pass(b"first");
        pass(b"second");
        let queue = Queue::find(c, id).unwrap();
        let ring = queue.ring(c).unwrap();
        for _ in 0..3 {
            let (tail, head) = (queue.tail(), queue.head());
            assert_eq!((tail.step, head.step), (1, 1));
            for _ in 1..ring.cells() {
                pass(b"between");
            }
            send(c, id, 1, b"where the first one was").unwrap();
            assert_eq!(queue.tail().pos, tail.pos + ring.cells());
            name_sender(&queue, &ring, tail);
            name_receiver(&queue, &ring, head);
            assert_eq!(
                receive(c, id, 100, 0, IPC_NOWAIT),
                Ok((1, b"where the first one was".to_vec()))
            );
        }
    }

    #[test]
    fn a_new_queue_does_not_begin_with_what_another_had_finished() {
        let world = World::new(4 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = queue(c);
        for _ in 0..3 {
            send(c, id, 1, b"x").unwrap();
        }
        let old = Queue::find(c, id).unwrap();
        assert_eq!(old.entry.send.finished.load(Acquire) as u32, old.tail().pos);
        crate::msg::remove(c, id).unwrap();
        let new = Queue::find(c, queue(c)).unwrap();
        assert_eq!(new.index, old.index);
        assert_eq!(new.entry.send.finished.load(Acquire) as u32, new.tail().pos);
        assert_ne!(new.tail().pos, 0, "it begins where the old one did");
    }
}
