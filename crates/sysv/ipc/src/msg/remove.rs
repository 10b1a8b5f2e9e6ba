//! `msgctl(IPC_RMID)`.

use super::name::name_the_last;
use super::pause::Pause;
use super::queue::{Queue, LOG_ENTRIES};
use super::waiter::end_all;
use super::{retired, ring, scan};
use crate::{directory as dir, perm, Ctx, Errno};
use vshmem_pool::atomic::Ordering::{AcqRel, Relaxed};
use vshmem_pool::layout::{Kind, HEAD_DYING};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::log::Log;

/// `msgctl(IPC_RMID)`: waiters get `EIDRM`.
pub fn remove(c: &Ctx, id: i32) -> Result<(), Errno> {
    let queue = Queue::find(c, id)?;
    perm::check_owner(c, &queue.entry.head)?;
    let signals = SignalsBlocked::attentive(c.kernel);
    {
        let _slow = queue.lock(c, &signals)?;
        if !queue.still() {
            return Err(Errno::EIDRM);
        }
        // Should the caller die now, the queue is found by this.
        c.pool.touch(c.me, queue.reference());
        queue.entry.head.flags.fetch_or(HEAD_DYING, AcqRel);
    }
    // It is removed, even if another process has to give the memory back.
    let _ = finish_removal(c, &signals, queue.index, id);
    Ok(())
}

/// Removes a queue that is marked as dying: ends all waits, then gives its memory back.
pub fn finish_removal(c: &Ctx, signals: &SignalsBlocked, index: u32, id: i32) -> Result<(), Errno> {
    let queue = Queue { id, ..Queue::at(c, index)? };
    let mut pause = Pause::new();
    // Memory that a process is about to write to or read from can't be given to others. It is a matter of
    // nanoseconds, unless that process is stopped: then the removal is finished by the next one that cleans
    // up, or needs room.
    while !try_to_finish(c, signals, &queue)? && pause.nap_briefly(c) {}
    Ok(())
}

/// Removes the queues that are marked as dying, but for those where somebody is still at work. Returns
/// whether there was one.
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
    end_all(&slow, Err(Errno::EIDRM))?;
    name_the_last(c, queue);
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
    // While nobody can take the entry: else this could be about another queue there.
    c.pool.untouch(c.me, queue.reference());
    Ok(true)
}
