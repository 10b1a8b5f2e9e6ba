//! `shmctl`.

use super::destroy::{destroy, is_removed, is_unmapped, reap_one, reap_removed};
use super::{SHM_DEST, SHM_LOCKED};
use crate::directory as dir;
use crate::{perm, pid_of, Ctx, Errno, Perm};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::{Kind, PAGE};
use vshmem_pool::lock::SignalsBlocked;

/// The result of `IPC_STAT`. Times in seconds since the epoch, 0: never.
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

/// The result of `SHM_INFO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShmInfo {
    /// Segments.
    pub used_ids: u64,
    /// Pages of all segments that were asked for.
    pub total: u64,
    /// Pages that they take.
    pub taken: u64,
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

/// The size that was asked for. Needs no permission: a process that may attach the segment sees it anyway.
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
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    let mut txn = guard.txn();
    perm::put(c, &mut txn, head, uid, gid, mode)?;
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

/// The pid word of the process that made a segment, if the segment is removed: those that have it attached
/// share it with that process, as a rule, and with nobody else.
pub fn maker_of_removed(c: &Ctx, id: i32) -> Option<u64> {
    let (index, head) = dir::lookup(c, Kind::Shm, id).ok()?;
    let maker = c.shm(index)?.cpid.load(Relaxed);
    is_removed(head).then_some(maker)
}
