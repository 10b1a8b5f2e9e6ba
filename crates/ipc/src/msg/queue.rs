//! A queue that was found.

use super::cell::{Mark, Ring, State};
use super::end::{self, At};
use crate::waiters::Queue as WaitQueue;
use crate::{directory as dir, Ctx, Errno};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use vshmem_pool::layout::{Kind, Msg};
use vshmem_pool::lock::{Guard, Quiet};
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
            entry: c.pool.msg(index).ok_or(Errno::EINVAL)?,
            index,
            id,
        })
    }

    /// The queue at an index, in whatever state it is.
    pub fn at(c: &Ctx, index: u32) -> Result<Queue, Errno> {
        let entry = c.pool.msg(index).ok_or(Errno::EINVAL)?;
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
    pub fn has_room(&self, len: usize) -> bool {
        let (tail, head) = (self.tail(), self.head());
        self.fits(
            len,
            tail.bytes.wrapping_sub(head.bytes),
            tail.msgs.wrapping_sub(head.msgs),
        )
    }

    /// Takes the lock, freezes both ends, and brings what the dead have left in order.
    pub fn lock<'a>(&self, c: &'a Ctx, quiet: &Quiet) -> Result<Slow<'a>, Errno> {
        let log = || Log {
            at: self.entry.log.load(Relaxed),
            entries: LOG_ENTRIES as u32,
        };
        let guard = Guard::lock(c, quiet, &self.entry.lock, log)?;
        if guard.inherited() {
            drop(dir::lock(c, quiet)?);
        }
        end::freeze(&self.entry.send);
        end::freeze(&self.entry.receive);
        let slow = Slow {
            c,
            queue: *self,
            guard,
        };
        if self.still() {
            name_the_last(c, self);
        }
        Ok(slow)
    }
}

/// A queue whose lock is held and whose ends are frozen. Dropping it thaws what nobody's waiting needs frozen.
pub struct Slow<'a> {
    /// Who holds it.
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

/// Writes the names of those who moved the ends last into their cells, if these are not finished.
pub fn name_the_last(c: &Ctx, queue: &Queue) {
    let (tail, head) = (queue.tail(), queue.head());
    if let Some(ring) = queue.ring(c) {
        name_sender(&ring, tail);
        name_receiver(&ring, head);
    }
}

/// Names the last sender in its cell, if that is not finished.
#[inline]
pub fn name_sender(ring: &Ring, tail: At) {
    let pos = tail.pos.wrapping_sub(tail.step.into());
    if tail.step == 0 || !ring.is_free(pos) {
        return;
    }
    let lap = ring.lap(pos);
    let named = Mark {
        state: State::Reserved,
        lap,
        len: tail.step.into(),
        owner: tail.owner,
    };
    let _ = ring
        .state(pos)
        .compare_exchange(Mark::free(lap).word(), named.word(), AcqRel, Relaxed);
}

/// Names the last receiver in its cell, if that is not finished.
#[inline]
pub fn name_receiver(ring: &Ring, head: At) {
    let pos = head.pos.wrapping_sub(head.step.into());
    if head.step == 0 {
        return;
    }
    let old = ring.state(pos).load(Acquire);
    match Mark::of(old) {
        Some(mark) if mark.state == State::Ready && mark.lap == ring.lap(pos) => {
            let named = Mark {
                state: State::Taken,
                owner: head.owner,
                ..mark
            };
            let _ = ring
                .state(pos)
                .compare_exchange(old, named.word(), AcqRel, Relaxed);
        }
        _ => {}
    }
}
