//! Serving a waiter before it is known whether it lives.
//!
//! To ask whether a waiter lives takes a microsecond, between the V and the wake-up that it leads to. The wake-up says the same: whom
//! it wakes, lives. So the commonest waiter, with one P and no `SEM_UNDO`, is served first by a single V, and its record says that it
//! was served on trust. If then nobody was woken and its process is dead, what it was given is put back before the V returns.
//!
//! # Why it is correct
//! * *A dead waiter takes nothing*: what the V promises holds when it returns. Until then, others may find less than that, but never less
//!   than before the V, which has not happened wholly for them yet: no more is given on trust than the V gives.
//! * *Put back once at the most*: under the set's lock, in one transaction with the record's status. A record that its owner has
//!   given back, or that belongs to somebody else by now, does not say that it was served on trust by this set.
//! * *Who serves dies* before it has found out: then whoever reaps the waiter puts back what it was given. If the waiter lived when
//!   it was served, it never learnt of it and the V did not return either, so that waiter may have died first.
//! * *A waiter that lived* is trusted no longer, but known: it keeps what it was given, even if it dies before it returns.

use super::serve::{self, serve};
use super::set::{my_pid, value, with_value, Set};
use super::slow::thaw_all;
use super::{Sembuf, SEMVMX};
use crate::waiters::{self, Ticket};
use crate::{Ctx, Errno};
use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use vshmem_pool::layout::{Waiter, DONE, ON_TRUST};
use vshmem_pool::lock::{Guard, SignalsBlocked};

/// The bits of a status that name the call which served on trust.
const NAME: u32 = 0x3fff << 16;

/// Calls of this process that might have.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Most waiters that one call serves on trust.
const MOST: usize = 4;

/// Waiters that were served on trust, to be woken when the lock is free.
pub struct Trust {
    taken_on: [Cell<Option<Ticket>>; MOST],
    status: u32,
    num: u16,
    left: Cell<i16>,
}

impl Trust {
    /// Nobody yet. Something can be given on trust if the operations are a single V.
    pub fn new(c: &Ctx, sops: &[Sembuf]) -> Trust {
        let call = CALLS.fetch_add(1, Relaxed).wrapping_add(c.me.slot << 7);
        let v = sops.first().filter(|_| sops.len() == 1);
        Trust {
            taken_on: [const { Cell::new(None) }; MOST],
            status: DONE | ON_TRUST | call << 16 & NAME,
            num: v.map_or(0, |s| s.num),
            left: Cell::new(v.map_or(0, |s| s.op)),
        }
    }

    /// What the records of waiters that were taken on say.
    pub fn status(&self) -> u32 {
        self.status
    }

    /// Takes a waiter on, if it is of the kind that can be served on trust.
    pub fn take_on(&self, c: &Ctx, ticket: Ticket) -> bool {
        let free = self.taken_on.iter().find(|slot| slot.get().is_none());
        let p = only_takes(c, ticket.waiter).filter(|p| p.num == self.num);
        let left = p.and_then(|p| self.left.get().checked_add(p.op));
        match (free, left.filter(|left| *left >= 0)) {
            (Some(slot), Some(left)) => {
                slot.set(Some(ticket));
                self.left.set(left);
                true
            }
            _ => false,
        }
    }

    /// Wakes them, and puts back what the dead were given. The lock must be free.
    pub fn wake(&self, c: &Ctx, set: &Set, signals: &SignalsBlocked) {
        for ticket in self.taken_on.iter().map_while(Cell::take) {
            let status = &ticket.waiter.status;
            if c.kernel.wake(status, 1) == 0 && self.is_lost(c, ticket.waiter) {
                // Where that fails, it is left to whoever reaps the waiter: the V itself is done.
                let _ = set
                    .lock(c, signals)
                    .and_then(|guard| put_back(c, set, signals, &guard, ticket, self.status));
            } else {
                // Its name is in it: the record may wait anew by now, and be served by another call.
                let _ = status.compare_exchange(self.status, DONE, AcqRel, Relaxed);
            }
        }
    }

    /// Was the waiter dead when it was served? What was said of it on trust is looked at last: until it is dead, it may give its record
    /// back.
    fn is_lost(&self, c: &Ctx, w: &Waiter) -> bool {
        waiters::is_dead(c, w) && w.status.load(Acquire) == self.status
    }
}

/// The operation of a waiter that has only one, a P that nothing is to undo.
fn only_takes(c: &Ctx, w: &Waiter) -> Option<Sembuf> {
    let sop = serve::sop(c, w, 0);
    (serve::count(c, w) == 1 && sop.is_plain() && sop.op < 0).then_some(sop)
}

/// Puts back what a dead process's waiter was given on trust, if that is what its record says with the status `served`.
pub fn put_back(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    ticket: Ticket,
    served: u32,
) -> Result<(), Errno> {
    let w = ticket.waiter;
    let is_ours = w.status.load(Acquire) == served
        && served & (DONE | ON_TRUST) == DONE | ON_TRUST
        && w.object.load(Relaxed) == set.reference()
        && w.semop().at.load(Relaxed) == set.id as u64
        && set.still();
    let Some(sop) = only_takes(c, w).filter(|_| is_ours) else {
        return Ok(());
    };
    let num = u32::from(sop.num);
    set.freeze(c, num)?;
    let mut txn = guard.txn();
    let lo = txn.get(set.lo(num)).ok_or(Errno::EINVAL)?;
    let new = (value(lo) - i32::from(sop.op)).min(SEMVMX);
    // A process that acted after the dead one remains the last that did.
    let last = lo >> 32;
    let pid = if last == w.semop().pid.load(Relaxed) & u64::from(u32::MAX) {
        my_pid(c)
    } else {
        last
    };
    txn.set(set.lo(num), with_value(lo, new, pid))?;
    let status = DONE | Errno::EINTR.0 as u32;
    txn.set(serve::status_at(c, w), waiters::status_word(w, status))?;
    txn.commit()?;
    let served = serve(c, set, signals, guard);
    thaw_all(c, set, 1, |_| num);
    served
}
