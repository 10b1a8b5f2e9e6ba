//! The fast path of `semop`: one compare-and-swap, where nobody has to wait.
//!
//! An operation without `SEM_UNDO` replaces the low word alone (value, SLOW, generation, pid): eight bytes
//! are swapped in half the time that sixteen take. It changes no adjustment, and its outcome depends on none,
//! so the high word matters in one way only: an adjustment of a dead process is due before the operation. The
//! high word is read before the swap. Had it changed in between, and the low word come back to what it was,
//! then the process that has an adjustment now was alive and at work after this operation began. If it is
//! dead already, its death and this operation happen at the same time, and either may be first. An operation
//! that begins after a death of which the caller knows finds the dead process's high word. Everything else
//! that changes the high word compares both words, or has set SLOW in the low one before.

use super::set::{my_pid, value, with_value, Beside, Set, SLOW};
use super::waiter::blocks;
use super::{contend, slow, Attempt, Sembuf, SEMVMX};
use crate::{perm, Ctx, Errno};
use core::time::Duration;
use vshmem_pool::atomic::{
    AtomicI64,
    Ordering::{Acquire, Relaxed},
};
use vshmem_pool::pair::Pair;
use vshmem_pool::tuning::FAST_ATTEMPTS;

/// `semop` and, with `timeout`, `semtimedop`.
#[inline]
pub fn op(c: &Ctx, id: i32, sops: &[Sembuf], timeout: Option<Duration>) -> Result<(), Errno> {
    let Some(first) = sops.first() else {
        return Err(Errno::EINVAL);
    };
    if sops.len() > c.pool.limits().semopm as usize {
        return Err(Errno::E2BIG);
    }
    let set = Set::find(c, id)?;
    if sops.iter().any(|s| s.num as u32 >= set.nsems) {
        return Err(if set.still() { Errno::EFBIG } else { Errno::EINVAL });
    }
    let alters = sops.iter().any(|s| s.op != 0);
    perm::check(c, &set.entry.head, if alters { perm::WRITE } else { perm::READ })?;
    if sops.len() > 4 || sops[1..].iter().any(|s| s.num != first.num) {
        return slow::op_of_several(c, &set, sops, timeout);
    }
    let cell = set.only_cell(c, first.num.into())?;
    match attempt(c, &set, cell, sops)? {
        Attempt::Done => Ok(()),
        Attempt::Slow => kept_off(c, &set, cell, sops, timeout),
        Attempt::Blocked(lo) => blocked(c, &set, cell, sops, timeout, lo),
    }
}

/// Operations that fast paths are kept from. Those that can't be done in a moment wait for it.
#[cold]
fn kept_off(
    c: &Ctx,
    set: &Set,
    cell: &Pair,
    sops: &[Sembuf],
    timeout: Option<Duration>,
) -> Result<(), Errno> {
    let lo = cell.lo.load(Relaxed);
    if sops.iter().all(|s| !s.nowait()) && blocks(lo, sops[0]) {
        return wait(c, set, cell, sops, timeout, lo);
    }
    slow::op(c, set, sops, timeout)
}

#[cold]
fn blocked(
    c: &Ctx,
    set: &Set,
    cell: &Pair,
    sops: &[Sembuf],
    timeout: Option<Duration>,
    seen: u64,
) -> Result<(), Errno> {
    if sops.iter().all(|s| !s.nowait()) {
        return wait(c, set, cell, sops, timeout, seen);
    }
    let owed = cell.hi.load(Acquire) != 0 || set.entry.undo.load(Acquire) != 0;
    if !owed && sops.iter().all(|s| s.nowait()) {
        return Err(Errno::EAGAIN);
    }
    slow::op(c, set, sops, timeout)
}

/// Waits, unregistered for a while before the caller stands in the queue.
fn wait(
    c: &Ctx,
    set: &Set,
    cell: &Pair,
    sops: &[Sembuf],
    timeout: Option<Duration>,
    seen: u64,
) -> Result<(), Errno> {
    let attempt = || attempt(c, set, cell, sops);
    if timeout != Some(Duration::ZERO) && contend::wait(c, set, cell, sops[0], timeout, seen, attempt)? {
        return Ok(());
    }
    slow::op(c, set, sops, timeout)
}

/// Tries operations that all name one semaphore.
#[inline]
pub fn attempt(c: &Ctx, set: &Set, cell: &Pair, sops: &[Sembuf]) -> Result<Attempt, Errno> {
    for _ in 0..FAST_ATTEMPTS {
        let (lo, hi) = cell.load();
        // Removed, and perhaps another set since: asked after the value was read. So what is swapped below
        // belongs to this set, or has another generation.
        if lo & SLOW != 0 || !set.still() {
            return Ok(Attempt::Slow);
        }
        let mut new = value(lo);
        let mut adjust = 0;
        let mut undoes = false;
        for s in sops {
            let op = s.op as i32;
            if (op == 0 && new != 0) || new + op < 0 {
                return Ok(Attempt::Blocked(lo));
            }
            new += op;
            if new > SEMVMX {
                // Unless an adjustment of a dead process is due: the slow path looks.
                return Ok(Attempt::Slow);
            }
            if s.undo() {
                adjust -= op;
                undoes |= op != 0;
            }
        }
        let new_hi = match Beside::of(hi) {
            None if !undoes => 0,
            None if set.entry.undo.load(Acquire) == 0 && fits(adjust) => {
                c.pool.touch(c.me, set.reference());
                Beside { owner: c.me, adjust }.word()
            }
            Some(b) if b.owner == c.me && fits(b.adjust + adjust) => {
                Beside { adjust: b.adjust + adjust, ..b }.word()
            }
            // Somebody else's: if that one is dead, its adjustment is due first.
            Some(b) if !undoes && b.owner != c.me && !c.owner_was_gone_lately(b.owner) => hi,
            _ => return Ok(Attempt::Slow),
        };
        let new_lo = with_value(lo, new, my_pid(c));
        // What changes no adjustment needs the low word alone: see the module's head.
        let done = if new_hi == hi {
            cell.cas_low(lo, new_lo)
        } else {
            cell.cas((lo, hi), (new_lo, new_hi)).is_ok()
        };
        if done {
            record_time(c, set);
            return Ok(Attempt::Done);
        }
    }
    Ok(Attempt::Slow)
}

fn fits(adjust: i32) -> bool {
    i16::try_from(adjust).is_ok()
}

/// `sem_otime`. Written only when the second changes, so that the line can stay shared.
#[inline]
pub fn record_time(c: &Ctx, set: &Set) {
    store_time(&set.entry.otime, c.kernel.now());
}

#[inline(always)]
pub fn store_time(otime: &AtomicI64, now: i64) {
    if otime.load(Relaxed) != now {
        otime.store(now, Relaxed);
    }
}
