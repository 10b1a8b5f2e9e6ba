//! V-shmem: segments (shmget(2), shmat(2), shmctl(2)).
//!
//! A segment is a range of pages. Mapping it into an address space is the caller's business ([`attach`] says
//! which bytes to map); here is who has how many attachments. All of it runs under the pool's lock: none of
//! it is on a data path.

mod get;
mod holds;
mod kept;
mod pending;

use crate::directory as dir;
use crate::{perm, pid_of, Ctx, Errno, Perm, ProcId};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::heap::Range;
use vshmem_pool::layout::{Head, Hold, Kind, Shm, PAGE};

pub use get::get;
pub(crate) use holds::each as each_hold;
pub use holds::Detached;
use holds::{Heirs, Off};
pub(crate) use kept::leave;
pub(crate) use pending::reap as reap_pending_pages;
use vshmem_pool::lock::{Guard, SignalsBlocked};

/// `SHM_RDONLY`.
pub const SHM_RDONLY: i32 = 0o10000;
/// `SHM_EXEC`.
pub const SHM_EXEC: i32 = 0o100000;
/// `SHM_HUGETLB`.
pub const SHM_HUGETLB: i32 = 0o4000;
/// `SHM_NORESERVE`.
pub const SHM_NORESERVE: i32 = 0o10000;
/// Mode bit: removed, destroyed with the last detach.
pub const SHM_DEST: u32 = 0o1000;
/// Mode bit: locked in memory.
pub const SHM_LOCKED: u32 = 0o2000;

/// So often a detach tries to find where to note that.
const TRIES: u32 = 3;

/// The bytes of the pool that are a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the pool, a multiple of the page size.
    pub offset: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Bytes to map: `size` rounded up to pages. More up to what the pool's segments are aligned to is the
    /// segment's alone, too.
    pub len: u64,
}

/// What `IPC_STAT` tells. Times in seconds since the epoch, 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShmDs {
    /// Owner and permissions.
    pub perm: Perm,
    /// Bytes asked for.
    pub size: u64,
    /// Last attach.
    pub atime: i64,
    /// Last detach.
    pub dtime: i64,
    /// Last change.
    pub ctime: i64,
    /// Pid of the creator.
    pub cpid: i32,
    /// Pid of the last process that attached or detached.
    pub lpid: i32,
    /// Kernel (member) of the creator.
    pub cmember: u16,
    /// Attachments.
    pub nattch: u64,
}

/// What `SHM_INFO` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShmInfo {
    /// Segments.
    pub used_ids: u64,
    /// Pages of all segments that were asked for.
    pub total: u64,
    /// Pages that they take.
    pub taken: u64,
}

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

/// A process that died before another attached or detached a segment must not be the last that did
/// (`shm_lpid`). So many others are looked at each time; where there are more, that can be wrong until
/// somebody asks for the segment's state.
const FEW: u32 = 16;

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

/// The pages of a segment, if they are in the heap.
fn range_of(c: &Ctx, shm: &Shm) -> Option<Range> {
    let heap = &c.pool.geometry().pages;
    let first = u32::try_from(shm.first.load(Relaxed)).ok()?;
    let count = u32::try_from(shm.pages.load(Relaxed)).ok()?;
    let end = first.checked_add(count)?;
    (count > 0 && end <= heap.count).then_some(Range::new(first, count, true))
}

fn extent_of(c: &Ctx, shm: &Shm) -> Result<Extent, Errno> {
    let range = range_of(c, shm).ok_or(Errno::EINVAL)?;
    let size = shm.size.load(Relaxed);
    let heap = &c.pool.geometry().pages;
    (heap.blocks_for(size) == Some(range.count) && range.first % heap.align == 0)
        .then(|| Extent { offset: heap.offset(range.first), size, len: size.next_multiple_of(PAGE) })
        .ok_or(Errno::EINVAL)
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

/// Notes that the caller has a segment attached less often. Waits for nothing: whoever has the pool's lock
/// next and looks at the segment takes that off, the caller itself by [`settle`], as a rule. False: the list
/// where it is to be noted changes all the time, or the segment is gone.
pub fn note_detached(c: &Ctx, what: &Detached) -> bool {
    (0..TRIES).any(|_| holds::owe(c, what))
}

/// The second half of `shmdt`: takes off what was noted, or could not be. Where the lock is not to be had in
/// time, it is done by whoever has it next and looks at the segment. `told`: so many bytes of the segment
/// were mapped.
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

/// The pid word of the process that made a segment, if the segment is removed: those that have it attached
/// share it with that process, as a rule, and with nobody else.
pub fn maker_of_removed(c: &Ctx, id: i32) -> Option<u64> {
    let (index, head) = dir::lookup(c, Kind::Shm, id).ok()?;
    let maker = c.shm(index)?.cpid.load(Relaxed);
    is_removed(head).then_some(maker)
}

/// Was the segment removed, while somebody had it attached?
pub(crate) fn is_removed(head: &Head) -> bool {
    head.mode.load(Relaxed) & SHM_DEST != 0
}

/// Whether a removed segment is still there depends on who of those that have it attached is alive. Returns
/// whether it found something of the dead.
fn reap_if_removed(c: &Ctx, signals: &SignalsBlocked, id: i32) -> bool {
    let found = dir::lookup(c, Kind::Shm, id);
    found.is_ok_and(|(_, head)| is_removed(head)) && reap_one(c, signals, id).unwrap_or(false)
}

/// Takes attachments off a segment, which is destroyed if it is removed and those were the last.
fn drop_holds(
    c: &Ctx,
    signals: &SignalsBlocked,
    id: i32,
    told: Option<u64>,
    take: impl FnOnce(&Guard, &'static Shm, u32) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let guard = dir::lock(c, signals)?;
    let (index, head) = dir::lookup(c, Kind::Shm, id)?;
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    take(&guard, shm, index)?;
    if is_unmapped(shm) && is_removed(head) {
        destroy(c, signals, guard, index, told)?;
    }
    Ok(())
}

/// Does nobody have it attached, nor a mapping of it that is not counted?
pub(crate) fn is_unmapped(shm: &Shm) -> bool {
    shm.nattch.load(Relaxed) == 0 && shm.holds.load(Relaxed) == 0
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

/// Frees a segment that is removed and not attached. Its memory goes back outside of the lock. `told`: so
/// many bytes of it were mapped here.
fn destroy(
    c: &Ctx,
    signals: &SignalsBlocked,
    guard: Guard,
    index: u32,
    told: Option<u64>,
) -> Result<(), Errno> {
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    let told = c.kernel.told(shm.head.id.load(Relaxed) as i32).or(told);
    let range = range_of(c, shm).ok_or(Errno::EINVAL)?;
    let mut txn = guard.txn();
    dir::unhash(c, &mut txn, Kind::Shm, index)?;
    dir::retire(c, &mut txn, Kind::Shm, index)?;
    let total = &c.pool.kind_root(Kind::Shm).total;
    txn.put(total, total.load(Relaxed).saturating_sub(range.count.into()))?;
    let fate = kept::fate(c, range);
    if !matches!(fate, kept::Fate::Returned) {
        let is_kept = matches!(fate, kept::Fate::Kept);
        c.pool.geometry().pages.free(&mut txn, Range::new(range.first, range.count, is_kept))?;
        if is_kept {
            let kept = &c.pool.root().kept;
            txn.put(kept, kept.load(Relaxed).saturating_add(range.count.into()))?;
        }
        txn.commit()?;
        return Ok(());
    }
    let Ok(pending) = pending::add(c, &mut txn, range) else {
        // There is no entry free for them: the pages go back as they are, and are zeroed when they are used
        // again.
        c.pool.geometry().pages.free(&mut txn, range)?;
        txn.commit()?;
        return Ok(());
    };
    txn.commit()?;
    drop(guard);
    let soil = kept::give_back(c, signals, range, told);
    // Without the lock it is destroyed too: others find the pages.
    match pending::lock(c, signals, pending) {
        Ok(guard) if pending::is_mine(c, pending) => pending::release(c, &guard, pending, soil),
        _ => Ok(()),
    }
}

/// Takes from all removed segments what the dead have left. Returns whether there was something.
pub(crate) fn reap_removed(c: &Ctx, signals: &SignalsBlocked) -> bool {
    let mut any = false;
    for (_, head) in dir::used(c, Kind::Shm).filter(|(_, head)| is_removed(head)) {
        if signals.has_failed() {
            break;
        }
        any |= reap_if_removed(c, signals, head.id.load(Acquire) as i32);
    }
    any
}

/// Frees removed segments that only heirs had, and have no more.
pub(crate) fn reap_inherited(c: &Ctx, signals: &SignalsBlocked) {
    for (index, head) in dir::used(c, Kind::Shm).filter(|(_, head)| is_removed(head)) {
        let is_unattached = |shm: &Shm| shm.nattch.load(Relaxed) == 0;
        if !signals.has_failed() && c.shm(index).is_some_and(is_unattached) {
            reap_if_removed(c, signals, head.id.load(Acquire) as i32);
        }
    }
}

/// Takes from a segment what the dead have left. Returns whether there was something.
///
/// # Errors
/// The lock was not to be had.
fn reap_one(c: &Ctx, signals: &SignalsBlocked, id: i32) -> Result<bool, Errno> {
    let dropped = drop_dead_holds(c, signals, id)?;
    Ok(dropped | destroy_unattached(c, signals, id)?)
}

fn drop_dead_holds(c: &Ctx, signals: &SignalsBlocked, id: i32) -> Result<bool, Errno> {
    let guard = dir::lock(c, signals)?;
    let found = dir::lookup(c, Kind::Shm, id).map(|(index, _)| (index, c.shm(index)));
    let Ok((index, Some(shm))) = found else {
        return Ok(false);
    };
    // One step for each record, kept or dropped: a list that leads back to itself comes to an end too.
    let dropped = holds::drop_dead_among(c, &guard, shm, index, holds::MOST_RECORDS);
    Ok(dropped.unwrap_or(false))
}

/// Destroys a removed segment that nobody has attached: whoever dropped the last attachment may have died
/// just then.
fn destroy_unattached(c: &Ctx, signals: &SignalsBlocked, id: i32) -> Result<bool, Errno> {
    let guard = dir::lock(c, signals)?;
    let Ok((index, head)) = dir::lookup(c, Kind::Shm, id) else {
        return Ok(false);
    };
    let unattached = c.shm(index).is_some_and(is_unmapped);
    Ok(unattached && is_removed(head) && destroy(c, signals, guard, index, None).is_ok())
}

/// Removes what a dead process holds of a segment.
pub(crate) fn reap_process(c: &Ctx, signals: &SignalsBlocked, index: u32, dead: ProcId) {
    // Most of very many are attached by nobody. What the dead did under the lock is done if that is free.
    let is_free = dead != c.me && c.pool.root().lock.load(Acquire) == 0;
    let is_nobodys = |shm: &Shm| shm.holds.load(Acquire) == 0;
    let shm = c.pool.shm(index); // unpaid
    if is_free && shm.is_none_or(is_nobodys) {
        return;
    }
    let id = c.head(Kind::Shm, index).map_or(0, |h| h.id.load(Acquire));
    let all = Off::all(match (dead == c.me, c.kernel.has_heirs()) {
        (false, _) => Heirs::Unknown,
        (true, true) => Heirs::Suspected,
        (true, false) => Heirs::None,
    });
    let _ = drop_holds(c, signals, id as i32, None, |guard, shm, index| {
        if dead == c.me {
            holds::drop_dead_among(c, guard, shm, index, FEW)?;
        }
        let has = |hold: &Hold| hold.count.load(Relaxed) > 0;
        holds::take_from(c, guard, (shm, index), dead, |hold| has(hold).then_some(all))
    });
}

fn record(c: &Ctx, index: u32) -> Result<ShmDs, Errno> {
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    Ok(ShmDs {
        perm: perm::of(c, &shm.head),
        size: shm.size.load(Relaxed),
        atime: shm.atime.load(Relaxed),
        dtime: shm.dtime.load(Relaxed),
        ctime: shm.ctime.load(Relaxed),
        cpid: pid_of(shm.cpid.load(Relaxed)),
        lpid: pid_of(shm.lpid.load(Relaxed)),
        cmember: crate::member_of(shm.cpid.load(Relaxed)),
        nattch: shm.nattch.load(Relaxed),
    })
}

fn stat_checked(c: &Ctx, id: i32, any: bool) -> Result<ShmDs, Errno> {
    let (index, head) = dir::lookup(c, Kind::Shm, id)?;
    if !any {
        perm::check(c, head, perm::READ)?;
    }
    let signals = SignalsBlocked::attentive(c.kernel);
    reap_one(c, &signals, id)?;
    signals.nothing_changed();
    let _guard = dir::lock(c, &signals)?;
    if !dir::still(head, id) {
        return Err(Errno::EINVAL);
    }
    record(c, index)
}

/// The size that was asked for. Needs no permission: whoever may attach the segment sees it anyway.
pub fn size(c: &Ctx, id: i32) -> Option<u64> {
    let (index, _) = dir::lookup(c, Kind::Shm, id).ok()?;
    Some(c.shm(index)?.size.load(Relaxed))
}

/// `shmctl(IPC_STAT)`.
pub fn stat(c: &Ctx, id: i32) -> Result<ShmDs, Errno> {
    stat_checked(c, id, false)
}

/// `shmctl(SHM_STAT)`; with `any`, `SHM_STAT_ANY`. Returns the id too.
pub fn stat_index(c: &Ctx, index: i32, any: bool) -> Result<(i32, ShmDs), Errno> {
    let (_, id) = dir::by_index(c, Kind::Shm, index)?;
    Ok((id, stat_checked(c, id, any)?))
}

/// `shmctl(IPC_SET)`.
pub fn set(c: &Ctx, id: i32, uid: u32, gid: u32, mode: u32) -> Result<(), Errno> {
    let (index, head) = dir::lookup(c, Kind::Shm, id)?;
    perm::check_owner(c, head)?;
    let signals = SignalsBlocked::attentive(c.kernel);
    let guard = dir::lock(c, &signals)?;
    if !dir::still(head, id) {
        return Err(Errno::EIDRM);
    }
    let (word0, word1) = perm::changed(head, uid, gid, mode)?;
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    let mut txn = guard.txn();
    let at = c.pool.offset_of(head);
    txn.set(at, word0)?;
    txn.set(at + 8, word1)?;
    txn.put(&shm.ctime, c.kernel.now() as u64)?;
    txn.commit()?;
    Ok(())
}

/// `shmctl(IPC_RMID)`: gone at once if nobody has it attached, with the last detach otherwise.
pub fn remove(c: &Ctx, id: i32) -> Result<(), Errno> {
    let (_, head) = dir::lookup(c, Kind::Shm, id)?;
    perm::check_owner(c, head)?;
    let signals = SignalsBlocked::attentive(c.kernel);
    reap_one(c, &signals, id)?;
    signals.nothing_changed();
    let guard = dir::lock(c, &signals)?;
    // The dead may have been the last to have it attached after an earlier removal.
    let Ok((index, head)) = dir::lookup(c, Kind::Shm, id) else {
        return Ok(());
    };
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    if is_unmapped(shm) {
        return destroy(c, &signals, guard, index, None);
    }
    let mut txn = guard.txn();
    dir::unhash(c, &mut txn, Kind::Shm, index)?;
    txn.set(c.pool.offset_of(head), id as u64 | ((head.mode.load(Relaxed) | SHM_DEST) as u64) << 32)?;
    txn.commit()?;
    Ok(())
}

/// `shmctl(SHM_LOCK)` and `SHM_UNLOCK`: sets the mode bit. Pool memory is not swapped out by a machine that
/// shares it; on one kernel, locking what is attached is mlock(2)'s business.
pub fn lock(c: &Ctx, id: i32, on: bool) -> Result<(), Errno> {
    let (_, head) = dir::lookup(c, Kind::Shm, id)?;
    if !perm::owner_or(c, head, perm::CAP_IPC_LOCK) {
        return Err(Errno::EPERM);
    }
    let signals = SignalsBlocked::attentive(c.kernel);
    let guard = dir::lock(c, &signals)?;
    if !dir::still(head, id) {
        return Err(Errno::EIDRM);
    }
    let mode = head.mode.load(Relaxed);
    let mode = if on { mode | SHM_LOCKED } else { mode & !SHM_LOCKED };
    let mut txn = guard.txn();
    txn.set(c.pool.offset_of(head), id as u64 | (mode as u64) << 32)?;
    txn.commit()?;
    Ok(())
}

/// `shmctl(SHM_INFO)`: the highest index in use (0 if none), and totals.
pub fn info(c: &Ctx) -> (i32, ShmInfo) {
    let signals = SignalsBlocked::hurried(c.kernel);
    // Removed segments are gone with the last of those that had them attached.
    reap_removed(c, &signals);
    let root = c.pool.kind_root(Kind::Shm);
    let taken = root.total.load(Relaxed);
    let total = if c.pool.segment_align() > PAGE { asked(c) } else { taken };
    let info = ShmInfo { used_ids: root.used.load(Relaxed), total, taken };
    (dir::highest(c, Kind::Shm).max(0), info)
}

/// Pages of all segments that were asked for.
fn asked(c: &Ctx) -> u64 {
    let segments = dir::used(c, Kind::Shm).filter_map(|(index, _)| c.pool.shm(index)); // unpaid
    let sizes = segments.map(|shm| shm.size.load(Relaxed));
    sizes.fold(0, |pages: u64, size| pages.saturating_add(size.div_ceil(PAGE)))
}

/// The highest index in use, -1 if there is none.
pub fn highest(c: &Ctx) -> i32 {
    dir::highest(c, Kind::Shm)
}
