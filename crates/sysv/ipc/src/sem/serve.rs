//! The queue of a set: operations that wait are performed by the process that makes them possible
//! (`do_smart_update` in Linux).

use super::perform::{perform, Actor, Outcome};
use super::set::Set;
use super::undo::{self, Gone};
use super::waiter::{alters, count, is_blocked, sop, status_at, take_out, thaw_all, ALTERS};
use crate::waiters::{self, Ticket};
use crate::{Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::DONE;
use vshmem_pool::lock::{Guard, SignalsBlocked};

/// The outcome of a look at a waiter.
enum Look {
    /// The waiter was served.
    Performed,
    /// The waiter left the queue with an error.
    Failed,
    /// Its semaphores were given the adjustments of a dead process. The waiter is to be looked at again, and
    /// others too.
    Repaid,
}

/// Performs what waiters wait for, as far as it is possible now: those that wait for zero first, then in
/// order.
pub fn serve(c: &Ctx, set: &Set, signals: &SignalsBlocked, guard: &Guard) -> Result<(), Errno> {
    if !set.has_waiters() {
        return Ok(());
    }
    // A waiter that is served leaves the queue; where somebody scribbles, the budget ends it.
    loop {
        serve_for_zero(c, set, signals, guard)?;
        if !serve_one_that_alters(c, set, signals, guard)? {
            return Ok(());
        }
    }
}

/// Serves waiters for zero, in one walk, since they change nothing.
fn serve_for_zero(c: &Ctx, set: &Set, signals: &SignalsBlocked, guard: &Guard) -> Result<(), Errno> {
    let waiting = |t: &Ticket| !alters(t.waiter);
    loop {
        let mut repaid = false;
        for ticket in waiters::each(c, set.queue()).filter(waiting) {
            let look = serve_one(c, set, signals, guard, ticket)?;
            repaid = matches!(look, Some(Look::Repaid));
            if repaid {
                break;
            }
        }
        if !repaid {
            return Ok(());
        }
    }
}

/// Serves the first waiter whose operations can be done and change something, or applies an adjustment of a
/// dead process in its way. Returns whether there was one.
fn serve_one_that_alters(c: &Ctx, set: &Set, signals: &SignalsBlocked, guard: &Guard) -> Result<bool, Errno> {
    for ticket in waiters::each(c, set.queue()).filter(|t| alters(t.waiter)) {
        let look = serve_one(c, set, signals, guard, ticket)?;
        if matches!(look, Some(Look::Performed | Look::Repaid)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Serves one waiter. `None`: it has to go on waiting.
fn serve_one(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    ticket: Ticket,
) -> Result<Option<Look>, Errno> {
    let w = ticket.waiter;
    let Some(who) = ProcId::of_word(w.owner.load(Acquire)) else {
        take_out(c, set, guard, ticket, Err(Errno::EIDRM))?;
        return Ok(Some(Look::Failed));
    };
    let n = count(c, w);
    if n == 1 && is_blocked(c, set, sop(c, w, 0)) {
        return Ok(None);
    }
    if let Some(dead) = undo::dead_beside(c, set, n, |i| sop(c, w, i), Gone::Lately) {
        if undo::take_back(c, set, guard, dead)? {
            return Ok(Some(Look::Repaid));
        }
    }
    let actor = Actor { who, pid: w.semop().pid.load(Relaxed) };
    undo::ensure_record_for(c, set, signals, who, n, |i| sop(c, w, i))?;
    let mut txn = guard.txn();
    match perform(c, set, &mut txn, actor, n, |i| sop(c, w, i))? {
        Outcome::Blocked(i) => {
            let blocked = i as u64 | w.semop().blocked.load(Relaxed) & ALTERS;
            if blocked != w.semop().blocked.load(Relaxed) {
                // Another semaphore is in the way now.
                w.semop().blocked.store(blocked, Relaxed);
            }
            return Ok(None);
        }
        _ if waiters::is_dead(c, w) => {
            take_out(c, set, guard, ticket, Err(Errno::EINTR))?;
            return Ok(Some(Look::Failed));
        }
        Outcome::Possible => {
            txn.set(status_at(c, w), waiters::status_word(w, DONE))?;
        }
        Outcome::Failed(errno) => {
            take_out(c, set, guard, ticket, Err(errno))?;
            return Ok(Some(Look::Failed));
        }
    }
    txn.put(&set.entry.otime, c.kernel.now() as u64)?;
    waiters::dequeue(c, &mut txn, set.queue(), ticket)?;
    txn.commit()?;
    // Not before: it might be woken at once, and would not find that it was served.
    guard.wake_later(&w.status);
    thaw_all(c, set, n, |i| sop(c, w, i).num as u32);
    Ok(Some(Look::Performed))
}
