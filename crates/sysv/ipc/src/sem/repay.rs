//! Applying the `SEM_UNDO` adjustments of dead processes (`exit_sem` in Linux), and serving the queue after
//! that.

use super::remove;
use super::serve::serve;
use super::set::{Beside, Set};
use super::undo::{owner_if_gone, records, sweep, take_back, Gone};
use crate::{directory as dir, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::atomic::{AtomicU32, AtomicU64};
use vshmem_pool::layout::Kind;
use vshmem_pool::lock::{Guard, SignalsBlocked};

/// Applies and forgets all adjustments of a process that is gone (`exit_sem` in Linux), then serves the
/// queue. Its record stays, empty.
pub fn repay(c: &Ctx, set: &Set, signals: &SignalsBlocked, guard: &Guard, who: ProcId) -> Result<(), Errno> {
    if take_back(c, set, guard, who)? {
        // Waiters look by themselves, too.
        let _ = serve(c, set, signals, guard);
    }
    Ok(())
}

/// Applies what processes that are gone have in records, which stay, empty. Returns whether there was
/// something.
pub fn repay_recorded(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    gone: Gone,
) -> Result<bool, Errno> {
    let mut any = false;
    for (at, record) in records(c, set) {
        if let Some(owner) = owner_if_gone(c, set, at, record, gone) {
            repay(c, set, signals, guard, owner)?;
            any = true;
        }
    }
    Ok(any)
}

/// The turn of records to be asked about. Only a hint, so it serves all sets.
static TURN: AtomicU32 = AtomicU32::new(0);
/// Operations for each record that is asked about.
const ONE_IN: u32 = 4;

/// Sets the turn as in a process that has made no operation yet.
#[cfg(all(test, feature = "model"))]
pub fn forget_turn() {
    TURN.store(0, Relaxed);
}

/// Applies what one record has, the next in turn, now and then. In a crowd, whose processes all have records,
/// to ask about each owner before each operation took most of the time. But adjustments of the dead must not
/// pile up: a semaphore that lacks what many of them have taken comes to zero, and what others of them have
/// given can't be taken from it any more.
pub fn repay_next(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    gone: Gone,
) -> Result<bool, Errno> {
    if set.entry.undo.load(Relaxed) == 0 {
        return Ok(false);
    }
    let turn = TURN.load(Relaxed);
    TURN.store(turn.wrapping_add(1), Relaxed);
    if turn % ONE_IN != 0 {
        return Ok(false);
    }
    let count = records(c, set).count();
    let next = records(c, set).nth((turn / ONE_IN) as usize % count.max(1));
    let dead = next.and_then(|(at, record)| owner_if_gone(c, set, at, record, gone));
    dead.map_or(Ok(false), |dead| repay(c, set, signals, guard, dead).map(|()| true))
}

/// Applies everything that processes that are gone have on a set.
pub fn repay_all(c: &Ctx, set: &Set, signals: &SignalsBlocked, guard: &Guard) -> Result<(), Errno> {
    let mut alive = None;
    let mut any = false;
    for word in set.words(c)?.iter().skip(1).step_by(2) {
        // Many semaphores of one owner follow upon each other, as a rule.
        let owner = Beside::of(word.load(Relaxed)).map(|b| b.owner);
        let Some(owner) = owner.filter(|owner| alive != Some(*owner)) else {
            continue;
        };
        if Gone::Now.is(c, owner) {
            repay(c, set, signals, guard, owner)?;
            any = true;
        } else {
            alive = Some(owner);
        }
    }
    any |= repay_recorded(c, set, signals, guard, Gone::Now)?;
    if any {
        sweep(c, set, signals);
    }
    // A process that could not be asked about may be gone.
    if c.budget.is_spent() {
        return Err(Errno::EIDRM);
    }
    Ok(())
}

/// Has a dead process certainly nothing in a set, as in most of very many? While the set's lock is free, all
/// that the dead process did under it is done; the next owner finds it dead, and does nothing for it.
fn owes_nothing(c: &Ctx, set: &Set, dead: ProcId) -> bool {
    let entry = set.entry;
    let is_quiet = dead != c.me
        && entry.lock.load(Acquire) == 0
        && !dir::is_dying(&entry.head)
        && entry.undo.load(Acquire) == 0
        && !set.has_waiters();
    let is_others = |word: &AtomicU64| Beside::of(word.load(Acquire)).is_none_or(|b| b.owner != dead);
    is_quiet && set.words(c).is_ok_and(|words| words.iter().skip(1).step_by(2).all(is_others)) && set.still()
}

/// Takes from a set what a dead process has there.
pub(crate) fn reap_process(c: &Ctx, signals: &SignalsBlocked, index: u32, dead: ProcId) {
    let Ok(set) = Set::at(c, index) else { return };
    if set.id == 0 {
        return;
    }
    if owes_nothing(c, &set, dead) {
        return c.pool.untouch(dead, Kind::Sem.reference(index));
    }
    let Ok(guard) = set.lock(c, signals) else {
        return;
    };
    if dir::is_dying(&set.entry.head) {
        drop(guard);
        let _ = remove::finish_removal(c, signals, index, set.id);
    } else if set.still() {
        let _ = repay(c, &set, signals, &guard, dead);
        sweep(c, &set, signals);
        // The next call that looks sees the rest.
        if !c.budget.is_spent() {
            c.pool.untouch(dead, Kind::Sem.reference(index));
        }
    }
}

/// Applies what the caller, which goes on, has on a set.
pub(crate) fn undo_own(c: &Ctx, signals: &SignalsBlocked, index: u32) {
    let Some(set) = Set::at(c, index).ok().filter(|set| set.id != 0) else { return };
    let Ok(guard) = set.lock(c, signals) else { return };
    if !dir::is_dying(&set.entry.head) && set.still() {
        let _ = repay(c, &set, signals, &guard, c.me);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sem;
    use crate::sem::set::value;
    use crate::testing::World;
    use crate::tests::sem::{set_of, undone};
    use std::vec::Vec;

    #[test]
    fn what_the_dead_owe_does_not_pile_up() {
        let world = World::new(1 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = set_of(c, &[100]);
        // Its adjustment is beside the semaphore, so those of all others are in records.
        let first = world.process();
        sem::op(&first.ctx(), id, &[undone(0, -1)], None).unwrap();
        let dead: Vec<_> = (0..6).map(|_| world.process()).collect();
        for process in &dead {
            sem::op(&process.ctx(), id, &[undone(0, -10)], None).unwrap();
        }
        dead.iter().for_each(|process| process.kill());
        let set = Set::at(c, c.pool.ids().index(id)).unwrap();
        let now = || value(set.cell(c, 0).unwrap().lo.load(Relaxed));
        // All of these are possible, so nobody has to look for the dead.
        let mut taken = 1;
        while taken < 39 && now() + taken < 100 {
            sem::op(c, id, &[undone(0, -1)], None).unwrap();
            taken += 1;
        }
        assert_eq!(now() + taken, 100, "after {taken} operations");
    }

    #[test]
    fn who_undoes_its_own_goes_on() {
        let world = World::new(1 << 20);
        let (first, second) = (world.process(), world.process());
        let id = set_of(&first.ctx(), &[100, 100]);
        let at = |num| crate::tests::sem::values(&first.ctx(), id)[num];
        // The first one's is beside the semaphore, the second one's in a record.
        for process in [&first, &second] {
            sem::op(&process.ctx(), id, &[undone(0, -1)], None).unwrap();
            sem::op(&process.ctx(), id, &[undone(1, -10)], None).unwrap();
        }
        crate::undo(&second.ctx());
        assert_eq!((at(0), at(1)), (99, 90));
        crate::undo(&first.ctx());
        assert_eq!((at(0), at(1)), (100, 100));
        crate::undo(&first.ctx());
        for process in [&first, &second] {
            sem::op(&process.ctx(), id, &[undone(0, -1)], None).unwrap();
        }
        assert_eq!((at(0), at(1)), (98, 100));
        second.kill();
        crate::liveness::reap(&first.ctx(), second.ctx().me.slot);
        assert_eq!((at(0), at(1)), (99, 100));
    }
}
