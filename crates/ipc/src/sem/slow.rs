//! `semop` under the set's lock: several semaphores at once, waiting, contended adjustments.

use super::serve::{self, serve};
use super::set::{my_pid, value, with_value, Beside, Set, SLOW};
use super::trust::Trust;
use super::{undo, Sembuf, SEMVMX};
use crate::waiters::{self, Ticket};
use crate::{directory as dir, Ctx, Errno, ProcId, Waited};
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use vshmem_pool::lock::{Guard, SignalsBlocked};
use vshmem_pool::log::Txn;

/// Sleepers look whether somebody they wait for is dead, at first after this time (no round number, nor are its multiples: a program's
/// alarm that goes off at the same moment as the sleep's time is up would not be seen to have interrupted it),
const FIRST_LOOK: Duration = Duration::from_micros(9_370);
/// later less and less often, down to this.
const LAST_LOOK: Duration = Duration::from_micros(243_170);

/// Whose operations are performed.
#[derive(Clone, Copy)]
pub struct Actor {
    /// The process.
    pub who: ProcId,
    /// Its pid word.
    pub pid: u64,
}

/// What became of operations.
pub enum Outcome {
    /// They can be performed; the transaction holds the changes.
    Possible,
    /// This one (its index) is in the way.
    Blocked(usize),
    /// They never can.
    Failed(Errno),
}

/// Performs operations in a transaction, all or nothing: unless the outcome is `Possible`, drop the transaction.
pub fn perform(
    c: &Ctx,
    set: &Set,
    txn: &mut Txn,
    actor: Actor,
    n: usize,
    sop: impl Fn(usize) -> Sembuf,
) -> Result<Outcome, Errno> {
    for i in 0..n {
        let s = sop(i);
        let num = s.num as u32;
        if num >= set.nsems {
            return Ok(Outcome::Failed(Errno::EFBIG));
        }
        set.freeze(c, num)?;
        let at = set.lo(num);
        let lo = txn.get(at).ok_or(Errno::EINVAL)?;
        let (old, op) = (value(lo), s.op as i32);
        if (op == 0 && old != 0) || old + op < 0 {
            return Ok(if s.nowait() {
                Outcome::Failed(Errno::EAGAIN)
            } else {
                Outcome::Blocked(i)
            });
        }
        if old + op > SEMVMX {
            return Ok(Outcome::Failed(Errno::ERANGE));
        }
        if s.undo() && op != 0 {
            match undo::adjust(c, set, txn, actor.who, num, -op) {
                Err(Errno::ERANGE) => return Ok(Outcome::Failed(Errno::ERANGE)),
                result => result?,
            }
        }
        txn.set(at, with_value(lo, old + op, actor.pid))?;
    }
    Ok(Outcome::Possible)
}

/// `semop`, the slow way.
#[cold]
pub fn op(c: &Ctx, set: &Set, sops: &[Sembuf], timeout: Option<Duration>) -> Result<(), Errno> {
    let deadline = timeout.map(|t| {
        c.kernel
            .monotonic()
            .saturating_add(t.as_nanos().min(1 << 62) as u64)
    });
    let ticket = {
        let signals = SignalsBlocked::attentive(c.kernel);
        let trust = Trust::new(c, sops);
        let begun = begin(c, set, &signals, &trust, sops, timeout);
        trust.wake(c, set, &signals);
        match begun? {
            None => return Ok(()),
            Some(ticket) => ticket,
        }
    };
    wait(c, set, ticket, deadline)
}

/// Performs the operations now (`None`), or registers the caller as a waiter.
fn begin(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    trust: &Trust,
    sops: &[Sembuf],
    timeout: Option<Duration>,
) -> Result<Option<Ticket>, Errno> {
    let guard = set.lock(c, signals)?;
    if !set.still() {
        // Found a moment ago, so it was removed in between.
        return Err(Errno::EIDRM);
    }
    let result = begin_locked(c, set, signals, &guard, trust, sops, timeout);
    thaw_all(c, set, sops.len(), |i| sops[i].num as u32);
    result
}

fn begin_locked(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    trust: &Trust,
    sops: &[Sembuf],
    timeout: Option<Duration>,
) -> Result<Option<Ticket>, Errno> {
    let me = Actor {
        who: c.me,
        pid: my_pid(c),
    };
    // Frozen first: what is beside the semaphores stays there while room is made for what does not fit.
    for s in sops {
        set.freeze(c, s.num.into())?;
    }
    reap(c, set, signals, guard, sops, Gone::Lately)?;
    let mut outcome = try_now(c, set, signals, guard, sops, me)?;
    // Before it waits or gives up, it must be certain that nobody who died is in the way.
    if !matches!(outcome, Outcome::Possible) && reap(c, set, signals, guard, sops, Gone::Now)? {
        outcome = try_now(c, set, signals, guard, sops, me)?;
    }
    let blocked = match outcome {
        Outcome::Possible => {
            if sops.iter().any(|s| s.op != 0) {
                // It is done, whatever comes of that; waiters look by themselves, too.
                let _ = serve::serve_on_trust(c, set, signals, guard, Some(trust));
            }
            undo::sweep(c, set, signals);
            return Ok(None);
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
    let ticket = waiters::take(c, set.reference())?;
    let registered = serve::register(c, set, signals, guard, ticket, sops, blocked, me.pid);
    if let Err(errno) = registered {
        waiters::give_back(ticket);
        return Err(errno);
    }
    Ok(Some(ticket))
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

/// How certain it has to be that somebody lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// Alive a moment ago is enough.
    Lately,
    /// Asked now.
    Now,
}

impl Gone {
    /// Is a process other than the caller gone?
    pub fn is(self, c: &Ctx, who: ProcId) -> bool {
        who != c.me
            && match self {
                Gone::Lately => c.owner_was_gone_lately(who),
                Gone::Now => c.owner_is_gone(who),
            }
    }
}

/// Applies what the dead owe to the semaphores that the operations name. Returns whether there was something.
fn reap(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    sops: &[Sembuf],
    gone: Gone,
) -> Result<bool, Errno> {
    let mut any = false;
    for s in sops {
        let cell = set.cell(c, s.num.into())?;
        if let Some(b) = Beside::of(cell.hi.load(Relaxed)) {
            if gone.is(c, b.owner) {
                undo::repay(c, set, signals, guard, b.owner)?;
                any = true;
            }
        }
    }
    let any = undo::repay_recorded(c, set, signals, guard, gone)? | any;
    if any {
        undo::sweep(c, set, signals);
        // Applying lets semaphores go that nobody waits for.
        for s in sops {
            set.freeze(c, s.num.into())?;
        }
    }
    Ok(any)
}

/// Lets fast paths use semaphores again that no waiter names. What can't be known, because the budget is spent, stays as it is.
pub fn thaw_all(c: &Ctx, set: &Set, n: usize, num: impl Fn(usize) -> u32) {
    if !set.has_waiters() {
        (0..n).for_each(|i| set.thaw(c, num(i)));
        return;
    }
    if n == 1 {
        if !serve::is_named(c, set, num(0)) {
            set.thaw(c, num(0));
        }
        return;
    }
    for part in 0..set.nsems.div_ceil(serve::PART) {
        let nums = || (0..n).map(&num).filter(|num| num / serve::PART == part);
        if nums().next().is_none() {
            continue;
        }
        let first = part * serve::PART;
        let named = serve::named(c, set, first);
        let is_named = |num: &u32| named[(num - first) as usize / 64] >> (num % 64) & 1 == 1;
        (nums().filter(|num| !is_named(num))).for_each(|num| set.thaw(c, num));
    }
}

/// Sleeps until the operations were performed by somebody else, failed, or time is up.
fn wait(c: &Ctx, set: &Set, ticket: Ticket, deadline: Option<u64>) -> Result<(), Errno> {
    let mut look = FIRST_LOOK;
    waiters::stand(c, ticket);
    loop {
        if c.kernel.is_child_of(c.pid) {
            // The record is its parent's.
            return Err(Errno::EINTR);
        }
        if let Some(result) = waiters::outcome(ticket.waiter) {
            await_applied(c, set);
            c.kernel.stands(None);
            serve::finish(c, ticket);
            return sound(result);
        }
        let left = deadline.map(|d| Duration::from_nanos(d.saturating_sub(c.kernel.monotonic())));
        let nap = left.map_or(look, |l| l.min(look));
        let waited = if nap.is_zero() {
            Waited::TimedOut
        } else {
            waiters::sleep(c, ticket.waiter, nap)
        };
        let give_up = match waited {
            Waited::Woken => None,
            Waited::Interrupted => Some(Errno::EINTR),
            Waited::Forked => return Err(Errno::EINTR),
            Waited::TimedOut if left.is_some_and(|l| l <= nap) => Some(Errno::EAGAIN),
            Waited::TimedOut => {
                look = (look * 2).min(LAST_LOOK);
                look_around(c, set)
            }
        };
        if let Some(errno) = give_up {
            serve::withdraw(c, set, ticket)?;
            let result = waiters::outcome(ticket.waiter);
            c.kernel.stands(None);
            serve::finish(c, ticket);
            return sound(result.unwrap_or(Err(errno)));
        }
    }
}

/// Nobody who serves a set has its waiters try again.
fn sound(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(waiters::RETRY) => Err(Errno::EIDRM),
        result => result,
    }
}

/// See [`waiters::is_applied`].
fn await_applied(c: &Ctx, set: &Set) {
    if !waiters::is_applied(c, &set.entry.lock, &set.entry.log) {
        let signals = SignalsBlocked::open(c.kernel);
        drop(set.lock(c, &signals));
    }
}

/// A sleeper's look around: whoever died holding something has it undone now. Returns why the wait ends, if it does: a signal came meanwhile
/// that has a handler, which runs as soon as signals are let through, as in any other wait; or the set is not there, though nobody has
/// told its waiters, for the pool was taken away just before the caller became one.
fn look_around(c: &Ctx, set: &Set) -> Option<Errno> {
    let signals = SignalsBlocked::open(c.kernel);
    if let Ok(guard) = set.lock(c, &signals) {
        if dir::is_dying(&set.entry.head) {
            drop(guard);
            let _ = super::remove::finish_removal(c, &signals, set.index, set.id);
        } else if set.still() {
            let _ = undo::repay_all(c, set, &signals, &guard);
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
