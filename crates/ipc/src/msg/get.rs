//! `msgget` and `IPC_RMID`.

use super::end::{self, At};
use super::queue::{Queue, LOG_ENTRIES};
use super::{retired, ring, scan, wait};
use crate::directory::{self as dir, Found};
use crate::{liveness, perm, Ctx, Errno};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use vshmem_pool::layout::{Kind, HEAD_DYING, MAX_ENTRIES};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::log::Log;

/// `msgget`.
pub fn get(c: &Ctx, key: i32, flg: i32) -> Result<i32, Errno> {
    let signals = SignalsBlocked::attentive(c.kernel);
    match try_get(c, &signals, key, flg) {
        Err(Errno::ENOMEM | Errno::ENOSPC) if liveness::free_up(c, &signals) => {
            try_get(c, &signals, key, flg)
        }
        result => result,
    }
}

fn try_get(c: &Ctx, signals: &SignalsBlocked, key: i32, flg: i32) -> Result<i32, Errno> {
    let guard = dir::lock(c, signals)?;
    if let Found::Existing(index, head) = dir::find(c, Kind::Msg, key, flg)? {
        return dir::admit(c, (index, head), flg);
    }
    let limits = c.pool.limits();
    let mut txn = guard.txn();
    let (index, id) = dir::insert(
        c,
        &mut txn,
        Kind::Msg,
        key,
        flg as u32 & 0o777,
        limits.msgmni,
    )?;
    let entry = c.msg(index).ok_or(Errno::EINVAL)?;
    let (log, _) = dir::take_block(c, &mut txn, Log::size(LOG_ENTRIES))?;
    // Both ends begin frozen: the first sender makes the ring. Positions and counts begin at numbers of this queue's own, so that a
    // fast path that looked at the queue before in this entry can't mistake this one for it.
    let first = At {
        pos: (id as u32 / MAX_ENTRIES) << 20,
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

/// `msgctl(IPC_RMID)`: who waits gets `EIDRM`.
pub fn remove(c: &Ctx, id: i32) -> Result<(), Errno> {
    let queue = Queue::find(c, id)?;
    perm::check_owner(c, &queue.entry.head)?;
    let signals = SignalsBlocked::attentive(c.kernel);
    {
        let _slow = queue.lock(c, &signals)?;
        if !queue.still() {
            return Err(Errno::EIDRM);
        }
        // Should the caller die now, whoever cleans up after it finds the queue by this.
        c.pool.touch(c.me, queue.reference());
        queue.entry.head.flags.fetch_or(HEAD_DYING, AcqRel);
    }
    // It is removed, whoever gives the memory back.
    if finish_removal(c, &signals, queue.index, id).is_ok() {
        c.pool.untouch(c.me, queue.reference());
    }
    Ok(())
}

/// Removes a queue that is marked as dying: ends all waits, then gives its memory back.
pub fn finish_removal(c: &Ctx, signals: &SignalsBlocked, index: u32, id: i32) -> Result<(), Errno> {
    let queue = Queue {
        id,
        ..Queue::at(c, index)?
    };
    let mut pause = wait::Pause::new();
    // Memory that somebody is about to write to or read from can't be given to others. It is a matter of
    // nanoseconds, unless that one is stopped: then who cleans up after it finishes this, or who needs room.
    while !try_to_finish(c, signals, &queue)? && pause.nap_briefly(c) {}
    Ok(())
}

/// Removes the queues that are marked as dying, but for those where somebody is still at work. Returns whether there was one.
pub fn finish_removals(c: &Ctx, signals: &SignalsBlocked) -> bool {
    let mut any = false;
    dir::each_dying(c, Kind::Msg, |index, id| {
        if let Ok(queue) = Queue::at(c, index) {
            any |= try_to_finish(c, signals, &Queue { id, ..queue }) == Ok(true);
        }
    });
    any
}

/// False if somebody is at work in the queue's memory.
fn try_to_finish(c: &Ctx, signals: &SignalsBlocked, queue: &Queue) -> Result<bool, Errno> {
    let entry = queue.entry;
    let slow = queue.lock(c, signals)?;
    if !dir::is_dying(&entry.head) || entry.head.id.load(Relaxed) != queue.id as u32 {
        return Ok(true);
    }
    wait::end_all(&slow, Err(Errno::EIDRM))?;
    super::queue::name_the_last(c, queue);
    let ring = queue.ring(c);
    // A receiver that was handed a message before has received it, as in the kernel, though it may have to be
    // woken yet.
    let is_done = |ring| scan::is_quiet(&slow, &ring) && !scan::is_owed(&slow, &ring);
    if !ring.is_none_or(is_done) || retired::is_busy(&slow) {
        return Ok(false);
    }
    let guard = dir::lock(c, signals)?;
    let mut txn = guard.txn();
    dir::unhash(c, &mut txn, Kind::Msg, queue.index)?;
    dir::retire(c, &mut txn, Kind::Msg, queue.index)?;
    if let Some(ring) = ring {
        dir::give_block(c, &mut txn, ring.offset(), ring::bytes(ring.cells().into()))?;
    }
    retired::give_all_back(c, &mut txn, queue)?;
    dir::give_block(c, &mut txn, entry.log.load(Relaxed), Log::size(LOG_ENTRIES))?;
    txn.put(&entry.ring, 0)?;
    txn.put(&entry.cells, 0)?;
    txn.put(&entry.log, 0)?;
    txn.commit()?;
    Ok(true)
}
