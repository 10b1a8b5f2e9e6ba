//! Waits that end without being served.

use super::perform::{perform, Actor, Outcome};
use super::serve::serve;
use super::set::Set;
use super::waiter::{count, finish, free_list, sop, take_out, thaw_all};
use super::{remove, Sembuf};
use crate::waiters::{self, Ticket};
use crate::{Ctx, Errno};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::Waiter;
use vshmem_pool::lock::{Guard, SignalsBlocked};

/// The caller stops waiting, unless it was served meanwhile.
pub fn withdraw(c: &Ctx, set: &Set, ticket: Ticket) -> Result<(), Errno> {
    let signals = SignalsBlocked::open(c.kernel);
    let guard = set.lock(c, &signals)?;
    if waiters::outcome(ticket.waiter).is_some() {
        return Ok(());
    }
    if !set.still() {
        // Its remover died on the way: finishing that wakes everybody, the caller too.
        drop(guard);
        return remove::finish_removal(c, &signals, set.index, set.id);
    }
    let w = ticket.waiter;
    let mut txn = guard.txn();
    waiters::dequeue(c, &mut txn, set.queue(), ticket)?;
    txn.commit()?;
    thaw_all(c, set, count(c, w), |i| sop(c, w, i).num as u32);
    // Others may have waited behind it only for its sake (an order of operations).
    serve(c, set, &signals, &guard)
}

/// Ends the wait of a thread that a signal handler has interrupted ([`crate::interrupt`]).
pub(crate) fn interrupt(c: &Ctx, index: u32, ticket: Ticket, is_over: bool) -> bool {
    let signals = SignalsBlocked::brief(c.kernel);
    let Ok(set) = Set::at(c, index) else {
        return true;
    };
    let Ok(guard) = set.lock(c, &signals) else {
        return false;
    };
    if waiters::find(c, set.queue(), |t| t.index == ticket.index).is_some() {
        let _ = take_out(c, &set, &guard, ticket, Err(Errno::EINTR));
        let _ = serve(c, &set, &signals, &guard);
    } else if is_over && waiters::outcome(ticket.waiter) == Some(Ok(())) {
        // It was served, and is not there to know it.
        let _ = return_all(c, &set, &signals, &guard, ticket.waiter);
    }
    drop(guard);
    if is_over {
        finish(c, ticket);
    }
    true
}

/// Undoes the operations of a waiter of the caller's that was served, if that is possible, the last one
/// first.
fn return_all(c: &Ctx, set: &Set, signals: &SignalsBlocked, guard: &Guard, w: &Waiter) -> Result<(), Errno> {
    let n = count(c, w);
    // Where the operations stand in a block of their own, nothing says that the set is still the one that
    // they were for.
    let is_it = n <= w.ops.len() && w.semop().at.load(Relaxed) == set.id as u64 && set.still();
    let changes = |i: &usize| sop(c, w, *i).op != 0;
    let inverse = |i: usize| {
        let given = (0..n).rev().filter(changes).nth(i);
        let given = sop(c, w, given.unwrap_or_default());
        let op = given.op.saturating_neg();
        Sembuf { op, ..given }
    };
    let m = (0..n).filter(changes).count();
    if !is_it || m == 0 {
        return Ok(());
    }
    for i in 0..m {
        set.freeze(c, inverse(i).num.into())?;
    }
    let me = Actor { who: c.me, pid: w.semop().pid.load(Relaxed) };
    let mut txn = guard.txn();
    if let Outcome::Possible = perform(c, set, &mut txn, me, m, inverse)? {
        txn.commit()?;
    }
    let served = serve(c, set, signals, guard);
    thaw_all(c, set, m, |i| inverse(i).num.into());
    served
}

/// Takes a dead process's waiter out of its queue, and gives its list back. False: a lock was not to be had.
pub(crate) fn drop_waiter(c: &Ctx, signals: &SignalsBlocked, index: u32, ticket: Ticket) -> bool {
    let Ok(set) = Set::at(c, index) else {
        return true;
    };
    let Ok(guard) = set.lock(c, signals) else {
        return false;
    };
    let queued = waiters::find(c, set.queue(), |t| t.index == ticket.index).is_some();
    if queued {
        let _ = take_out(c, &set, &guard, ticket, Err(Errno::EINTR));
    }
    drop(guard);
    free_list(c, signals, ticket.waiter).is_ok() || !signals.has_failed()
}
