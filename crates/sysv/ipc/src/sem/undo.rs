//! `SEM_UNDO`: adjustments, beside a semaphore for the first process that has one, in a record for the
//! others.

use super::set::{value, with_value, Beside, Set};
use super::waiter::thaw_all;
use super::{Sembuf, SEMVMX};
use crate::{directory as dir, Ctx, Errno, ProcId};
use vshmem_pool::atomic::AtomicU64;
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed, Release};
use vshmem_pool::layout::{Undo, CLEAR_ALL, MAX_PROCS};
use vshmem_pool::lock::{Guard, SignalsBlocked};
use vshmem_pool::log::Txn;

/// The certainty that is needed that a process lives.
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

/// The offset in a record of the link to the next, in bytes.
const NEXT: u64 = 8;

/// The record of a set of so many semaphores is read through sooner than the kernel has answered whether its
/// owner lives.
const QUICKLY_READ: u32 = 512;

/// Bytes of a record before the adjustments.
const HEAD: u64 = size_of::<Undo>() as u64;

/// The record that a link leads to, and its offset.
fn record_at(c: &Ctx, link: u64) -> Option<(u64, &'static Undo)> {
    let at = c.word(link)?.load(Acquire);
    let record = c.at::<Undo>(at).filter(|_| at != 0)?;
    Some((at, record))
}

/// The records of a set, and their offsets.
pub fn records<'a>(c: &'a Ctx, set: &Set) -> impl Iterator<Item = (u64, &'static Undo)> + 'a {
    let mut link = c.pool.offset_of(&set.entry.undo);
    core::iter::from_fn(move || {
        let found = record_at(c, link)?;
        link = found.0 + NEXT;
        Some(found)
    })
    // No process has two.
    .take(MAX_PROCS as usize)
}

/// The record that a process has of a set.
pub fn record_of(c: &Ctx, set: &Set, who: ProcId) -> Option<u64> {
    let is_his = |(_, r): &(u64, &Undo)| r.owner.load(Relaxed) == who.word();
    records(c, set).find(is_his).map(|(at, _)| at)
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

/// Empties a record's adjustment of a semaphore, in a transaction. Returns what it was.
pub fn empty_lane(txn: &mut Txn, record: u64, num: u32) -> Result<i32, Errno> {
    let (at, shift) = lane(record, num);
    let word = txn.get(at).ok_or(Errno::EINVAL)?;
    txn.set(at, write_lane(word, shift, 0))?;
    Ok(read_lane(word, shift))
}

/// Adds to the adjustment that a process has of a semaphore. `ERANGE` if it leaves its range.
pub fn adjust(c: &Ctx, set: &Set, txn: &mut Txn, who: ProcId, num: u32, by: i32) -> Result<(), Errno> {
    let hi_at = set.lo(num) + 8;
    let beside = Beside::of(txn.get(hi_at).ok_or(Errno::EINVAL)?);
    let in_record = record_of(c, set, who).map(|r| lane(r, num));
    let recorded = in_record.and_then(|(at, shift)| txn.get(at).map(|w| read_lane(w, shift))).unwrap_or(0);
    let fit = |adjust: i32| i16::try_from(adjust).map(i32::from).map_err(|_| Errno::ERANGE);
    match beside {
        Some(b) if b.owner == who => {
            let b = Beside { adjust: fit(b.adjust + by)?, ..b };
            Ok(txn.set(hi_at, b.word())?)
        }
        None if recorded == 0 => Ok(txn.set(hi_at, Beside { owner: who, adjust: fit(by)? }.word())?),
        _ => {
            // ensure_record has seen to it that there is a record.
            let (at, shift) = in_record.ok_or(Errno::ENOMEM)?;
            let word = txn.get(at).ok_or(Errno::EINVAL)?;
            Ok(txn.set(at, write_lane(word, shift, fit(recorded + by)?))?)
        }
    }
}

/// Makes a record for the caller if its operations need one.
pub fn ensure_record(c: &Ctx, set: &Set, signals: &SignalsBlocked, sops: &[Sembuf]) -> Result<(), Errno> {
    signals.nothing_changed();
    ensure_record_for(c, set, signals, c.me, sops.len(), |i| sops[i])
}

/// Makes a record for a process if its operations need one: because somebody else's adjustment is beside a
/// semaphore.
pub fn ensure_record_for(
    c: &Ctx,
    set: &Set,
    signals: &SignalsBlocked,
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
    let guard = dir::lock(c, signals)?;
    let mut txn = guard.txn();
    let (at, len) = dir::take_block(c, &mut txn, HEAD + set.nsems.div_ceil(4) as u64 * 8)?;
    txn.set(at, who.word())?;
    txn.set(at + 8, set.entry.undo.load(Relaxed))?;
    txn.set(at + 16, len)?;
    txn.put(&set.entry.undo, at)?;
    c.pool.touch(who, set.reference());
    txn.commit()?;
    Ok(())
}

/// The words that hold a record's adjustments.
pub fn lanes(c: &Ctx, set: &Set, record: u64) -> Option<&'static [AtomicU64]> {
    c.words(record + HEAD, set.nsems.div_ceil(4).into())
}

fn is_empty(c: &Ctx, set: &Set, record: u64) -> bool {
    lanes(c, set, record).is_some_and(|words| words.iter().all(|w| w.load(Relaxed) == 0))
}

/// Frees records that hold nothing, so that fast paths may keep adjustments beside the semaphores again.
pub fn sweep(c: &Ctx, set: &Set, signals: &SignalsBlocked) {
    let mut link = c.pool.offset_of(&set.entry.undo);
    for _ in 0..MAX_PROCS {
        let Some((at, record)) = record_at(c, link) else {
            return;
        };
        if !is_empty(c, set, at) {
            link = at + NEXT;
        } else if signals.in_passing(|| free_record(c, signals, link, at, record)).is_err() {
            return;
        }
    }
}

fn free_record(c: &Ctx, signals: &SignalsBlocked, link: u64, at: u64, record: &Undo) -> Result<(), Errno> {
    let guard = dir::lock(c, signals)?;
    let mut txn = guard.txn();
    txn.set(link, record.next.load(Relaxed))?;
    dir::give_block(c, &mut txn, at, record.block_len.load(Relaxed))?;
    Ok(txn.commit()?)
}

/// Applies and forgets all adjustments of a process that is gone, and nothing else. Returns whether it had
/// any.
pub fn take_back(c: &Ctx, set: &Set, guard: &Guard, who: ProcId) -> Result<bool, Errno> {
    let pid = if who == c.me { crate::pid_word(c) } else { crate::pid_word_of(c, who) };
    let mut changed = Changed::default();
    let cells = set.words(c)?;
    for num in 0..set.nsems {
        let beside = Beside::of(cells[num as usize * 2 + 1].load(Relaxed));
        if beside.is_none_or(|b| b.owner != who) {
            continue;
        }
        // From here on only the owner of the lock changes it.
        set.freeze(c, num)?;
        let beside = Beside::of(set.cell(c, num)?.hi.load(Relaxed));
        if let Some(b) = beside.filter(|b| b.owner == who) {
            let mut txn = guard.txn();
            txn.set(set.lo(num) + 8, 0)?;
            give_back(c, set, txn, num, b.adjust, pid)?;
            changed.add(num);
        }
    }
    if let Some(record) = record_of(c, set, who) {
        empty_record(c, set, guard, record, pid, &mut changed)?;
    }
    changed.thaw(c, set);
    Ok(changed.count > 0)
}

/// Semaphores that were changed, to let fast paths use them again. Where they are many, all of the set's are
/// gone through.
#[derive(Default)]
pub struct Changed {
    few: [u32; 16],
    count: usize,
}

impl Changed {
    /// Notes a semaphore.
    pub fn add(&mut self, num: u32) {
        if let Some(place) = self.few.get_mut(self.count) {
            *place = num;
        }
        self.count += 1;
    }

    /// Lets fast paths use them again.
    pub fn thaw(&self, c: &Ctx, set: &Set) {
        match self.few.get(..self.count) {
            Some(few) => thaw_all(c, set, few.len(), |i| few[i]),
            None => thaw_all(c, set, set.nsems as usize, |i| i as u32),
        }
    }
}

/// Applies and forgets the adjustments in a record.
fn empty_record(
    c: &Ctx,
    set: &Set,
    guard: &Guard,
    record: u64,
    pid: u64,
    changed: &mut Changed,
) -> Result<(), Errno> {
    let words = lanes(c, set, record).ok_or(Errno::EIDRM)?;
    for num in 0..set.nsems {
        let (at, shift) = lane(record, num);
        let word = words[num as usize / 4].load(Relaxed);
        let adjust = read_lane(word, shift);
        if adjust != 0 {
            set.freeze(c, num)?;
            let mut txn = guard.txn();
            txn.set(at, write_lane(word, shift, 0))?;
            give_back(c, set, txn, num, adjust, pid)?;
            changed.add(num);
        }
    }
    Ok(())
}

/// Adds an adjustment to a semaphore, in a transaction that forgets it.
fn give_back(c: &Ctx, set: &Set, mut txn: Txn, num: u32, adjust: i32, pid: u64) -> Result<(), Errno> {
    let lo = txn.get(set.lo(num)).ok_or(Errno::EINVAL)?;
    let new = (value(lo) + adjust).clamp(0, SEMVMX);
    txn.set(set.lo(num), with_value(lo, new, pid))?;
    txn.put(&set.entry.otime, c.kernel.now() as u64)?;
    Ok(txn.commit()?)
}

/// A process that is gone and still has an adjustment beside a semaphore that the operations name.
pub fn dead_beside(
    c: &Ctx,
    set: &Set,
    n: usize,
    sop: impl Fn(usize) -> Sembuf,
    gone: Gone,
) -> Option<ProcId> {
    (0..n).find_map(|i| {
        let cell = set.cell(c, sop(i).num.into()).ok()?;
        Beside::of(cell.hi.load(Relaxed)).map(|b| b.owner).filter(|o| gone.is(c, *o))
    })
}

/// A process that is gone and still has an adjustment beside such a semaphore, or in a record.
pub fn dead_owner(c: &Ctx, set: &Set, n: usize, sop: impl Fn(usize) -> Sembuf, gone: Gone) -> Option<ProcId> {
    dead_beside(c, set, n, sop, gone)
        .or_else(|| records(c, set).find_map(|(at, record)| owner_if_gone(c, set, at, record, gone)))
}

/// The process that a record is of, if it is gone.
pub fn owner_if_gone(c: &Ctx, set: &Set, at: u64, record: &Undo, gone: Gone) -> Option<ProcId> {
    let owner = ProcId::of_word(record.owner.load(Relaxed))?;
    // The kernel is asked last where that is dearer.
    if set.nsems <= QUICKLY_READ && is_empty(c, set, at) {
        return None;
    }
    (gone.is(c, owner) && !is_empty(c, set, at)).then_some(owner)
}

/// Has a process, whose record this is, an adjustment there and another one beside the same semaphore?
pub fn has_twice(c: &Ctx, set: &Set, record: u64, who: ProcId) -> bool {
    let has = |num: u32| {
        let (at, shift) = lane(record, num);
        let word = c.word(at).map_or(0, |w| w.load(Relaxed));
        let hi = set.cell(c, num).map_or(0, |cell| cell.hi.load(Relaxed));
        read_lane(word, shift) != 0 && Beside::of(hi).is_some_and(|b| b.owner == who)
    };
    (0..set.nsems).any(has)
}

/// Does anybody but the caller have an adjustment of this semaphore, or of any in a record?
pub fn is_foreign(c: &Ctx, set: &Set, num: u32) -> bool {
    let beside = set.cell(c, num).ok().and_then(|cell| Beside::of(cell.hi.load(Relaxed)));
    beside.is_some_and(|b| b.owner != c.me) || set.entry.undo.load(Relaxed) != 0
}

/// Forgets all adjustments of one semaphore (`SETVAL`), or of all (`CLEAR_ALL`): begun by setting `clear` in
/// the transaction that sets the values, finished here, or by the process that takes the lock over.
pub fn finish_clearing(c: &Ctx, set: &Set) {
    let clear = set.entry.clear.load(Relaxed);
    if clear == 0 {
        return;
    }
    for (at, _) in records(c, set) {
        let Some(words) = lanes(c, set, at) else {
            return;
        };
        if clear == CLEAR_ALL {
            words.iter().for_each(|word| word.store(0, Relaxed));
            continue;
        }
        // One that the set does not have is nobody's.
        let num = u32::try_from(clear - 1).unwrap_or(u32::MAX);
        if let Some(word) = words.get(num as usize / 4) {
            let (_, shift) = lane(at, num % 4);
            word.store(write_lane(word.load(Relaxed), shift, 0), Relaxed);
        }
    }
    // The next owner of the lock sees the rest.
    if c.budget.is_spent() {
        return;
    }
    set.entry.clear.store(0, Release);
}
