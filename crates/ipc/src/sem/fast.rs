//! `semop` where nobody has to wait: one compare-and-swap.

use super::set::{my_pid, value, with_value, Beside, Set, SLOW};
use super::slow;
use super::{Sembuf, SEMVMX};
use crate::{perm, Ctx, Errno};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::time::Duration;
use vshmem_pool::pair::Pair;

/// What an attempt found.
enum Attempt {
    Done,
    /// A value is in the way. The semaphore's low word was this.
    Blocked(u64),
    /// Not a matter for the fast path.
    Slow,
}

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
        return Err(if set.still() {
            Errno::EFBIG
        } else {
            Errno::EINVAL
        });
    }
    let alters = sops.iter().any(|s| s.op != 0);
    perm::check(
        c,
        &set.entry.head,
        if alters { perm::WRITE } else { perm::READ },
    )?;
    if sops.len() > 4 || sops[1..].iter().any(|s| s.num != first.num) {
        return slow::op(c, &set, sops, timeout);
    }
    let cell = set.cell(c, first.num.into())?;
    match attempt(c, &set, cell, sops)? {
        Attempt::Done => Ok(()),
        Attempt::Slow => slow::op(c, &set, sops, timeout),
        Attempt::Blocked(lo) => blocked(c, &set, cell, sops, timeout, lo),
    }
}

/// Spins for a while, unregistered, before going the slow way.
#[cold]
fn blocked(
    c: &Ctx,
    set: &Set,
    cell: &Pair,
    sops: &[Sembuf],
    timeout: Option<Duration>,
    mut seen: u64,
) -> Result<(), Errno> {
    if sops.iter().any(|s| s.nowait()) {
        let owed = cell.hi.load(Acquire) != 0 || set.entry.undo.load(Acquire) != 0;
        if !owed && sops.iter().all(|s| s.nowait()) {
            return Err(Errno::EAGAIN);
        }
        return slow::op(c, set, sops, timeout);
    }
    let rounds = if timeout == Some(Duration::ZERO) {
        0
    } else {
        c.kernel.spin_rounds()
    };
    for _ in 0..rounds {
        let lo = cell.lo.load(Relaxed);
        if lo != seen {
            match attempt(c, set, cell, sops)? {
                Attempt::Done => {
                    c.kernel.spun(true);
                    return Ok(());
                }
                Attempt::Slow => break,
                Attempt::Blocked(lo) => seen = lo,
            }
        }
        c.kernel.spinning();
    }
    if rounds > 0 {
        c.kernel.spun(false);
    }
    slow::op(c, set, sops, timeout)
}

/// Tries operations that all name one semaphore.
#[inline]
fn attempt(c: &Ctx, set: &Set, cell: &Pair, sops: &[Sembuf]) -> Result<Attempt, Errno> {
    loop {
        let (lo, hi) = cell.load();
        if lo & SLOW != 0 {
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
                // Unless somebody who died owes something: the slow path looks.
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
                Beside {
                    owner: c.me,
                    adjust,
                }
                .word()
            }
            Some(b) if b.owner == c.me && fits(b.adjust + adjust) => Beside {
                adjust: b.adjust + adjust,
                ..b
            }
            .word(),
            // Somebody else's: if that one is dead, its adjustment is due first.
            Some(b)
                if !undoes
                    && b.owner != c.me
                    && !c.pool.owner_was_gone_lately(c.kernel, c.member, b.owner) =>
            {
                hi
            }
            _ => return Ok(Attempt::Slow),
        };
        if cell
            .cas((lo, hi), (with_value(lo, new, my_pid(c)), new_hi))
            .is_ok()
        {
            note_time(c, set);
            return Ok(Attempt::Done);
        }
    }
}

fn fits(adjust: i32) -> bool {
    i16::try_from(adjust).is_ok()
}

/// `sem_otime`. Written only when the second changes, so that the line can stay shared.
#[inline]
pub fn note_time(c: &Ctx, set: &Set) {
    let now = c.kernel.now();
    if set.entry.otime.load(Relaxed) != now {
        set.entry.otime.store(now, Relaxed);
    }
}
