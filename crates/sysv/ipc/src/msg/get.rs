//! `msgget`.

use super::end::{self, At};
use super::queue::LOG_ENTRIES;
use crate::directory::{self as dir, Found};
use crate::{liveness, Ctx, Errno};
use vshmem_pool::layout::Kind;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::log::Log;

/// `msgget`.
pub fn get(c: &Ctx, key: i32, flg: i32) -> Result<i32, Errno> {
    liveness::with_room(c, |signals| try_get(c, signals, key, flg))
}

fn try_get(c: &Ctx, signals: &SignalsBlocked, key: i32, flg: i32) -> Result<i32, Errno> {
    let guard = dir::lock(c, signals)?;
    if let Found::Existing(index, head) = dir::find(c, Kind::Msg, key, flg)? {
        return dir::admit(c, (index, head), flg);
    }
    let limits = c.pool.limits();
    let mut txn = guard.txn();
    let (index, id) = dir::insert(c, &mut txn, Kind::Msg, key, flg as u32 & 0o777, limits.msgmni)?;
    let entry = c.msg(index).ok_or(Errno::EINVAL)?;
    let (log, _) = dir::take_block(c, &mut txn, Log::size(LOG_ENTRIES))?;
    // Both ends begin frozen: the first sender makes the ring. Positions and counts begin at numbers of this
    // queue's own, so that a fast path that looked at the queue before in this entry can't mistake this one
    // for it.
    let first = At {
        pos: c.pool.ids().sequence(id) << 20,
        bytes: 0,
        msgs: (id as u32) << 2,
        owner: 0,
        step: 0,
        slow: true,
    };
    for end in [&entry.send, &entry.receive] {
        end::put(&mut txn, end, first)?;
        txn.put(&end.seen, first.counts())?;
        txn.put(&end.done, first.pos.into())?;
        txn.put(&end.sweep, first.pos.into())?;
        txn.put(&end.time, 0)?;
        txn.put(&end.pid, 0)?;
    }
    // Not where the last queue of this entry came to: a sender that dies there would go without a name.
    txn.put(&entry.send.finished, first.pos.into())?;
    txn.put(&entry.receive.finished, 0)?;
    txn.put(&entry.qbytes, limits.msgmnb.into())?;
    txn.put(&entry.ring, 0)?;
    txn.put(&entry.cells, 0)?;
    txn.put(&entry.retired, 0)?;
    txn.put(&entry.first_receiver, 0)?;
    txn.put(&entry.last_receiver, 0)?;
    txn.put(&entry.first_sender, 0)?;
    txn.put(&entry.last_sender, 0)?;
    txn.put(&entry.ctime, c.kernel.now() as u64)?;
    txn.put(&entry.log, log)?;
    txn.commit()?;
    Ok(id)
}
