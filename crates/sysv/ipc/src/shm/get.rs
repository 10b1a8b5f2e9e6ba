//! `shmget`.

use super::{kept, pending, SHM_HUGETLB, SHM_NORESERVE};
use crate::directory::{self as dir, Found};
use crate::{liveness, perm, pid_word, Ctx, Errno};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::heap::{Range, Soil};
use vshmem_pool::layout::{Kind, PAGE};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::log::Txn;

/// Segments up to this size (bytes) get their memory when they are made. Larger ones get it when it is
/// touched, as the kernel's do (near who touches it first), unless memory is scarce; that there is room for
/// all segments is counted.
const RESERVED_UP_TO: u64 = 256 << 10;
/// Segments up to this size are prepared without letting go of the pool's lock.
const SMALL: u64 = 256 << 10;

/// `shmget`.
pub fn get(c: &Ctx, key: i32, size: usize, flg: i32) -> Result<i32, Errno> {
    if flg & SHM_HUGETLB != 0 {
        // Huge pages nobody has, so making room would not help.
        return try_get(c, &SignalsBlocked::attentive(c.kernel), key, size as u64, flg);
    }
    liveness::with_room(c, |signals| try_get(c, signals, key, size as u64, flg))
}

fn try_get(c: &Ctx, signals: &SignalsBlocked, key: i32, size: u64, flg: i32) -> Result<i32, Errno> {
    let guard = dir::lock(c, signals)?;
    if let Some(id) = existing(c, key, size, flg)? {
        return Ok(id);
    }
    let len = check_new(c, size, flg)?;
    let heap = &c.pool.geometry().pages;
    let pages = heap.blocks_for(len).ok_or(Errno::ENOMEM)?;
    let mut txn = guard.txn();
    let range = dir::take_pages(c, &mut txn, pages)?;
    let is_lazy = flg & SHM_NORESERVE != 0 && is_ours_alone(c);
    if len <= SMALL || is_lazy && range.soil.is_empty() {
        let had = prepare(c, range, is_lazy)?;
        return publish(c, txn, (range, had), key, size, flg);
    }
    // Preparing takes long: the pages are pending, the lock is free meanwhile.
    let pending = pending::add(c, &mut txn, range)?;
    txn.commit()?;
    drop(guard);
    let prepared = prepare(c, range, is_lazy);
    signals.nothing_changed();
    let guard = pending::lock(c, signals, pending)?;
    let result = prepared.and_then(|had| {
        if let Some(id) = existing(c, key, size, flg)? {
            return Ok(Some(id));
        }
        let mut txn = guard.txn();
        txn.put(&pending.owner, 0)?;
        publish(c, txn, (range, had), key, size, flg).map(Some)
    });
    if pending::is_mine(c, pending) {
        pending::release(c, &guard, pending, Soil::ALL)?;
    }
    result?.ok_or(Errno::EINVAL)
}

fn existing(c: &Ctx, key: i32, size: u64, flg: i32) -> Result<Option<i32>, Errno> {
    match dir::find(c, Kind::Shm, key, flg)? {
        Found::Nothing => Ok(None),
        Found::Existing(index, head) => {
            let shm = c.shm(index).ok_or(Errno::EINVAL)?;
            if size > shm.size.load(Relaxed) {
                return Err(Errno::EINVAL);
            }
            dir::admit(c, (index, head), flg).map(Some)
        }
    }
}

/// Checks the limits for a new segment; returns the length that it takes.
fn check_new(c: &Ctx, size: u64, flg: i32) -> Result<u64, Errno> {
    let limits = c.pool.limits();
    if size < 1 || size > limits.shmmax {
        return Err(Errno::EINVAL);
    }
    let len = size.checked_next_multiple_of(c.pool.segment_align()).ok_or(Errno::ENOSPC)?;
    let total = c.pool.kind_root(Kind::Shm).total.load(Relaxed);
    if total.checked_add(len / PAGE).is_none_or(|t| t > limits.shmall) {
        return Err(Errno::ENOSPC);
    }
    if size > i64::MAX as u64 {
        // No file can be that large.
        return Err(Errno::EINVAL);
    }
    if flg & SHM_HUGETLB != 0 {
        // As on a kernel that has no huge pages set aside, for those whom it would give some.
        let may = c.kernel.cred().caps & perm::CAP_IPC_LOCK != 0 || c.kernel.in_group(0);
        return Err(if may { Errno::ENOMEM } else { Errno::EPERM });
    }
    Ok(len)
}

/// Makes pages read as zeros, and sees to it that they have memory, or can have it when they are touched;
/// for lazy segments, which were not promised any, only the former. Returns how many were taken to have
/// memory of earlier use.
fn prepare(c: &Ctx, range: Range, is_lazy: bool) -> Result<u64, Errno> {
    let (at, len) = kept::bytes_of(c, range.first, range.count);
    let soil = kept::bytes_of(c, range.soil.from, range.soil.count());
    let is_touched_later = is_ours_alone(c) && (is_lazy || len > RESERVED_UP_TO);
    let promised = match is_touched_later {
        true => is_lazy || back_large(c, at, len),
        false => c.reserve(at, len),
    };
    let had = if !promised {
        None
    } else if is_touched_later && soil.1 > SMALL {
        // Between the first and the last page that were used there may be any number that never had memory.
        kept::clean(c, range.soil)
    } else {
        // Pages that were promised here have memory: a machine need not request it again of the host.
        let zeroed = if is_touched_later { kept::zero(c, soil) } else { kept::zero_backed(c, soil) };
        zeroed.then_some(range.soil.count().into())
    };
    had.ok_or(Errno::ENOMEM)
}

/// Does only this kernel use the pool, and is its memory this kernel's? Then a process that touches pages
/// which can't have memory dies alone. In a machine, the whole machine would die.
fn is_ours_alone(c: &Ctx) -> bool {
    c.kernel.rules_pool() && c.pool.is_alone(c.member)
}

/// Sees to it that a large segment can have memory when it is touched: others of this pool don't take it
/// away, for all are counted. Where less than twice of what they all can take is to be had, others of the
/// file system could: there it is taken now.
fn back_large(c: &Ctx, at: u64, len: u64) -> bool {
    let Some(available) = c.kernel.available_memory() else {
        return true;
    };
    let pages = c.pool.kind_root(Kind::Shm).total.load(Relaxed);
    let all = pages.saturating_mul(PAGE).saturating_add(len);
    // What lies beside the segments takes memory, too: the small heap, above all.
    let available = available.saturating_sub(c.pool.root().small_backed.load(Relaxed));
    // What is kept may be with any free page, and with none of this segment's.
    let free = u64::from(c.pool.geometry().pages.count).saturating_sub(pages).saturating_mul(PAGE);
    let certain = available.saturating_sub(free);
    all <= available && (all.saturating_mul(2) <= certain || c.reserve(at, len))
}

/// Makes the entry of a segment of these pages, so many of which were counted as kept.
fn publish(
    c: &Ctx,
    mut txn: Txn,
    (range, had): (Range, u64),
    key: i32,
    size: u64,
    flg: i32,
) -> Result<i32, Errno> {
    let limit = c.pool.limits().shmmni;
    let (index, id) = dir::insert(c, &mut txn, Kind::Shm, key, flg as u32 & 0o777, limit)?;
    let shm = c.shm(index).ok_or(Errno::EINVAL)?;
    txn.put(&shm.first, range.first.into())?;
    txn.put(&shm.pages, range.count.into())?;
    txn.put(&shm.size, size)?;
    txn.put(&shm.atime, 0)?;
    txn.put(&shm.dtime, 0)?;
    txn.put(&shm.ctime, c.kernel.now() as u64)?;
    txn.put(&shm.cpid, pid_word(c))?;
    txn.put(&shm.lpid, 0)?;
    txn.put(&shm.nattch, 0)?;
    txn.put(&shm.holds, 0)?;
    let total = &c.pool.kind_root(Kind::Shm).total;
    txn.put(total, total.load(Relaxed).saturating_add(range.count.into()))?;
    if !range.soil.is_empty() {
        let kept = &c.pool.root().kept;
        txn.put(kept, kept.load(Relaxed).saturating_sub(had))?;
    }
    txn.commit()?;
    Ok(id)
}
