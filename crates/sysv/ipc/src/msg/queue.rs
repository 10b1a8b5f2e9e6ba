//! A queue that was found.

use super::end::{self, At};
use super::ring::Ring;
use crate::waiters::Queue as WaitQueue;
use crate::{directory as dir, Ctx, Errno};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Kind, Msg};
use vshmem_pool::lock::Guard;

/// Entries of a queue's redo log.
pub const LOG_ENTRIES: u64 = 24; // as docs/layout.md has it

/// A queue that was found.
#[derive(Clone, Copy)]
pub struct Queue {
    /// The entry.
    pub entry: &'static Msg,
    /// The entry's index.
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

    /// The queue at an index, in whatever state it is.
    pub fn at(c: &Ctx, index: u32) -> Result<Queue, Errno> {
        let entry = c.pool.msg(index).ok_or(Errno::EINVAL)?; // unpaid
        Ok(Queue { entry, index, id: entry.head.id.load(Acquire) as i32 })
    }

    /// The ring, if there is one. Read the end before the ring: if the end has not changed, neither has the
    /// ring.
    #[inline]
    pub fn ring(&self, c: &Ctx) -> Option<Ring> {
        Ring::at(c.pool.mem(), self.entry.ring.load(Relaxed), self.entry.cells.load(Relaxed))
    }

    /// Receivers that wait.
    pub fn receivers(&self) -> WaitQueue {
        WaitQueue { first: &self.entry.first_receiver, last: &self.entry.last_receiver }
    }

    /// Senders that wait.
    pub fn senders(&self) -> WaitQueue {
        WaitQueue { first: &self.entry.first_sender, last: &self.entry.last_sender }
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

    /// Is its memory still its own? It may have been removed, while somebody has yet to take what is his from
    /// it.
    pub fn is_there(&self) -> bool {
        self.entry.head.id.load(Acquire) == self.id as u32
    }

    /// The sending end.
    pub fn tail(&self) -> At {
        end::read(&self.entry.send)
    }

    /// The receiving end.
    pub fn head(&self) -> At {
        end::read(&self.entry.receive)
    }

    /// Does a message of this size fit by the queue's limits, given how much is in it?
    #[inline]
    pub fn fits(&self, len: usize, bytes_in: u32, msgs_in: u32) -> bool {
        let limit = self.entry.qbytes.load(Relaxed);
        (len as u64).saturating_add(bytes_in.into()) <= limit && (msgs_in as u64) < limit
    }

    /// Do the limits admit another message, with the tail there? Counts of received messages are remembered
    /// and only looked up when that matters: they only grow, so old ones err on the safe side.
    #[inline]
    pub fn admits(&self, tail: At, len: usize) -> bool {
        if self.admits_as_remembered(tail, len) {
            return true;
        }
        let seen = &self.entry.send.seen;
        let remembered = seen.load(Relaxed);
        let counts = end::read(&self.entry.receive).counts();
        // Not stored blindly: no sender that slept for long may bring back a count from before it wrapped
        // around.
        let _ = seen.compare_exchange(remembered, counts, Relaxed, Relaxed);
        self.admits_beside(counts, tail, len)
    }

    /// Do the limits admit another message by the counts that are remembered?
    #[inline(always)]
    pub fn admits_as_remembered(&self, tail: At, len: usize) -> bool {
        self.admits_beside(self.entry.send.seen.load(Relaxed), tail, len)
    }

    #[inline(always)]
    fn admits_beside(&self, received: u64, tail: At, len: usize) -> bool {
        let (bytes, msgs) = (received as u32, (received >> 32) as u32);
        self.fits(len, tail.bytes.wrapping_sub(bytes), tail.msgs.wrapping_sub(msgs))
    }

    /// Does a message of this size fit now? Call it with both ends frozen.
    pub fn has_space(&self, len: usize) -> bool {
        let (tail, head) = (self.tail(), self.head());
        self.fits(len, tail.bytes.wrapping_sub(head.bytes), tail.msgs.wrapping_sub(head.msgs))
    }
}

/// A queue whose lock is held and whose ends are frozen. Dropping it thaws what nobody's waiting needs
/// frozen.
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
