//! `SEM_UNDO`: adjustments, beside a semaphore for the first process that has one, in a record for the others.

use super::serve::serve;
use super::set::{value, with_value, Beside, Set};
use super::slow::Gone;
use super::{Sembuf, SEMVMX};
use crate::{directory as dir, life, Ctx, Errno, ProcId};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use vshmem_pool::layout::{Kind, Undo, CLEAR_ALL, MAX_PROCS};
use vshmem_pool::lock::{Guard, Quiet};
use vshmem_pool::log::Txn;

/// Bytes of a record before the adjustments.
const HEAD: u64 = size_of::<Undo>() as u64;

/// Calls `stop` with (offset of the link, offset of the record, record) until it returns true.
pub fn each_record(
    c: &Ctx,
    set: &Set,
    mut stop: impl FnMut(u64, u64, &'static Undo) -> bool,
) -> Option<(u64, u64, &'static Undo)> {
    let mut link = c.pool.offset_of(&set.entry.undo);
    for _ in 0..MAX_PROCS {
        let at = c.pool.mem().word(link)?.load(Acquire);
        let record = c.pool.mem().at::<Undo>(at).filter(|_| at != 0)?;
        if stop(link, at, record) {
            return Some((link, at, record));
        }
        link = at + 8;
    }
    None
}

fn record_of(c: &Ctx, set: &Set, who: ProcId) -> Option<u64> {
    each_record(c, set, |_, _, r| r.owner.load(Relaxed) == who.word()).map(|r| r.1)
}

/// Offset of the word, and shift of the 16 bits, that hold a record's adjustment of a semaphore.
fn lane(record: u64, num: u32) -> (u64, u32) {
    (record + HEAD + num as u64 / 4 * 8, num % 4 * 16)
}

fn read_lane(word: u64, shift: u32) -> i32 {
    (word >> shift) as u16 as i16 as i32
}

fn write_lane(word: u64, shift: u32, adjust: i32) -> u64 {
    word & !(0xffff << shift) | (adjust as u16 as u64) << shift
}

/// Adds to the adjustment that a process has of a semaphore. `ERANGE` if it leaves its range.
pub fn adjust(
    c: &Ctx,
    set: &Set,
    txn: &mut Txn,
    who: ProcId,
    num: u32,
    by: i32,
) -> Result<(), Errno> {
    let hi_at = set.lo(num) + 8;
    let beside = Beside::of(txn.get(hi_at).ok_or(Errno::EINVAL)?);
    let in_record = record_of(c, set, who).map(|r| lane(r, num));
    let recorded = in_record
        .and_then(|(at, shift)| txn.get(at).map(|w| read_lane(w, shift)))
        .unwrap_or(0);
    let fit = |adjust: i32| {
        i16::try_from(adjust)
            .map(i32::from)
            .map_err(|_| Errno::ERANGE)
    };
    match beside {
        Some(b) if b.owner == who => {
            let b = Beside {
                adjust: fit(b.adjust + by)?,
                ..b
            };
            Ok(txn.set(hi_at, b.word())?)
        }
        None if recorded == 0 => Ok(txn.set(
            hi_at,
            Beside {
                owner: who,
                adjust: fit(by)?,
            }
            .word(),
        )?),
        _ => {
            // make_room has seen to it that there is a record.
            let (at, shift) = in_record.ok_or(Errno::ENOMEM)?;
            let word = txn.get(at).ok_or(Errno::EINVAL)?;
            Ok(txn.set(at, write_lane(word, shift, fit(recorded + by)?))?)
        }
    }
}

/// Makes a record for the caller if its operations need one.
pub fn make_room(c: &Ctx, set: &Set, quiet: &Quiet, sops: &[Sembuf]) -> Result<(), Errno> {
    make_room_for(c, set, quiet, c.me, sops.len(), |i| sops[i])
}

/// Makes a record for a process if its operations need one: because somebody else's adjustment is beside a semaphore.
pub fn make_room_for(
    c: &Ctx,
    set: &Set,
    quiet: &Quiet,
    who: ProcId,
    n: usize,
    sop: impl Fn(usize) -> Sembuf,
) -> Result<(), Errno> {
    let needs = |s: Sembuf| {
        s.undo()
            && s.op != 0
            && set
                .cell(c, s.num.into())
                .is_ok_and(|cell| Beside::of(cell.hi.load(Relaxed)).is_some_and(|b| b.owner != who))
    };
    if !(0..n).any(|i| needs(sop(i))) || record_of(c, set, who).is_some() {
        return Ok(());
    }
    let guard = dir::lock(c, quiet)?;
    let mut txn = guard.txn();
    let (at, len) = dir::take_block(c, &mut txn, HEAD + set.nsems.div_ceil(4) as u64 * 8)?;
    txn.set(at, who.word())?;
    txn.set(at + 8, set.entry.undo.load(Relaxed))?;
    txn.set(at + 16, len)?;
    txn.put(&set.entry.undo, at)?;
    c.pool.touch(who, set.reference());
    txn.commit();
    Ok(())
}

fn is_empty(c: &Ctx, set: &Set, record: u64) -> bool {
    (0..set.nsems.div_ceil(4)).all(|i| {
        let word = c.pool.mem().word(record + HEAD + i as u64 * 8);
        word.is_none_or(|w| w.load(Relaxed) == 0)
    })
}

/// Frees records that hold nothing, so that fast paths may keep adjustments beside the semaphores again.
pub fn sweep(c: &Ctx, set: &Set, quiet: &Quiet) {
    // No process has two records: a list with more leads back to itself.
    for _ in 0..MAX_PROCS {
        let empty = each_record(c, set, |_, at, _| is_empty(c, set, at));
        let freed = empty.map(|(link, at, record)| free_record(c, quiet, link, at, record));
        if !matches!(freed, Some(Ok(()))) {
            return;
        }
    }
}

fn free_record(c: &Ctx, quiet: &Quiet, link: u64, at: u64, record: &Undo) -> Result<(), Errno> {
    let guard = dir::lock(c, quiet)?;
    let mut txn = guard.txn();
    txn.set(link, record.next.load(Relaxed))?;
    dir::give_block(c, &mut txn, at, record.block_len.load(Relaxed))?;
    txn.commit();
    Ok(())
}

/// Applies and forgets all adjustments of a process that is gone (`exit_sem` in Linux), then serves the queue.
pub fn apply(c: &Ctx, set: &Set, quiet: &Quiet, guard: &Guard, who: ProcId) -> Result<(), Errno> {
    if take_back(c, set, guard, who)? {
        serve(c, set, quiet, guard)?;
    }
    sweep(c, set, quiet);
    Ok(())
}

/// Applies and forgets all adjustments of a process that is gone, and nothing else. Returns whether it had any.
pub fn take_back(c: &Ctx, set: &Set, guard: &Guard, who: ProcId) -> Result<bool, Errno> {
    let pid = if who == c.me {
        crate::pid_word(c)
    } else {
        life::pid_word_of(c, who)
    };
    let record = record_of(c, set, who);
    let mut any = false;
    for num in 0..set.nsems {
        let cell = set.cell(c, num)?;
        let mut adjust = 0;
        if Beside::of(cell.hi.load(Relaxed)).is_some_and(|b| b.owner == who) {
            set.freeze(c, num)?;
            adjust += Beside::of(cell.hi.load(Relaxed)).map_or(0, |b| b.adjust);
        }
        let in_record = record.map(|r| lane(r, num));
        let word = in_record
            .and_then(|(at, _)| c.pool.mem().word(at))
            .map_or(0, |w| w.load(Relaxed));
        let recorded = in_record.map_or(0, |(_, shift)| read_lane(word, shift));
        if adjust == 0 && recorded == 0 {
            continue;
        }
        set.freeze(c, num)?;
        let mut txn = guard.txn();
        let lo = txn.get(set.lo(num)).ok_or(Errno::EINVAL)?;
        let new = (value(lo) + adjust + recorded).clamp(0, SEMVMX);
        txn.set(set.lo(num), with_value(lo, new, pid))?;
        if adjust != 0 {
            txn.set(set.lo(num) + 8, 0)?;
        }
        if let (Some((at, shift)), true) = (in_record, recorded != 0) {
            txn.set(at, write_lane(word, shift, 0))?;
        }
        txn.put(&set.entry.otime, c.kernel.now() as u64)?;
        txn.commit();
        any = true;
    }
    if any {
        super::slow::thaw_all(c, set, set.nsems as usize, |i| i as u32);
    }
    Ok(any)
}

/// A process that is gone and still has an adjustment beside a semaphore that the operations name, or in a record.
pub fn dead_owner(
    c: &Ctx,
    set: &Set,
    n: usize,
    sop: impl Fn(usize) -> Sembuf,
    gone: Gone,
) -> Option<ProcId> {
    let beside = (0..n).find_map(|i| {
        let cell = set.cell(c, sop(i).num.into()).ok()?;
        Beside::of(cell.hi.load(Relaxed))
            .map(|b| b.owner)
            .filter(|o| gone.is(c, *o))
    });
    beside.or_else(|| dead_recorder(c, set, gone))
}

fn dead_recorder(c: &Ctx, set: &Set, gone: Gone) -> Option<ProcId> {
    let (_, _, record) = each_record(c, set, |_, at, record| {
        let owner = ProcId::of_word(record.owner.load(Relaxed));
        owner.is_some_and(|o| !is_empty(c, set, at) && gone.is(c, o))
    })?;
    ProcId::of_word(record.owner.load(Relaxed))
}

/// Applies what dead processes have in records. Returns whether there was something.
pub fn reap_records(
    c: &Ctx,
    set: &Set,
    quiet: &Quiet,
    guard: &Guard,
    gone: Gone,
) -> Result<bool, Errno> {
    let mut last = None;
    while set.entry.undo.load(Relaxed) != 0 {
        let dead = dead_recorder(c, set, gone);
        // No process has two records: what is left of one whose adjustments were just applied was scribbled.
        let Some(next) = dead.filter(|_| dead != last) else {
            break;
        };
        apply(c, set, quiet, guard, next)?;
        last = dead;
    }
    Ok(last.is_some())
}

/// Applies everything that dead processes have on a set.
pub fn reap_all(c: &Ctx, set: &Set, quiet: &Quiet, guard: &Guard) -> Result<(), Errno> {
    for num in 0..set.nsems {
        if let Some(b) = Beside::of(set.cell(c, num)?.hi.load(Relaxed)) {
            if b.owner != c.me && c.pool.owner_is_gone(c.kernel, c.member, b.owner) {
                apply(c, set, quiet, guard, b.owner)?;
            }
        }
    }
    reap_records(c, set, quiet, guard, Gone::Now).map(|_| ())
}

/// Has a process, whose record this is, an adjustment there and another one beside the same semaphore?
pub fn has_twice(c: &Ctx, set: &Set, record: u64, who: ProcId) -> bool {
    let has = |num: u32| {
        let (at, shift) = lane(record, num);
        let word = c.pool.mem().word(at).map_or(0, |w| w.load(Relaxed));
        let hi = set.cell(c, num).map_or(0, |cell| cell.hi.load(Relaxed));
        read_lane(word, shift) != 0 && Beside::of(hi).is_some_and(|b| b.owner == who)
    };
    (0..set.nsems).any(has)
}

/// Does anybody but the caller have an adjustment of this semaphore, or of any in a record?
pub fn is_foreign(c: &Ctx, set: &Set, num: u32) -> bool {
    let beside = set
        .cell(c, num)
        .ok()
        .and_then(|cell| Beside::of(cell.hi.load(Relaxed)));
    beside.is_some_and(|b| b.owner != c.me) || set.entry.undo.load(Relaxed) != 0
}

/// Forgets all adjustments of one semaphore (`SETVAL`), or of all (`CLEAR_ALL`): begun by setting `clear` in the
/// transaction that sets the values, finished here, or by whoever takes the lock from the dead.
pub fn finish_clearing(c: &Ctx, set: &Set) {
    let clear = set.entry.clear.load(Relaxed);
    if clear == 0 {
        return;
    }
    each_record(c, set, |_, at, _| {
        for num in 0..set.nsems {
            if clear != CLEAR_ALL && num as u64 + 1 != clear {
                continue;
            }
            let (at, shift) = lane(at, num);
            if let Some(word) = c.pool.mem().word(at) {
                word.store(write_lane(word.load(Relaxed), shift, 0), Relaxed);
            }
        }
        false
    });
    set.entry.clear.store(0, Release);
}

/// Takes from a set what a dead process has there.
pub(crate) fn reap_process(c: &Ctx, quiet: &Quiet, index: u32, dead: ProcId) {
    let Ok(set) = Set::at(c, index) else { return };
    let Ok(guard) = set.lock(c, quiet) else {
        return;
    };
    if dir::is_dying(&set.entry.head) {
        drop(guard);
        let _ = super::get::finish_removal(c, quiet, index, set.id);
    } else if set.id != 0 && set.still() {
        let _ = apply(c, &set, quiet, &guard, dead);
        c.pool.untouch(dead, Kind::Sem.reference(index));
    }
}
