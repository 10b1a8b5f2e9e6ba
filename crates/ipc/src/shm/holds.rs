//! Attachment records: which processes have a segment attached, and how often. A list for each segment, which
//! changes under the pool's lock.
//!
//! # A process that does not get the lock
//! `shmdt` can't fail for that, nor wait for an owner that does not move. It counts up [`Hold::detached`],
//! which is the caller's alone. The next owner of the lock that looks at the segment takes the difference to
//! [`Hold::taken_off`] off the attachments, with one transaction for both: so it is taken off once, whatever
//! dies. Every call that asks how many attachments there are does so before, so none sees that it was not
//! done at once.
//!
//! # What keeps a segment that nobody is known to have attached
//! A process can come by a mapping without a call: from a parent that was cloned by the kernel alone, or by
//! `mremap`. Such an *heir* maps by the same source as the one that attached. So where a process that has a
//! segment attached dies, or detaches it and may have heirs, its record stays without attachments as long as
//! anything is mapped by that source; and a segment is destroyed when it has no record any more.

use crate::{directory as dir, pid_word, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed, Release};
use vshmem_pool::layout::{Hold, Kind, Shm};
use vshmem_pool::lock::Guard;

/// No list of attachment records is longer: there are not more processes.
pub const MOST: u32 = vshmem_pool::layout::MAX_PROCS;

/// Whose attachments, and what they are mapped by: a source's name, or 0.
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
        None => {
            let (at, _) = dir::take_block(c, &mut txn, size_of::<Hold>() as u64)?;
            txn.set(at, who.word())?;
            txn.set(at + 8, shm.holds.load(Relaxed))?;
            // The others are zeros, as the block is.
            txn.set(at + 16, n)?;
            txn.set(at + 40, shm.head.id.load(Relaxed).into())?;
            txn.set(at + 48, source)?;
            if who != c.me {
                txn.set(at + 56, 1)?;
            }
            txn.put(&shm.holds, at)?;
        }
    }
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
    for _ in 0..MOST {
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

/// Records that the caller has a segment attached once less than is counted. Without the lock, so only the
/// number that is the caller's alone is changed, in a record that names the caller and the segment: it stays
/// where it is, for only what is owed for all its attachments takes it away, and this one is not owed yet.
/// False if it is not found: the list has changed meanwhile, so the lock may be had.
pub fn owe_one(c: &Ctx, id: i32, source: u64) -> bool {
    let found = dir::lookup(c, Kind::Shm, id).map(|(index, _)| c.shm(index));
    let Ok(Some(shm)) = found else { return false };
    let (mine, segment) = (c.me.word(), u64::from(id as u32));
    let is_it = |_, hold: &Hold| {
        let is_mine = hold.owner.load(Relaxed) == mine && hold.source.load(Relaxed) == source;
        is_mine && hold.segment.load(Relaxed) == segment
    };
    let hold = each(c, shm, is_it);
    if let Some((_, hold)) = hold {
        hold.detached.fetch_add(1, Release);
    }
    hold.is_some()
}

/// Attachments that a record counts and its owner has given up.
pub fn owed(hold: &Hold) -> u64 {
    let detached = hold.detached.load(Acquire);
    let owed = detached.wrapping_sub(hold.taken_off.load(Relaxed));
    owed.min(hold.count.load(Relaxed))
}

/// Has somebody attachments by the source from which a child has its own? Then that record says enough: it
/// stays while anything is mapped by the source, unless its owner knows better.
fn is_covered(c: &Ctx, shm: &Shm, hold: &Hold) -> bool {
    let source = hold.source.load(Relaxed);
    let covers = |other: &Hold| {
        let is_another = !core::ptr::eq(other, hold) && other.count.load(Relaxed) > 0;
        is_another && other.source.load(Relaxed) == source
    };
    hold.inherited.load(Relaxed) != 0 && each(c, shm, |_, other| covers(other)).is_some()
}

/// What is taken from a record.
#[derive(Clone, Copy)]
pub struct Off {
    /// Attachments, at the most.
    pub n: u64,
    /// How many of them were owed.
    pub detached: u64,
    /// Others may map the segment by the same source.
    pub has_heirs: bool,
}

/// Takes attachments from a record. Returns whether the record is gone: those were all, and nothing is mapped
/// by its source, if there may be heirs.
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
    let has_none = || is_covered(c, shm, hold) || c.is_unmapped(hold.source.load(Relaxed));
    let is_all = less == has && (!off.has_heirs || has_none());
    let mut txn = guard.txn();
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

/// Drops what the dead have left, and the living have given up without the lock, and heirs have unmapped, as
/// far as it is among the first `most` records.
pub fn drop_dead_among(c: &Ctx, guard: &Guard, shm: &Shm, index: u32, most: u32) -> Result<bool, Errno> {
    let mut any = false;
    let mut link = c.pool.offset_of(&shm.holds);
    for _ in 0..most {
        let Some((at, hold)) = at(c, link) else {
            break;
        };
        let owner = ProcId::of_word(hold.owner.load(Relaxed));
        let is_dead = |o: &ProcId| *o != c.me && c.owner_is_dead(*o);
        let all = Off { n: u64::MAX, detached: 0, has_heirs: true };
        let off = match (owner, owed(hold)) {
            (Some(owner), _) if hold.count.load(Relaxed) == 0 => {
                c.is_unmapped(hold.source.load(Relaxed)).then_some((owner, all))
            }
            (Some(dead), _) if is_dead(&dead) => Some((dead, all)),
            (Some(owner), owed) if owed > 0 => {
                Some((owner, Off { n: owed, detached: owed, has_heirs: false }))
            }
            _ => None,
        };
        let Some((owner, off)) = off else {
            link = at + 8;
            continue;
        };
        any = true;
        let pid = crate::pid_word_of(c, owner);
        if take_off(c, guard, shm, (link, hold), off, pid)? {
            c.pool.untouch(owner, Kind::Shm.reference(index));
        } else {
            link = at + 8;
        }
    }
    Ok(any)
}
