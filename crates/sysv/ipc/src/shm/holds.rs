//! Attachment records: which processes have a segment attached, and how often. A list for each segment, which
//! changes under the pool's lock.
//!
//! # A process that does not get the lock
//! `shmdt` can't fail for that, nor wait for an owner that does not move, and what is not attached any more
//! must not be counted for a child that is forked meanwhile. So it first counts up [`Hold::detached`], which
//! is the caller's alone. The next owner of the lock that looks at the segment, the caller itself as a rule,
//! takes the difference to [`Hold::taken_off`] off the attachments, with one transaction for both: so it is
//! taken off once, whatever dies. Every call that asks how many attachments there are does so before, so none
//! sees that it was not done at once.
//!
//! # What keeps a segment that nobody is known to have attached
//! A process can come by a mapping without a call: from a parent that was cloned by the kernel alone, or by
//! `mremap`. Such an *heir* maps by the same source as the one that attached. So where a process that has a
//! segment attached dies, or detaches it and may have heirs, its record stays without attachments as long as
//! anything is mapped by that source; and a segment is destroyed when it has no record any more. A process
//! also notes that it may have heirs, for the one that takes off what it has given up: all that it has
//! attached by one source may have them, or none, for it then maps what comes by another. Of several records
//! of one source, a parent's and its children's, the last one stays.

use crate::{directory as dir, pid_word, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed, Release};
use vshmem_pool::layout::{Hold, Kind, Shm};
use vshmem_pool::lock::Guard;
use vshmem_pool::log::Txn;

/// No list of attachment records is longer: there are not more processes.
pub const MOST_RECORDS: u32 = vshmem_pool::layout::MAX_PROCS;

/// A process that died before another attached or detached a segment must not be the last that did
/// (`shm_lpid`). So many others are looked at each time; where there are more, that can be wrong until
/// somebody asks for the segment's state.
pub const FEW: u32 = 16;

/// Bits of [`Hold::inherited`]: its attachments were counted for a child, by the parent.
const CHILDS: u64 = 1;
/// Others may map the segment by the record's source.
const HAS_HEIRS: u64 = 2;

/// A process with attachments, and the source that they are mapped by: its name, or 0.
pub type Holder = (ProcId, u64);

/// Counts `n` attachments for a process, as the caller's doing.
pub fn count_one(
    c: &Ctx,
    guard: &Guard,
    (shm, index): (&Shm, u32),
    (who, source): Holder,
    n: u64,
) -> Result<(), Errno> {
    let mut txn = guard.txn();
    match find(c, shm, who, Some(source)) {
        Some((_, hold)) => txn.put(&hold.count, hold.count.load(Relaxed).saturating_add(n))?,
        None => add_record(c, &mut txn, shm, (who, source), n)?,
    }
    finish_count(c, txn, (shm, index), who, n)
}

/// [`count_one`] for a process that may have these counted by somebody else: at most once.
pub fn count_once(
    c: &Ctx,
    guard: &Guard,
    (shm, index): (&Shm, u32),
    (who, source): Holder,
    n: u64,
) -> Result<(), Errno> {
    if n == 0 || find(c, shm, who, Some(source)).is_some() {
        return Ok(());
    }
    let mut txn = guard.txn();
    add_record(c, &mut txn, shm, (who, source), n)?;
    finish_count(c, txn, (shm, index), who, n)
}

fn add_record(c: &Ctx, txn: &mut Txn, shm: &Shm, (who, source): Holder, n: u64) -> Result<(), Errno> {
    let (at, _) = dir::take_block(c, txn, size_of::<Hold>() as u64)?;
    txn.set(at, who.word())?;
    txn.set(at + 8, shm.holds.load(Relaxed))?;
    // The others are zeros, as the block is.
    txn.set(at + 16, n)?;
    txn.set(at + 40, shm.head.id.load(Relaxed).into())?;
    txn.set(at + 48, source)?;
    if who != c.me {
        txn.set(at + 56, CHILDS)?;
    }
    Ok(txn.put(&shm.holds, at)?)
}

fn finish_count(c: &Ctx, mut txn: Txn, (shm, index): (&Shm, u32), who: ProcId, n: u64) -> Result<(), Errno> {
    txn.put(&shm.nattch, shm.nattch.load(Relaxed).saturating_add(n))?;
    txn.put(&shm.atime, c.kernel.now() as u64)?;
    txn.put(&shm.lpid, pid_word(c))?;
    c.pool.touch(who, Kind::Shm.reference(index));
    txn.commit()?;
    Ok(())
}

/// An attachment record of a process that counts some, by a source or by any, and the offset of the link that
/// leads to it.
pub fn find(c: &Ctx, shm: &Shm, who: ProcId, source: Option<u64>) -> Option<(u64, &'static Hold)> {
    each(c, shm, |_, hold| {
        let is_by = source.is_none_or(|source| hold.source.load(Relaxed) == source);
        is_by && hold.owner.load(Relaxed) == who.word() && hold.count.load(Relaxed) > 0
    })
}

/// Calls `stop` with the offset of the link to it and each attachment record, until it returns true; returns
/// that one.
pub fn each(
    c: &Ctx,
    shm: &Shm,
    mut stop: impl FnMut(u64, &'static Hold) -> bool,
) -> Option<(u64, &'static Hold)> {
    let mut link = c.pool.offset_of(&shm.holds);
    for _ in 0..MOST_RECORDS {
        let (at, hold) = at(c, link)?;
        if stop(link, hold) {
            return Some((link, hold));
        }
        link = at + 8;
    }
    None
}

/// The record that a link leads to, and its offset.
fn at(c: &Ctx, link: u64) -> Option<(u64, &'static Hold)> {
    let at = c.word(link)?.load(Acquire);
    let hold = c.at::<Hold>(at).filter(|_| at != 0)?;
    Some((at, hold))
}

/// Attachments of a segment that the caller gives up.
#[derive(Clone, Copy)]
pub struct Detached {
    /// The segment.
    pub id: i32,
    /// The number of the caller's source that it is mapped by; 0: of none.
    pub source: u64,
    /// Their number.
    pub n: u64,
    /// Others may map the segment by that source still.
    pub has_heirs: bool,
}

/// Records that the caller has a segment attached less often than is counted. Without the lock, so only the
/// words that are the caller's alone are changed, in a record that names the caller and the segment: it stays
/// where it is, for only what is owed for all its attachments takes it away, and this one is not owed yet.
/// False if it is not found: the list has changed meanwhile, so the lock may be had.
pub fn owe(c: &Ctx, what: &Detached) -> bool {
    let found = dir::lookup(c, Kind::Shm, what.id).map(|(index, _)| c.shm(index));
    let Ok(Some(shm)) = found else { return false };
    let source = c.name_of_source(what.source);
    let Some((_, hold)) = find(c, shm, c.me, Some(source)) else { return false };
    let is_it = hold.segment.load(Relaxed) == u64::from(what.id as u32);
    if is_it {
        if what.has_heirs {
            hold.inherited.fetch_or(HAS_HEIRS, Relaxed);
        }
        hold.detached.fetch_add(what.n, Release);
    }
    is_it
}

/// Attachments that a record counts and its owner has given up.
fn owed(hold: &Hold) -> u64 {
    let detached = hold.detached.load(Acquire);
    let owed = detached.wrapping_sub(hold.taken_off.load(Relaxed));
    owed.min(hold.count.load(Relaxed))
}

/// Attachments that a record counts and its owner has not given up.
pub fn held(hold: &Hold) -> u64 {
    hold.count.load(Relaxed).saturating_sub(owed(hold))
}

/// Attachments to be taken from a record.
#[derive(Clone, Copy)]
pub struct Off {
    /// Attachments, at the most.
    pub n: u64,
    /// Attachments among them that the owner has given up.
    pub detached: u64,
    /// The heirs that may map the segment by the same source, if the record does not say so.
    pub heirs: Heirs,
}

/// The heirs that there may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Heirs {
    /// There are none.
    None,
    /// The owner is dead and has not said.
    Unknown,
    /// There may be some.
    Suspected,
}

impl Off {
    /// All attachments of a record.
    pub fn all(heirs: Heirs) -> Off {
        Off { n: u64::MAX, detached: 0, heirs }
    }

    /// The attachments that the owner of a record has given up, if there are any.
    pub fn owed(hold: &Hold) -> Option<Off> {
        let n = owed(hold);
        (n > 0).then_some(Off { n, detached: n, heirs: Heirs::None })
    }
}

/// May something be mapped by a record's source, by others than its owner?
fn has_heirs(c: &Ctx, shm: &Shm, hold: &Hold, heirs: Heirs) -> bool {
    let inherited = hold.inherited.load(Relaxed);
    let is_suspected = heirs == Heirs::Suspected || inherited & HAS_HEIRS != 0;
    // Of a child that died and had its attachments from a parent that has them still, the parent's record
    // says enough: most such children have no heirs, and that process knows whether itself has.
    let is_covered = || inherited & CHILDS != 0 && by_same_source(c, shm, hold, 1).is_some();
    let asks = is_suspected || heirs == Heirs::Unknown && !is_covered();
    asks && !c.is_unmapped(hold.source.load(Relaxed))
}

/// Another record of the same source that counts so many attachments at the least.
fn by_same_source(c: &Ctx, shm: &Shm, hold: &Hold, least: u64) -> Option<(u64, &'static Hold)> {
    let source = hold.source.load(Relaxed);
    each(c, shm, |_, other| {
        let is_another = !core::ptr::eq(other, hold) && other.source.load(Relaxed) == source;
        is_another && other.count.load(Relaxed) >= least
    })
}

/// Takes attachments from a record. Returns whether the record is gone: those were all, and, if there may be
/// heirs, nothing is mapped by its source, or another record keeps the segment for them.
pub fn take_off(
    c: &Ctx,
    guard: &Guard,
    shm: &Shm,
    (link, hold): (u64, &Hold),
    off: Off,
    pid: u64,
) -> Result<bool, Errno> {
    let has = hold.count.load(Relaxed);
    let less = off.n.min(has);
    let has_heirs = less == has && has_heirs(c, shm, hold, off.heirs);
    // One for each source is enough, however many have come and gone.
    let keeper = if has_heirs { by_same_source(c, shm, hold, 0) } else { None };
    let is_all = less == has && (!has_heirs || keeper.is_some());
    let mut txn = guard.txn();
    if let Some((_, keeper)) = keeper {
        txn.put(&keeper.inherited, keeper.inherited.load(Relaxed) | HAS_HEIRS)?;
    }
    if is_all {
        txn.set(link, hold.next.load(Relaxed))?;
        dir::give_block(c, &mut txn, c.pool.offset_of(hold), size_of::<Hold>() as u64)?;
    } else {
        txn.put(&hold.count, has - less)?;
        if off.detached > 0 {
            let before = hold.taken_off.load(Relaxed);
            txn.put(&hold.taken_off, before.wrapping_add(off.detached))?;
        }
    }
    if has > 0 {
        txn.put(&shm.nattch, shm.nattch.load(Relaxed).saturating_sub(less))?;
        txn.put(&shm.dtime, c.kernel.now() as u64)?;
        txn.put(&shm.lpid, pid)?;
    }
    txn.commit()?;
    Ok(is_all)
}

/// Drops attachments of the dead, those that the living have given up without the lock, and those that heirs
/// have unmapped, as far as it is among the first `most` records.
pub fn drop_dead_among(c: &Ctx, guard: &Guard, shm: &Shm, index: u32, most: u32) -> Result<bool, Errno> {
    let mut any = false;
    let mut link = c.pool.offset_of(&shm.holds);
    for _ in 0..most {
        let Some((at, hold)) = at(c, link) else {
            break;
        };
        let owner = ProcId::of_word(hold.owner.load(Relaxed));
        let is_dead = |o: &ProcId| *o != c.me && c.owner_is_dead(*o);
        let off = match owner {
            Some(_) if hold.count.load(Relaxed) == 0 => {
                c.is_unmapped(hold.source.load(Relaxed)).then_some(Off::all(Heirs::None))
            }
            Some(dead) if is_dead(&dead) => Some(Off::all(Heirs::Unknown)),
            _ => Off::owed(hold),
        };
        let Some((owner, off)) = owner.zip(off) else {
            link = at + 8;
            continue;
        };
        any = true;
        if !take_off(c, guard, shm, (link, hold), off, pid_of_owner(c, owner))? {
            link = at + 8;
        }
        if off.detached > 0 {
            untouch(c, shm, index, owner);
        }
    }
    Ok(any)
}

/// Takes from each record of a process what `off` says, if that is anything.
pub fn take_from(
    c: &Ctx,
    guard: &Guard,
    (shm, index): (&Shm, u32),
    who: ProcId,
    off: impl Fn(&Hold) -> Option<Off>,
) -> Result<(), Errno> {
    let mut any = false;
    let is_it = |_, hold: &Hold| hold.owner.load(Relaxed) == who.word() && off(hold).is_some();
    // Each step takes all from one.
    for _ in 0..MOST_RECORDS {
        let Some((link, hold)) = each(c, shm, is_it) else { break };
        let Some(off) = off(hold) else { break };
        take_off(c, guard, shm, (link, hold), off, pid_of_owner(c, who))?;
        any = true;
    }
    if any {
        untouch(c, shm, index, who);
    }
    Ok(())
}

fn pid_of_owner(c: &Ctx, owner: ProcId) -> u64 {
    if owner == c.me {
        pid_word(c)
    } else {
        crate::pid_word_of(c, owner)
    }
}

/// The segment holds nothing of a process any more, unless that has it attached by another source.
fn untouch(c: &Ctx, shm: &Shm, index: u32, who: ProcId) {
    if find(c, shm, who, None).is_none() && !c.budget.is_spent() {
        c.pool.untouch(who, Kind::Shm.reference(index));
    }
}
