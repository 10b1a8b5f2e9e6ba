//! Handing `SEM_UNDO` adjustments over to another process: to the slot of a list that several share.
//!
//! An adjustment leaves the one and enters the other in one transaction, which changes no value. So a death
//! in between leaves each with one of the two, none is lost or made twice, and doing it again does the rest.
//! What finds no place there, out of range or for want of memory, stays where it is.

use super::set::{Beside, Set};
use super::undo::{adjust, empty_lane, ensure_record_for, lanes, record_of, sweep, Changed};
use super::{Sembuf, SEM_UNDO};
use crate::{directory as dir, Ctx, Errno, ProcId};
use vshmem_pool::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use vshmem_pool::lock::{Guard, SignalsBlocked};

/// Hands over what the caller has on the set that `id` names.
pub fn hand_over(c: &Ctx, id: i32, to: ProcId) {
    hand_over_at(c, &SignalsBlocked::brief(c.kernel), c.pool.ids().index(id), to);
}

/// Hands over what the caller has on the set at an index.
pub(crate) fn hand_over_at(c: &Ctx, signals: &SignalsBlocked, index: u32, to: ProcId) {
    let Some(set) = Set::at(c, index).ok().filter(|set| set.id != 0 && has_any(c, set)) else { return };
    let Ok(guard) = set.lock(c, signals) else { return };
    if !dir::is_dying(&set.entry.head) && set.still() {
        c.pool.touch(to, set.reference());
        let mut changed = Changed::default();
        // What is left is handed over with the next.
        let _ = hand_over_locked(c, &set, signals, &guard, to, &mut changed);
        changed.thaw(c, &set);
        sweep(c, &set, signals);
    }
}

fn is_mine(c: &Ctx, hi: &AtomicU64) -> bool {
    Beside::of(hi.load(Acquire)).is_some_and(|beside| beside.owner == c.me)
}

/// Has the caller anything on a set?
fn has_any(c: &Ctx, set: &Set) -> bool {
    let beside = || set.words(c).is_ok_and(|words| words.iter().skip(1).step_by(2).any(|hi| is_mine(c, hi)));
    record_of(c, set, c.me).is_some() || beside()
}

fn hand_over_locked(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
    guard: &Guard,
    to: ProcId,
    changed: &mut Changed,
) -> Result<(), Errno> {
    let cells = set.words(c)?;
    let record = record_of(c, set, c.me);
    let recorded = record.and_then(|record| lanes(c, set, record));
    for num in 0..set.nsems {
        let (hi, word) = (&cells[num as usize * 2 + 1], recorded.map(|words| &words[num as usize / 4]));
        if !is_mine(c, hi) && word.is_none_or(|word| word.load(Relaxed) == 0) {
            continue;
        }
        set.freeze(c, num)?;
        changed.add(num);
        if let Some(beside) = Beside::of(hi.load(Acquire)).filter(|beside| beside.owner == c.me) {
            let mut txn = guard.txn();
            txn.set(set.lo(num) + 8, 0)?;
            if adjust(c, set, &mut txn, to, num, beside.adjust).is_ok() {
                txn.commit()?;
            }
        }
        let Some(record) = record else { continue };
        // It may have to go to a record, too, where somebody else's is beside the semaphore.
        ensure_record_for(c, set, signals, to, 1, |_| Sembuf { num: num as u16, op: 1, flg: SEM_UNDO })?;
        let mut txn = guard.txn();
        let had = empty_lane(&mut txn, record, num)?;
        if had != 0 && adjust(c, set, &mut txn, to, num, had).is_ok() {
            txn.commit()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::sem;
    use crate::testing::{Process, World};
    use crate::tests::check::findings;
    use crate::tests::sem::{set_of, undone, values};

    /// When these die, the values come to this, and the pool is whole.
    fn come_to(looks: &Process, owners: &[&Process], id: i32, values_then: &[u16]) {
        for owner in owners {
            owner.kill();
            crate::liveness::reap(&looks.ctx(), owner.id().slot);
        }
        assert_eq!(values(&looks.ctx(), id), values_then);
        assert_eq!(findings(looks), []);
    }

    #[test]
    fn what_was_handed_over_is_due_when_the_other_ends() {
        let world = World::new(1 << 20);
        let [list, first, other, looks] = core::array::from_fn(|_| world.process());
        let id = set_of(&looks.ctx(), &[100, 100, 100]);
        let adjusts = |who: &Process, num, by| sem::op(&who.ctx(), id, &[undone(num, by)], None).unwrap();
        // Beside, in a record that others' beside make necessary, and both.
        adjusts(&first, 0, -1);
        adjusts(&other, 1, -10);
        adjusts(&first, 1, -2);
        sem::hand_over(&first.ctx(), id, list.id());
        adjusts(&first, 0, -3);
        adjusts(&first, 1, 5);
        adjusts(&first, 2, 7);
        sem::hand_over(&first.ctx(), id, list.id());
        sem::hand_over(&first.ctx(), id, list.id());
        assert_eq!(values(&looks.ctx(), id), [96, 93, 107]);
        come_to(&looks, &[&first], id, &[96, 93, 107]);
        come_to(&looks, &[&list], id, &[100, 90, 100]);
        come_to(&looks, &[&other], id, &[100, 100, 100]);
    }

    #[test]
    fn what_does_not_fit_stays() {
        let world = World::new(1 << 20);
        let [list, first, looks] = core::array::from_fn(|_| world.process());
        let id = set_of(&looks.ctx(), &[0, 0]);
        let plain = |num, by| sem::op(&looks.ctx(), id, &[crate::tests::sem::op(num, by)], None).unwrap();
        for (who, by) in [(&list, 32000), (&first, 32000)] {
            sem::op(&who.ctx(), id, &[undone(0, by)], None).unwrap();
            plain(0, -32000);
        }
        sem::op(&first.ctx(), id, &[undone(1, 3)], None).unwrap();
        plain(0, 32000);
        sem::hand_over(&first.ctx(), id, list.id());
        come_to(&looks, &[&first], id, &[0, 3]);
        plain(0, 32000);
        come_to(&looks, &[&list], id, &[0, 0]);
    }

    #[test]
    fn a_death_in_the_middle_loses_nothing() {
        for call in 1.. {
            let world = World::new(1 << 20);
            let [list, first, other, looks] = core::array::from_fn(|_| world.process());
            let id = set_of(&looks.ctx(), &[100, 100]);
            sem::op(&other.ctx(), id, &[undone(1, -10)], None).unwrap();
            sem::op(&first.ctx(), id, &[undone(0, -1)], None).unwrap();
            sem::op(&first.ctx(), id, &[undone(1, -2)], None).unwrap();
            first.kill_at_call(call);
            let to = list.id();
            let done = first.start(move |c| sem::hand_over(c, id, to)).result_or_death();
            come_to(&looks, &[&first, &list], id, &[100, 90]);
            if done.is_some() {
                return;
            }
        }
    }
}
