//! `semctl`.

use super::serve::serve;
use super::set::{my_pid, value, with_value, Set};
use super::slow::is_slow;
use super::waiter::{self, thaw_all};
use super::{repay, undo, SEMVMX};
use crate::{directory as dir, perm, pid_of, Ctx, Errno, Perm};
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};
use vshmem_pool::layout::{Kind, CLEAR_ALL};
use vshmem_pool::lock::{Guard, SignalsBlocked};

/// The result of `IPC_STAT`. Times in seconds since the epoch, 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SemDs {
    /// Owner and permissions.
    pub perm: Perm,
    /// Last `semop`.
    pub otime: i64,
    /// Last change.
    pub ctime: i64,
    /// Semaphores.
    pub nsems: u64,
}

/// The part of `SEM_INFO` that says what is in use; `IPC_INFO` has limits in both places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SemInfo {
    /// Sets.
    pub sets: u64,
    /// Semaphores of all sets.
    pub semaphores: u64,
}

/// A semaphore number of a `semctl` call, where a wrong one is `EINVAL`.
fn check_num(set: &Set, num: i32) -> Result<u32, Errno> {
    u32::try_from(num).ok().filter(|n| *n < set.nsems).ok_or(Errno::EINVAL)
}

/// Looks at a set under its lock, after the adjustments of dead processes were applied.
fn with_lock<T>(
    c: &Ctx,
    id: i32,
    wanted: u32,
    body: impl FnOnce(&Set, &SignalsBlocked, &Guard) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let set = Set::find(c, id)?;
    perm::check(c, &set.entry.head, wanted)?;
    let signals = SignalsBlocked::attentive(c.kernel);
    let guard = set.lock(c, &signals)?;
    if !set.still() {
        return Err(Errno::EIDRM);
    }
    repay::repay_all(c, &set, &signals, &guard)?;
    body(&set, &signals, &guard)
}

/// A low word, without the lock if nothing stands against it.
fn read_word(c: &Ctx, id: i32, num: i32) -> Result<u64, Errno> {
    let set = Set::find(c, id)?;
    perm::check(c, &set.entry.head, perm::READ)?;
    let n = check_num(&set, num)?;
    let lo = set.cell(c, n)?.lo.load(Acquire);
    if !is_slow(lo) && !undo::is_foreign(c, &set, n) && set.still() {
        return Ok(lo);
    }
    with_lock(c, id, perm::READ, |set, _, _| Ok(set.cell(c, check_num(set, num)?)?.lo.load(Relaxed)))
}

/// `GETVAL`.
pub fn getval(c: &Ctx, id: i32, num: i32) -> Result<i32, Errno> {
    Ok(value(read_word(c, id, num)?))
}

/// `GETPID`: the last process that changed the semaphore or waited for it successfully.
pub fn getpid(c: &Ctx, id: i32, num: i32) -> Result<i32, Errno> {
    Ok(pid_of(read_word(c, id, num)? >> 32))
}

/// `GETNCNT`: processes that wait for an increase.
pub fn getncnt(c: &Ctx, id: i32, num: i32) -> Result<i32, Errno> {
    count_blocked(c, id, num, false)
}

/// `GETZCNT`: processes that wait for zero.
pub fn getzcnt(c: &Ctx, id: i32, num: i32) -> Result<i32, Errno> {
    count_blocked(c, id, num, true)
}

fn count_blocked(c: &Ctx, id: i32, num: i32, for_zero: bool) -> Result<i32, Errno> {
    with_lock(c, id, perm::READ, |set, _, _| {
        Ok(waiter::count_blocked(c, set, check_num(set, num)?, for_zero)? as i32)
    })
}

/// Semaphores in a set. Needs no permission: it says how large a buffer must be.
pub fn nsems(c: &Ctx, id: i32) -> Result<usize, Errno> {
    Ok(Set::find(c, id)?.nsems as usize)
}

/// `SETVAL`: also forgets everybody's adjustments of that semaphore.
pub fn setval(c: &Ctx, id: i32, num: i32, val: i32) -> Result<(), Errno> {
    if !(0..=SEMVMX).contains(&val) {
        return Err(Errno::ERANGE);
    }
    let set = Set::find(c, id)?;
    check_num(&set, num)?;
    with_lock(c, id, perm::WRITE, |set, signals, guard| {
        let n = check_num(set, num)?;
        set.freeze(c, n)?;
        let mut txn = guard.txn();
        let lo = txn.get(set.lo(n)).ok_or(Errno::EINVAL)?;
        txn.set(set.lo(n), with_value(lo, val, my_pid(c)))?;
        txn.set(set.lo(n) + 8, 0)?;
        txn.put(&set.entry.ctime, c.kernel.now() as u64)?;
        txn.put(&set.entry.clear, n as u64 + 1)?;
        txn.commit()?;
        undo::finish_clearing(c, set);
        let _ = serve(c, set, signals, guard);
        thaw_all(c, set, 1, |_| n);
        undo::sweep(c, set, signals);
        Ok(())
    })
}

/// `GETALL`: calls `put` with each semaphore's number and value; it returns false if that can't be stored
/// (`EFAULT`).
pub fn getall(c: &Ctx, id: i32, put: &mut dyn FnMut(usize, u16) -> bool) -> Result<(), Errno> {
    with_lock(c, id, perm::READ, |set, _, _| {
        // All at one moment: fast paths keep off while the values are read.
        for n in 0..set.nsems {
            set.freeze(c, n)?;
        }
        let mut result = Ok(());
        for n in 0..set.nsems {
            if !put(n as usize, value(set.cell(c, n)?.lo.load(Relaxed)) as u16) {
                result = Err(Errno::EFAULT);
                break;
            }
        }
        thaw_all(c, set, set.nsems as usize, |i| i as u32);
        result
    })
}

/// `SETALL`: calls `get` for each semaphore's new value; `None` means that it can't be read (`EFAULT`).
pub fn setall(c: &Ctx, id: i32, get: &mut dyn FnMut(usize) -> Option<u16>) -> Result<(), Errno> {
    with_lock(c, id, perm::WRITE, |set, signals, guard| {
        let mut txn = guard.txn();
        let mut result = Ok(());
        for n in 0..set.nsems {
            set.freeze(c, n)?;
            let lo = set.cell(c, n)?.lo.load(Relaxed);
            let val = match get(n as usize) {
                Some(v) if v as i32 <= SEMVMX => v as i32,
                Some(_) => {
                    result = Err(Errno::ERANGE);
                    break;
                }
                None => {
                    result = Err(Errno::EFAULT);
                    break;
                }
            };
            txn.push(set.lo(n), with_value(lo, val, my_pid(c)))?;
            txn.push(set.lo(n) + 8, 0)?;
        }
        if result.is_ok() {
            txn.push(c.pool.offset_of(&set.entry.ctime), c.kernel.now() as u64)?;
            txn.push(c.pool.offset_of(&set.entry.clear), CLEAR_ALL)?;
            txn.commit()?;
            undo::finish_clearing(c, set);
            let _ = serve(c, set, signals, guard);
            undo::sweep(c, set, signals);
        }
        thaw_all(c, set, set.nsems as usize, |i| i as u32);
        result
    })
}

fn stat_checked(c: &Ctx, id: i32, any: bool) -> Result<SemDs, Errno> {
    with_lock(c, id, if any { 0 } else { perm::READ }, |set, _, _| {
        Ok(SemDs {
            perm: perm::of(c, &set.entry.head),
            otime: set.entry.otime.load(Relaxed),
            ctime: set.entry.ctime.load(Relaxed),
            nsems: set.nsems.into(),
        })
    })
}

/// `IPC_STAT`.
pub fn stat(c: &Ctx, id: i32) -> Result<SemDs, Errno> {
    stat_checked(c, id, false)
}

/// `SEM_STAT`; with `any`, `SEM_STAT_ANY`. Returns the id too.
pub fn stat_index(c: &Ctx, index: i32, any: bool) -> Result<(i32, SemDs), Errno> {
    let (_, id) = dir::by_index(c, Kind::Sem, index)?;
    Ok((id, stat_checked(c, id, any)?))
}

/// `IPC_SET`.
pub fn set(c: &Ctx, id: i32, uid: u32, gid: u32, mode: u32) -> Result<(), Errno> {
    let set = Set::find(c, id)?;
    let head = &set.entry.head;
    perm::check_owner(c, head)?;
    let signals = SignalsBlocked::attentive(c.kernel);
    let guard = set.lock(c, &signals)?;
    if !set.still() {
        return Err(Errno::EIDRM);
    }
    let mut txn = guard.txn();
    perm::put(c, &mut txn, head, uid, gid, mode)?;
    txn.put(&set.entry.ctime, c.kernel.now() as u64)?;
    txn.commit()?;
    Ok(())
}

/// `SEM_INFO`: the highest index in use (0 if none), and what is in use.
pub fn info(c: &Ctx) -> (i32, SemInfo) {
    finish_removals(c);
    let root = c.pool.kind_root(Kind::Sem);
    let info = SemInfo { sets: root.used.load(Relaxed), semaphores: root.total.load(Relaxed) };
    (highest(c).max(0), info)
}

/// Finishes removals that processes have begun which died, or did not get the pool's lock. Returns whether
/// there were any.
pub(crate) fn finish_removals(c: &Ctx) -> bool {
    let signals = SignalsBlocked::hurried(c.kernel);
    let mut any = false;
    dir::each_dying(c, Kind::Sem, |index, id| {
        any |= super::remove::finish_removal(c, &signals, index, id).is_ok();
    });
    any
}

/// The highest index in use, -1 if there is none.
pub fn highest(c: &Ctx) -> i32 {
    dir::highest(c, Kind::Sem)
}
