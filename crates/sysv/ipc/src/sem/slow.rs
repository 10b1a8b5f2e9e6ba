//! `semop` under the set's lock: several semaphores at once, waiting, contended adjustments.

use super::perform::{perform, Actor, Outcome};
use super::serve::serve;
use super::set::{my_pid, Beside, Set, SLOW};
use super::undo::{self, Gone};
use super::waiter::{self, blocks, is_blocked, thaw_all};
use super::{cancel, contend, remove, repay, Sembuf};
use crate::waiters::{self, Ticket};
use crate::{directory as dir, Ctx, Errno, Waited};
use core::time::Duration;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::lock::{Guard, SignalsBlocked};
use vshmem_pool::tuning::{FIRST_SEMOP_SLEEP, LONGEST_SLEEP};

/// The slow path of `semop`.
#[cold]
pub fn op(c: &Ctx, set: &Set, sops: &[Sembuf], timeout: Option<Duration>) -> Result<(), Errno> {
    op_or_spin(c, set, sops, timeout, 0)
}

/// `semop` of several semaphores, for which nobody has spun yet.
#[cold]
pub fn op_of_several(c: &Ctx, set: &Set, sops: &[Sembuf], timeout: Option<Duration>) -> Result<(), Errno> {
    let rounds = if timeout == Some(Duration::ZERO) { 0 } else { c.kernel.spin_rounds() };
    op_or_spin(c, set, sops, timeout, rounds)
}

/// `semop` by a caller that spins for so many rounds before it stands in the queue.
fn op_or_spin(
    c: &Ctx,
    set: &Set,
    sops: &[Sembuf],
    timeout: Option<Duration>,
    mut rounds: u32,
) -> Result<(), Errno> {
    let deadline = timeout.map(|t| c.kernel.monotonic().saturating_add(t.as_nanos().min(1 << 62) as u64));
    loop {
        let begun = {
            let signals = SignalsBlocked::attentive(c.kernel);
            signals.give_up_at(deadline);
            begin(c, set, &signals, sops, timeout, rounds > 0)?
        };
        match begun {
            Begun::Done => return Ok(()),
            Begun::Waiting(ticket) => return wait(c, set, ticket, deadline),
            Begun::Blocked(i) => {
                rounds = spin_while_blocked(c, set, sops[i], rounds)?;
                c.kernel.spun(rounds > 0);
            }
        }
    }
}

/// Spins while an operation is blocked; returns the rounds that are left.
fn spin_while_blocked(c: &Ctx, set: &Set, sop: Sembuf, rounds: u32) -> Result<u32, Errno> {
    let cell = set.cell(c, sop.num.into())?;
    for round in 1..=rounds {
        if !blocks(cell.lo.load(Relaxed), sop) {
            return Ok(rounds - round);
        }
        c.kernel.spinning();
    }
    Ok(0)
}

/// The outcome of a call under the lock.
enum Begun {
    /// The operations were performed.
    Done,
    /// The caller stands in the queue.
    Waiting(Ticket),
    /// This operation (its index) is in the way, and the caller is to spin.
    Blocked(usize),
}

/// Performs the operations now, or registers the caller as a waiter unless it `spins`.
fn begin(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    sops: &[Sembuf],
    timeout: Option<Duration>,
    spins: bool,
) -> Result<Begun, Errno> {
    let guard = set.lock(c, signals)?;
    if !set.still() {
        // Found a moment ago, so it was removed in between.
        return Err(Errno::EIDRM);
    }
    let result = begin_locked(c, set, signals, &guard, sops, timeout, spins);
    thaw_all(c, set, sops.len(), |i| sops[i].num as u32);
    result
}

fn begin_locked(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    sops: &[Sembuf],
    timeout: Option<Duration>,
    spins: bool,
) -> Result<Begun, Errno> {
    let me = Actor { who: c.me, pid: my_pid(c) };
    // Frozen first: what is beside the semaphores stays there while room is made for what does not fit.
    for s in sops {
        set.freeze(c, s.num.into())?;
    }
    reap(c, set, signals, guard, sops, false)?;
    let mut outcome = try_now(c, set, signals, guard, sops, me)?;
    // Before it gives up, it must be certain that no dead process is in the way. A caller that waits looks
    // again soon: in a crowd, whose processes all have records, each would ask for all others each time.
    let waits = matches!(outcome, Outcome::Blocked(_)) && timeout.is_none_or(|t| t > FIRST_SEMOP_SLEEP);
    if !matches!(outcome, Outcome::Possible) && !waits && reap(c, set, signals, guard, sops, true)? {
        outcome = try_now(c, set, signals, guard, sops, me)?;
    }
    let blocked = match outcome {
        Outcome::Possible => {
            if sops.iter().any(|s| s.op != 0) && set.has_waiters() {
                // It is done, whatever comes of that; waiters look by themselves, too.
                let _ = serve(c, set, signals, guard);
                contend::joined(set, sops[0].num);
            }
            undo::sweep(c, set, signals);
            return Ok(Begun::Done);
        }
        Outcome::Failed(errno) => {
            undo::sweep(c, set, signals);
            return Err(errno);
        }
        Outcome::Blocked(i) => i,
    };
    if timeout == Some(Duration::ZERO) {
        return Err(Errno::EAGAIN);
    }
    if spins {
        return Ok(Begun::Blocked(blocked));
    }
    let ticket = waiters::take(c, set.reference())?;
    let registered = waiter::register(c, set, signals, guard, ticket, sops, blocked, me.pid);
    if let Err(errno) = registered {
        waiters::give_back(ticket);
        return Err(errno);
    }
    Ok(Begun::Waiting(ticket))
}

/// Performs the caller's operations, if that is possible now.
fn try_now(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    sops: &[Sembuf],
    me: Actor,
) -> Result<Outcome, Errno> {
    // As most of those who come here: there is nothing to make room for yet.
    if is_blocked(c, set, sops[0]) {
        return Ok(Outcome::Blocked(0));
    }
    undo::ensure_record(c, set, signals, sops)?;
    let mut txn = guard.txn();
    let outcome = perform(c, set, &mut txn, me, sops.len(), |i| sops[i])?;
    if let Outcome::Possible = outcome {
        txn.put(&set.entry.otime, c.kernel.now() as u64)?;
        if sops.iter().any(|s| s.undo() && s.op != 0) {
            c.pool.touch(c.me, set.reference());
        }
        txn.commit()?;
    }
    Ok(outcome)
}

/// Applies the adjustments of dead processes to the semaphores that the operations name: those beside them,
/// and those in records. Unless it has to be `certain`, it is enough that their owner was alive a moment ago,
/// and records are looked at in turn, one at a time. Returns whether there were any.
fn reap(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    sops: &[Sembuf],
    certain: bool,
) -> Result<bool, Errno> {
    let gone = if certain { Gone::Now } else { Gone::Lately };
    let mut any = false;
    for s in sops {
        let cell = set.cell(c, s.num.into())?;
        if let Some(b) = Beside::of(cell.hi.load(Relaxed)) {
            if gone.is(c, b.owner) {
                repay::repay(c, set, signals, guard, b.owner)?;
                any = true;
            }
        }
    }
    let recorded = match certain {
        true => repay::repay_recorded(c, set, signals, guard, gone)?,
        false => repay::repay_next(c, set, signals, guard, gone)?,
    };
    let any = recorded | any;
    if any {
        undo::sweep(c, set, signals);
        // Applying lets semaphores go that nobody waits for.
        for s in sops {
            set.freeze(c, s.num.into())?;
        }
    }
    Ok(any)
}

/// Sleeps until the operations were performed by somebody else, failed, or time is up.
fn wait(c: &Ctx, set: &Set, ticket: Ticket, deadline: Option<u64>) -> Result<(), Errno> {
    let mut look = FIRST_SEMOP_SLEEP;
    waiters::stand(c, ticket);
    loop {
        if c.kernel.is_child_of(c.pid) {
            // The record is its parent's.
            return Err(Errno::EINTR);
        }
        if let Some(result) = waiters::outcome(ticket.waiter) {
            await_applied(c, set);
            c.kernel.stands(None);
            waiter::finish(c, ticket);
            return sound(result);
        }
        let left = deadline.map(|d| Duration::from_nanos(d.saturating_sub(c.kernel.monotonic())));
        let nap = left.map_or(look, |l| l.min(look));
        let waited = if nap.is_zero() { Waited::TimedOut } else { waiters::sleep(c, ticket.waiter, nap) };
        let give_up = match waited {
            Waited::Woken => None,
            Waited::Interrupted => Some(Errno::EINTR),
            Waited::Forked => return Err(Errno::EINTR),
            Waited::TimedOut if left.is_some_and(|l| l <= nap) => Some(Errno::EAGAIN),
            Waited::TimedOut => {
                look = (look * 8).min(LONGEST_SLEEP);
                look_around(c, set, deadline)
            }
        };
        if let Some(errno) = give_up {
            cancel::withdraw(c, set, ticket)?;
            let result = waiters::outcome(ticket.waiter);
            c.kernel.stands(None);
            waiter::finish(c, ticket);
            return sound(result.unwrap_or(Err(errno)));
        }
    }
}

/// The result of a wait: no process that serves a set has its waiters try again.
fn sound(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(waiters::RETRY) => Err(Errno::EIDRM),
        result => result,
    }
}

/// Waits until the transaction that served the caller is wholly done ([`waiters::is_applied`]).
fn await_applied(c: &Ctx, set: &Set) {
    if !waiters::is_applied(c, &set.entry.lock, &set.entry.log) {
        let signals = SignalsBlocked::open(c.kernel);
        drop(set.lock(c, &signals));
    }
}

/// A sleeper's look around: adjustments of dead processes are applied now. Returns why the wait ends, if it
/// does: a signal came meanwhile that has a handler, which runs as soon as signals are let through, as in any
/// other wait; or the set is not there, though nobody has told its waiters, for the pool was taken away just
/// before the caller became one.
fn look_around(c: &Ctx, set: &Set, deadline: Option<u64>) -> Option<Errno> {
    let signals = SignalsBlocked::open(c.kernel);
    signals.give_up_at(deadline);
    if let Ok(guard) = set.lock(c, &signals) {
        if dir::is_dying(&set.entry.head) {
            drop(guard);
            let _ = remove::finish_removal(c, &signals, set.index, set.id);
        } else if set.still() {
            let _ = repay::repay_all(c, set, &signals, &guard);
            let _ = serve(c, set, &signals, &guard);
        } else {
            return Some(Errno::EIDRM);
        }
    }
    signals.handler_waits().then_some(Errno::EINTR)
}

/// Is a semaphore kept from fast paths?
pub fn is_slow(lo: u64) -> bool {
    lo & SLOW != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sem;
    use crate::testing::World;
    use crate::tests::sem::{op as sop, set_of, values};
    use std::thread;

    #[test]
    fn several_semaphores_are_spun_for_before_the_caller_stands_in_the_queue() {
        let world = World::new(1 << 20);
        let (process, other) = (world.process(), world.process());
        let c = &process.ctx();
        let id = set_of(c, &[1, 0, 0]);
        let set = Set::at(c, c.pool.ids().index(id)).unwrap();
        let take = [sop(0, -1), sop(1, -1), sop(2, -1)];
        let gives = other.start(move |giver| {
            for num in [1u16, 2] {
                thread::sleep(Duration::from_millis(5));
                assert_eq!(sem::getncnt(giver, id, num.into()), Ok(0), "it stands nowhere");
                sem::op(giver, id, &[sop(num, 1)], None).unwrap();
            }
        });
        op_or_spin(c, &set, &take, None, 1 << 30).unwrap();
        gives.result();
        assert_eq!(values(c, id), [0, 0, 0]);
        let at_once = Some(Duration::ZERO);
        assert_eq!(op_or_spin(c, &set, &take, at_once, 10), Err(Errno::EAGAIN));
    }
}
