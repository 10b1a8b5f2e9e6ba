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

use crate::{directory as dir, pid_word, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed, Release};
use vshmem_pool::layout::{Hold, Kind, Shm};
use vshmem_pool::lock::Guard;
use vshmem_pool::log::Txn;

/// No list of attachment records is longer: there are not more processes.
pub const MOST: u32 = vshmem_pool::layout::MAX_PROCS;

/// Counts `n` attachments for a process, as the caller's doing.
pub fn count_one(c: &Ctx, guard: &Guard, shm: &Shm, index: u32, who: ProcId, n: u64) -> Result<(), Errno> {
    let mut txn = guard.txn();
    match find(c, shm, who) {
        Some((_, hold)) => txn.put(&hold.count, hold.count.load(Relaxed).saturating_add(n))?,
        None => add_record(c, &mut txn, shm, who, n)?,
    }
    finish_count(c, txn, shm, index, who, n)
}

/// The same for a process that has the segment counted for it by somebody else, at most once.
pub fn count_once(c: &Ctx, guard: &Guard, shm: &Shm, index: u32, who: ProcId, n: u64) -> Result<(), Errno> {
    if n == 0 || find(c, shm, who).is_some() {
        return Ok(());
    }
    let mut txn = guard.txn();
    add_record(c, &mut txn, shm, who, n)?;
    finish_count(c, txn, shm, index, who, n)
}

fn add_record(c: &Ctx, txn: &mut Txn, shm: &Shm, who: ProcId, n: u64) -> Result<(), Errno> {
    let (at, _) = dir::take_block(c, txn, size_of::<Hold>() as u64)?;
    txn.set(at, who.word())?;
    txn.set(at + 8, shm.holds.load(Relaxed))?;
    txn.set(at + 16, n)?;
    txn.set(at + 24, 0)?;
    txn.set(at + 32, 0)?;
    txn.set(at + 40, shm.head.id.load(Relaxed).into())?;
    Ok(txn.put(&shm.holds, at)?)
}

fn finish_count(c: &Ctx, mut txn: Txn, shm: &Shm, index: u32, who: ProcId, n: u64) -> Result<(), Errno> {
    txn.put(&shm.nattch, shm.nattch.load(Relaxed).saturating_add(n))?;
    txn.put(&shm.atime, c.kernel.now() as u64)?;
    txn.put(&shm.lpid, pid_word(c))?;
    c.pool.touch(who, Kind::Shm.reference(index));
    txn.commit()?;
    Ok(())
}

/// The attachment record of a process, and the offset of the link that leads to it.
pub fn find(c: &Ctx, shm: &Shm, who: ProcId) -> Option<(u64, &'static Hold)> {
    each(c, shm, |_, hold| hold.owner.load(Relaxed) == who.word())
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

/// Records that the caller has a segment attached `n` times less than is counted. Without the lock, so only the
/// number that is the caller's alone is changed, in a record that names the caller and the segment: it stays
/// where it is, for only what is owed for all its attachments takes it away, and this one is not owed yet.
/// False if it is not found: the list has changed meanwhile, so the lock may be had.
pub fn owe(c: &Ctx, id: i32, n: u64) -> bool {
    let found = dir::lookup(c, Kind::Shm, id).map(|(index, _)| c.shm(index));
    let Ok(Some(shm)) = found else { return false };
    let (mine, segment) = (c.me.word(), u64::from(id as u32));
    let is_it = |_, hold: &Hold| hold.owner.load(Relaxed) == mine && hold.segment.load(Relaxed) == segment;
    let hold = each(c, shm, is_it);
    if let Some((_, hold)) = hold {
        hold.detached.fetch_add(n, Release);
    }
    hold.is_some()
}

/// Attachments that a record counts and its owner has given up.
pub fn owed(hold: &Hold) -> u64 {
    let detached = hold.detached.load(Acquire);
    let owed = detached.wrapping_sub(hold.taken_off.load(Relaxed));
    owed.min(hold.count.load(Relaxed))
}

/// Takes up to `n` attachments from a record, of which `detached` were owed. Returns whether that was all of
/// them: then the record is gone.
pub fn take_off(
    c: &Ctx,
    guard: &Guard,
    shm: &Shm,
    (link, hold): (u64, &Hold),
    (n, detached): (u64, u64),
    pid: u64,
) -> Result<bool, Errno> {
    let has = hold.count.load(Relaxed);
    let less = n.min(has);
    let mut txn = guard.txn();
    if less == has {
        txn.set(link, hold.next.load(Relaxed))?;
        dir::give_block(c, &mut txn, c.pool.offset_of(hold), size_of::<Hold>() as u64)?;
    } else {
        txn.put(&hold.count, has - less)?;
        if detached > 0 {
            let before = hold.taken_off.load(Relaxed);
            txn.put(&hold.taken_off, before.wrapping_add(detached))?;
        }
    }
    txn.put(&shm.nattch, shm.nattch.load(Relaxed).saturating_sub(less))?;
    txn.put(&shm.dtime, c.kernel.now() as u64)?;
    txn.put(&shm.lpid, pid)?;
    txn.commit()?;
    Ok(less == has)
}

/// Drops what the dead have left, and the living have given up without the lock, as far as it is among the
/// first `most` records.
pub fn drop_dead_among(c: &Ctx, guard: &Guard, shm: &Shm, index: u32, most: u32) -> Result<bool, Errno> {
    let mut any = false;
    let mut link = c.pool.offset_of(&shm.holds);
    for _ in 0..most {
        let Some((at, hold)) = at(c, link) else {
            break;
        };
        let owner = ProcId::of_word(hold.owner.load(Relaxed));
        let is_dead = |o: &ProcId| *o != c.me && c.owner_is_dead(*o);
        let off = match (owner, owed(hold)) {
            (Some(dead), _) if is_dead(&dead) => Some((dead, (u64::MAX, 0))),
            (Some(owner), owed) if owed > 0 => Some((owner, (owed, owed))),
            _ => None,
        };
        let Some((owner, n)) = off else {
            link = at + 8;
            continue;
        };
        any = true;
        let pid = crate::pid_word_of(c, owner);
        if take_off(c, guard, shm, (link, hold), n, pid)? {
            c.pool.untouch(owner, Kind::Shm.reference(index));
        } else {
            link = at + 8;
        }
    }
    Ok(any)
}
