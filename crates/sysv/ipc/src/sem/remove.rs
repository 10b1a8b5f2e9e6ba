//! `semctl(IPC_RMID)`.

use super::set::{Set, SLOW};
use super::waiter;
use crate::{directory as dir, perm, waiters, Ctx, Errno};
use vshmem_pool::atomic::Ordering::{AcqRel, Relaxed};
use vshmem_pool::layout::{Kind, Undo, HEAD_DYING};
use vshmem_pool::lock::SignalsBlocked;

/// `semctl(IPC_RMID)`: waiters get `EIDRM`.
pub fn remove(c: &Ctx, id: i32) -> Result<(), Errno> {
    let set = Set::find(c, id)?;
    perm::check_owner(c, &set.entry.head)?;
    let signals = SignalsBlocked::attentive(c.kernel);
    {
        let _guard = set.lock(c, &signals)?;
        if !set.still() {
            return Err(Errno::EIDRM);
        }
        // Should the caller die now, the set is found by this.
        c.pool.touch(c.me, set.reference());
        set.entry.head.flags.fetch_or(HEAD_DYING, AcqRel);
    }
    // It is removed, even if another process has to give the memory back.
    let _ = finish_removal(c, &signals, set.index, id);
    Ok(())
}

/// Removes a set that is marked as dying: wakes its waiters, then gives its memory back.
pub fn finish_removal(c: &Ctx, signals: &SignalsBlocked, index: u32, id: i32) -> Result<(), Errno> {
    let set = Set { id, ..Set::at(c, index)? };
    let guard = set.lock(c, signals)?;
    let head = &set.entry.head;
    if !dir::is_dying(head) || head.id.load(Relaxed) != id as u32 {
        return Ok(());
    }
    for num in 0..set.nsems {
        set.cell(c, num)?.lo.fetch_or(SLOW, AcqRel);
    }
    for ticket in waiters::each(c, set.queue()) {
        waiter::end_wait(c, &set, &guard, ticket, Err(Errno::EIDRM))?;
    }
    let pool_guard = dir::lock(c, signals)?;
    loop {
        let at = set.entry.undo.load(Relaxed);
        let Some(record) = c.at::<Undo>(at).filter(|_| at != 0) else {
            break;
        };
        let mut txn = pool_guard.txn();
        txn.put(&set.entry.undo, record.next.load(Relaxed))?;
        dir::give_block(c, &mut txn, at, record.block_len.load(Relaxed))?;
        txn.commit()?;
    }
    let mut txn = pool_guard.txn();
    dir::unhash(c, &mut txn, Kind::Sem, index)?;
    dir::retire(c, &mut txn, Kind::Sem, index)?;
    dir::give_block(c, &mut txn, set.cells, set.entry.block_len.load(Relaxed))?;
    let total = &c.pool.kind_root(Kind::Sem).total;
    txn.put(total, total.load(Relaxed).saturating_sub(set.nsems.into()))?;
    txn.put(&set.entry.nsems, 0)?;
    txn.put(&set.entry.log, 0)?;
    txn.put(&set.entry.log_entries, 0)?;
    txn.commit()?;
    // While nobody can take the entry: else this could be about another set there.
    c.pool.untouch(c.me, set.reference());
    Ok(())
}
