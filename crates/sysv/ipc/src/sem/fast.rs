//! `semop` where nobody has to wait: one compare-and-swap.
//!
//! An operation without `SEM_UNDO` replaces the low word alone (value, SLOW, generation, pid): eight bytes
//! are swapped in half the time that sixteen take. It changes no adjustment, and its outcome depends on none,
//! so the high word matters in one way only: an adjustment of somebody dead is due before the operation. The
//! high word is read before the swap. Had it changed in between, and the low word come back to what it was,
//! then whoever has an adjustment now was alive and at work after this operation began. If it is dead
//! already, its death and this operation happen at the same time, and either may be first. An operation that
//! was begun after a death that the caller knows of finds the dead one's high word. Everything else that
//! changes the high word compares both words, or has set SLOW in the low one before.

use super::set::{my_pid, value, with_value, Beside, Set, SLOW};
use super::waiter::blocks;
use super::{contend, slow, Attempt, Sembuf, SEMVMX};
use crate::{directory as dir, perm, Ctx, Errno, MOST_ATTEMPTS, PATIENCE};
use core::time::Duration;
use vshmem_pool::atomic::{
    AtomicI64,
    Ordering::{Acquire, Relaxed},
};
use vshmem_pool::pair::Pair;

/// One operation in the commonest case, put in line where the program comes in: the set is there, the caller
/// is known to be allowed it, the value suffices or will in a moment, and no adjustment is beside the
/// semaphore or to be recorded. True: done. False says nothing; [`op`] finds out. `c` must not be passed on
/// from here, so that it never has to exist in memory.
#[inline(always)]
pub fn try_fast(c: &Ctx, id: i32, sop: Sembuf) -> bool {
    if !sop.is_plain() {
        return false;
    }
    let Some(entry) = c.pool.known_sem(c.pool.ids().index(id)) else {
        return false;
    };
    let head = &entry.head;
    let (nsems, cells) = (entry.nsems.load(Relaxed), entry.cells.load(Relaxed));
    let num = u64::from(sop.num);
    if num >= nsems {
        return false;
    }
    let Some(cell) = c.pool.mem().known_at::<Pair>(cells.wrapping_add(num * 16)) else {
        return false;
    };
    if !perm::grants_fast(c, head, perm::WRITE) {
        return false;
    }
    // A waiter has the time to look at the clock before, and is expected to go on at once when it need not
    // wait any more.
    let before = if sop.op < 0 { c.kernel.now() } else { 0 };
    let mut rounds = 0;
    loop {
        let (lo, hi) = cell.load();
        // After the value was read: what is swapped below then belongs to this set, or has another
        // generation.
        let other = u64::from(dir::other_than(head, id));
        let new = value(lo) + i32::from(sop.op);
        // SEMVMX is all ones: a negative number is above it, too.
        if (lo & SLOW | hi | other != 0) | (new as u32 > SEMVMX as u32) {
            let waits = (lo & SLOW | hi | other == 0) & (new < 0) & !sop.nowait();
            if !waits || rounds == PATIENCE || !c.kernel.spinning_pays() {
                return false;
            }
            rounds += 1;
            c.kernel.spinning();
        } else if cell.cas_low(lo, with_value(lo, new, my_pid(c))) {
            store_time(&entry.otime, if sop.op < 0 { before } else { c.kernel.now() });
            return true;
        }
    }
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
    for _ in 0..MOST_ATTEMPTS {
        let (lo, hi) = cell.load();
        // Removed, and perhaps another set since. Asked after the value was read, as in `try_fast`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sem::{self, SEM_UNDO};
    use crate::testing::World;
    use crate::{IPC_NOWAIT, IPC_PRIVATE};
    use vshmem_pool::layout::ID_BIT;

    fn plain(num: u16, op: i16) -> Sembuf {
        Sembuf { num, op, flg: 0 }
    }

    fn flagged(op: i16, flg: i32) -> Sembuf {
        Sembuf { num: 0, op, flg: flg as i16 }
    }

    #[test]
    fn try_fast_does_what_the_call_does() {
        let world = World::new(1 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = sem::get(c, IPC_PRIVATE, 3, 0o666).unwrap();
        assert!(try_fast(c, id, plain(2, 5)) && try_fast(c, id, plain(2, -4)));
        assert_eq!(sem::getval(c, id, 2), Ok(1));
        assert_eq!(sem::getpid(c, id, 2), Ok(process.pid()));
        assert!(sem::stat(c, id).unwrap().otime != 0);
        assert_eq!(sem::getval(c, id, 0), Ok(0));
    }

    #[test]
    fn try_fast_leaves_alone_what_is_not_for_it() {
        let world = World::new(1 << 20);
        let (process, other) = (world.process(), world.process());
        let c = &process.ctx();
        let id = sem::get(c, IPC_PRIVATE, 1, 0o666).unwrap();
        sem::setval(c, id, 0, SEMVMX).unwrap();
        assert!(!try_fast(c, id, plain(0, 1)), "too much");
        assert!(!try_fast(c, id, plain(1, 1)), "no such semaphore");
        assert!(!try_fast(c, id, flagged(0, 0)), "waits for zero");
        assert!(!try_fast(c, id, flagged(-1, SEM_UNDO.into())), "to be recorded");
        for wrong in [0, -1, id ^ 1, id ^ 1 << 17, id & !(ID_BIT as i32), i32::MAX] {
            assert!(!try_fast(c, wrong, plain(0, -1)), "no such id: {wrong:x}");
        }
        assert_eq!(sem::getval(c, id, 0), Ok(SEMVMX));
        sem::setval(c, id, 0, 1).unwrap();
        assert!(!try_fast(c, id, flagged(-2, IPC_NOWAIT)) && !try_fast(c, id, flagged(-2, 0)));
        op(&other.ctx(), id, &[flagged(-1, SEM_UNDO.into())], None).unwrap();
        assert!(!try_fast(c, id, plain(0, 1)), "the other may be dead");
        op(c, id, &[plain(0, 1)], None).unwrap();
        sem::remove(c, id).unwrap();
        assert!(!try_fast(c, id, plain(0, 1)));
    }

    #[test]
    fn try_fast_is_not_for_strangers() {
        let world = World::new(1 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
        // Who the caller is has to be asked here, and that is not for it.
        assert!(!try_fast(c, id, plain(0, 1)));
        op(c, id, &[plain(0, 1)], None).unwrap();
        assert_eq!(sem::getval(c, id, 0), Ok(1));
    }

    #[test]
    fn try_fast_believes_no_offset() {
        let world = World::new(1 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = sem::get(c, IPC_PRIVATE, 1, 0o666).unwrap();
        let entry = c.pool.sem(c.pool.ids().index(id)).unwrap();
        let good = entry.cells.load(Relaxed);
        entry.nsems.store(u64::MAX, Relaxed);
        let len = c.pool.mem().len() as u64;
        for bad in [good + 8, len, len - 8, u64::MAX - 15, 1 << 63] {
            entry.cells.store(bad, Relaxed);
            for num in [0, 1, u16::MAX] {
                // Where it lies inside of the pool, it may be changed; never anything else.
                try_fast(c, id, plain(num, 1));
            }
        }
        assert!(world.is_untouched_outside());
    }
}
