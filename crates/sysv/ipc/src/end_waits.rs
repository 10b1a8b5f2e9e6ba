//! Ending waits from outside: that of a thread which a signal handler has interrupted, and those of the dead.

use crate::waiters::{give_back, Ticket};
use crate::{msg, sem, Ctx, ProcId};
use vshmem_pool::atomic::AtomicU32;
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Kind, Waiter};
use vshmem_pool::lock::SignalsBlocked;

/// Ends the wait of the calling thread on the word of a record, in whose middle it is: a signal handler has
/// interrupted it, and calls now. As in the kernel, who runs a handler waits no more. If the wait `is_over`,
/// the handler has jumped out of it, and nobody will look at the record again. False if the word is not of
/// this pool, or the lock was not to be had: then it is to be tried again.
pub fn interrupt(c: &Ctx, word: *const AtomicU32, is_over: bool) -> bool {
    let (table, count) = c.pool.geometry().waiters;
    let base = c.pool.mem().base() as usize;
    let Some(at) = (word as usize).checked_sub(base).filter(|at| *at < c.pool.mem().len()) else {
        return false;
    };
    let index = (at as u64).wrapping_sub(table) / size_of::<Waiter>() as u64;
    let found = u32::try_from(index).ok().filter(|i| *i < count);
    let found = found.and_then(|i| c.waiter(i).map(|waiter| Ticket { index: i, waiter }));
    let Some(ticket) = found.filter(|t| core::ptr::eq(&t.waiter.status, word)) else {
        return true;
    };
    if ticket.waiter.owner.load(Acquire) != c.me.word() {
        return true;
    }
    match Kind::of_reference(ticket.waiter.object.load(Relaxed)) {
        Some((Kind::Sem, set)) => sem::interrupt(c, set, ticket, is_over),
        Some((Kind::Msg, queue)) => msg::interrupt(c, queue, ticket, is_over),
        _ => true,
    }
}

/// Frees the records of a dead process, or of the caller's own threads when it exits.
pub fn reap_process(c: &Ctx, signals: &SignalsBlocked, dead: ProcId) {
    if dead == c.me {
        return;
    }
    let high = c.pool.root().waiter_high.load(Relaxed).min(c.pool.geometry().waiters.1);
    for index in 0..high {
        let Some(waiter) = c.waiter(index) else {
            return;
        };
        if waiter.owner.load(Relaxed) != dead.word() {
            continue;
        }
        let ticket = Ticket { index, waiter };
        let dropped = match Kind::of_reference(waiter.object.load(Relaxed)) {
            Some((Kind::Sem, set)) => sem::drop_waiter(c, signals, set, ticket),
            Some((Kind::Msg, queue)) => msg::drop_waiter(c, signals, queue, ticket),
            _ => true,
        };
        // What stands in a queue yet must not be taken by others. The dead process keeps its slot then, and
        // the next one to clean up tries again.
        if dropped {
            give_back(ticket);
        }
    }
}
