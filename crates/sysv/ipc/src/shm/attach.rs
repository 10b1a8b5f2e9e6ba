//! Attaching and detaching segments, and counting attachments for children.

use super::destroy::{drop_holds, reap_if_removed};
use super::extent::{extent_of, Extent};
use super::holds::{self, Detached, Off, FEW};
use super::{SHM_EXEC, SHM_RDONLY};
use crate::directory as dir;
use crate::{perm, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Head, Hold, Kind};
use vshmem_pool::lock::SignalsBlocked;

/// Times that a detach looks for its attachment record, to note there what it gives up.
const NOTE_TRIES: u32 = 3;

/// A segment that the caller may attach in that way.
fn admitted(c: &Ctx, id: i32, flg: i32) -> Result<(u32, &'static Head), Errno> {
    let (index, head) = dir::lookup(c, Kind::Shm, id)?;
    let exec = if flg & SHM_EXEC != 0 { 0o111 } else { 0 };
    let write = if flg & SHM_RDONLY != 0 { 0 } else { perm::WRITE };
    perm::check(c, head, perm::READ | write | exec)?;
    Ok((index, head))
}

/// Checks what [`attach`] checks and returns what it would, but counts nothing. So a `shmat` whose address
/// turns out to be taken leaves no trace: map first, then attach and compare.
pub fn look(c: &Ctx, id: i32, flg: i32) -> Result<Extent, Errno> {
    let (index, _) = admitted(c, id, flg)?;
    extent_of(c, c.shm(index).ok_or(Errno::EINVAL)?)
}

/// The first half of `shmat`: checks permission by `SHM_RDONLY` and `SHM_EXEC` in `flg`, and counts one
/// attachment of the caller. If mapping fails, [`detach`] takes it back.
pub fn attach(c: &Ctx, id: i32, flg: i32) -> Result<Extent, Errno> {
    attach_by(c, id, flg, 0)
}

/// [`attach`] of what is mapped by the caller's source with this number; 0: by none.
pub fn attach_by(c: &Ctx, id: i32, flg: i32, source: u64) -> Result<Extent, Errno> {
    let (index, head) = admitted(c, id, flg)?;
    let signals = SignalsBlocked::attentive(c.kernel);
    reap_if_removed(c, &signals, id);
    signals.nothing_changed();
    let guard = dir::lock(c, &signals)?;
    if !dir::still(head, id) {
        return Err(Errno::EINVAL);
    }
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    let extent = extent_of(c, shm)?;
    holds::drop_dead_among(c, &guard, shm, index, FEW)?;
    holds::count_one(c, &guard, (shm, index), (c.me, c.name_of_source(source)), 1)?;
    Ok(extent)
}

/// `shmdt`, after unmapping: one attachment of the caller less. The last one destroys a removed segment.
pub fn detach(c: &Ctx, id: i32) {
    detach_by(c, id, 0, false);
}

/// [`detach`] of what was mapped by a source. With `has_heirs` others may map it still.
pub fn detach_by(c: &Ctx, id: i32, source: u64, has_heirs: bool) {
    let what = Detached { id, source, n: 1, has_heirs };
    let is_noted = note_detached(c, &what);
    settle(c, &SignalsBlocked::brief(c.kernel), &what, is_noted, None);
}

/// Notes that the caller has a segment attached less often. Waits for nothing: the next owner of the pool's
/// lock that looks at the segment takes that off, the caller itself by [`settle`], as a rule. False: the list
/// where it is to be noted changes all the time, or the segment is gone.
pub fn note_detached(c: &Ctx, what: &Detached) -> bool {
    (0..NOTE_TRIES).any(|_| holds::owe(c, what))
}

/// The second half of `shmdt`: takes off what was noted, or could not be. Where the lock is not to be had in
/// time, the next owner that looks at the segment does it. `told`: so many bytes of the segment were mapped.
pub fn settle(c: &Ctx, signals: &SignalsBlocked, what: &Detached, is_noted: bool, told: Option<u64>) {
    let taken = take_owed(c, signals, what.id, Some(what).filter(|_| !is_noted), told);
    if taken.is_ok() || !signals.has_failed() {
        reap_if_removed(c, signals, what.id);
    } else if !is_noted {
        note_detached(c, what);
    }
}

/// [`settle`] for all segments of which the caller has noted something.
pub fn settle_all(c: &Ctx, signals: &SignalsBlocked) {
    dir::each_touched(c, c.me, Kind::Shm, |index| {
        let Some(shm) = c.shm(index).filter(|_| !signals.has_failed()) else { return };
        let is_owed = |_, hold: &Hold| hold.owner.load(Relaxed) == c.me.word() && Off::owed(hold).is_some();
        if holds::each(c, shm, is_owed).is_some() {
            let id = shm.head.id.load(Acquire) as i32;
            if take_owed(c, signals, id, None, None).is_ok() {
                reap_if_removed(c, signals, id);
            }
        }
    });
}

/// Takes off what the caller has given up, and what it could not note before.
fn take_owed(
    c: &Ctx,
    signals: &SignalsBlocked,
    id: i32,
    missing: Option<&Detached>,
    told: Option<u64>,
) -> Result<(), Errno> {
    drop_holds(c, signals, id, told, |guard, shm, index| {
        if let Some(missing) = missing {
            holds::owe(c, missing);
        }
        holds::drop_dead_among(c, guard, shm, index, FEW)?;
        holds::take_from(c, guard, (shm, index), c.me, Off::owed)
    })
}

/// Counts all attachments of the caller for its child too, before it forks, as far as that was not done
/// before. `kept` tells how many of a segment, by a source as records name it, the child does not get.
pub fn fork(
    c: &Ctx,
    signals: &SignalsBlocked,
    child: ProcId,
    kept: &dyn Fn(i32, u64) -> u64,
) -> Result<(), Errno> {
    let mut result = Ok(());
    dir::each_touched(c, c.me, Kind::Shm, |index| {
        if result.is_ok() {
            result = fork_segment(c, signals, index, child, kept);
        }
    });
    result
}

fn fork_segment(
    c: &Ctx,
    signals: &SignalsBlocked,
    index: u32,
    child: ProcId,
    kept: &dyn Fn(i32, u64) -> u64,
) -> Result<(), Errno> {
    let guard = dir::lock(c, signals)?;
    let Some(shm) = c.shm(index) else { return Ok(()) };
    let id = shm.head.id.load(Relaxed) as i32;
    let mut result = Ok(());
    holds::each(c, shm, |_, hold| {
        if hold.owner.load(Relaxed) == c.me.word() {
            let source = hold.source.load(Relaxed);
            let n = holds::held(hold).saturating_sub(kept(id, source));
            result = holds::count_once(c, &guard, (shm, index), (child, source), n);
        }
        result.is_err()
    });
    result
}

/// Counts `n` attachments by a source that the caller has from its parent, unless they are counted. It has
/// them, so nobody asks whether it may.
pub fn inherit(c: &Ctx, signals: &SignalsBlocked, id: i32, source: u64, n: u64) -> Result<(), Errno> {
    let guard = dir::lock(c, signals)?;
    let (index, _) = dir::lookup(c, Kind::Shm, id)?;
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    holds::count_once(c, &guard, (shm, index), (c.me, c.name_of_source(source)), n)
}
