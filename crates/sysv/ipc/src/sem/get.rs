//! `semget`.

use crate::directory::{self as dir, Found};
use crate::{liveness, Ctx, Errno};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::Kind;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::log::Log;

/// `semget`.
pub fn get(c: &Ctx, key: i32, nsems: i32, flg: i32) -> Result<i32, Errno> {
    if nsems < 0 || nsems > c.pool.limits().semmsl as i32 {
        return Err(Errno::EINVAL);
    }
    liveness::with_room(c, |signals| try_get(c, signals, key, nsems as u32, flg))
}

fn try_get(c: &Ctx, signals: &SignalsBlocked, key: i32, nsems: u32, flg: i32) -> Result<i32, Errno> {
    let guard = dir::lock(c, signals)?;
    if let Found::Existing(index, head) = dir::find(c, Kind::Sem, key, flg)? {
        let has = c.sem(index).map_or(0, |e| e.nsems.load(Relaxed));
        if nsems as u64 > has {
            return Err(Errno::EINVAL);
        }
        return dir::admit(c, (index, head), flg);
    }
    if nsems == 0 {
        return Err(Errno::EINVAL);
    }
    let limits = c.pool.limits();
    let root = c.pool.kind_root(Kind::Sem);
    let total = root.total.load(Relaxed).saturating_add(nsems.into());
    if total > limits.semmns as u64 {
        return Err(Errno::ENOSPC);
    }
    let mut txn = guard.txn();
    let (index, id) = dir::insert(c, &mut txn, Kind::Sem, key, flg as u32 & 0o777, limits.semmni)?;
    let entry = c.sem(index).ok_or(Errno::EINVAL)?;
    // Enough for each semaphore's two words, an adjustment in a record for each operation, and a waiter.
    let log_entries = nsems as u64 * 2 + (nsems.min(limits.semopm)) as u64 + 16;
    let cells_len = nsems as u64 * 16;
    let (at, len) = dir::take_block(c, &mut txn, cells_len + Log::size(log_entries))?;
    // The generation keeps a late comer from the set that had this memory before off this one.
    let generation = u64::from(c.pool.ids().instance(id)) + 1;
    for num in 0..nsems {
        let cell = c.word(at + num as u64 * 16).ok_or(Errno::EINVAL)?;
        cell.store(generation << 17, Relaxed);
    }
    txn.put(&entry.nsems, nsems.into())?;
    txn.put(&entry.cells, at)?;
    txn.put(&entry.log, at + cells_len)?;
    txn.put(&entry.log_entries, log_entries)?;
    txn.put(&entry.block_len, len)?;
    txn.put(&entry.otime, 0)?;
    txn.put(&entry.ctime, c.kernel.now() as u64)?;
    txn.put(&entry.undo, 0)?;
    txn.put(&entry.first_waiter, 0)?;
    txn.put(&entry.last_waiter, 0)?;
    txn.put(&entry.clear, 0)?;
    txn.put(&root.total, total)?;
    txn.commit()?;
    Ok(id)
}
