//! `msgctl`.

use super::queue::Queue;
use super::{scan, waiter};
use crate::{directory as dir, perm, pid_of, Ctx, Errno, Perm};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::Kind;
use vshmem_pool::lock::SignalsBlocked;

/// The result of `IPC_STAT`. Times in seconds since the epoch, 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsgDs {
    /// Owner and permissions.
    pub perm: Perm,
    /// Last `msgsnd`.
    pub stime: i64,
    /// Last `msgrcv`.
    pub rtime: i64,
    /// Last change.
    pub ctime: i64,
    /// Bytes of text in the queue.
    pub cbytes: u64,
    /// Messages in the queue.
    pub qnum: u64,
    /// Most bytes of text.
    pub qbytes: u64,
    /// Pid of the last sender.
    pub lspid: i32,
    /// Pid of the last receiver.
    pub lrpid: i32,
}

/// The part of `MSG_INFO` that says what is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsgInfo {
    /// Queues.
    pub queues: u64,
    /// Messages in all queues.
    pub messages: u64,
    /// Bytes of text in all queues.
    pub bytes: u64,
}

fn counts(queue: &Queue) -> (u64, u64) {
    let (tail, head) = (queue.tail(), queue.head());
    (tail.bytes.wrapping_sub(head.bytes).into(), tail.msgs.wrapping_sub(head.msgs).into())
}

fn stat_checked(c: &Ctx, id: i32, any: bool) -> Result<MsgDs, Errno> {
    let queue = Queue::find(c, id)?;
    let entry = queue.entry;
    if !any {
        perm::check(c, &entry.head, perm::READ)?;
    }
    let signals = SignalsBlocked::attentive(c.kernel);
    let slow = queue.lock(c, &signals)?;
    if !queue.still() {
        return Err(Errno::EIDRM);
    }
    scan::reap(&slow);
    let (cbytes, qnum) = counts(&queue);
    Ok(MsgDs {
        perm: perm::of(c, &entry.head),
        stime: entry.send.time.load(Relaxed),
        rtime: entry.receive.time.load(Relaxed),
        ctime: entry.ctime.load(Relaxed),
        cbytes,
        qnum,
        qbytes: entry.qbytes.load(Relaxed),
        lspid: pid_of(entry.send.pid.load(Relaxed)),
        lrpid: pid_of(entry.receive.pid.load(Relaxed)),
    })
}

/// `IPC_STAT`.
pub fn stat(c: &Ctx, id: i32) -> Result<MsgDs, Errno> {
    stat_checked(c, id, false)
}

/// `MSG_STAT`; with `any`, `MSG_STAT_ANY`. Returns the id too.
pub fn stat_index(c: &Ctx, index: i32, any: bool) -> Result<(i32, MsgDs), Errno> {
    let (_, id) = dir::by_index(c, Kind::Msg, index)?;
    Ok((id, stat_checked(c, id, any)?))
}

/// `IPC_SET`. As in Linux, the limit goes through an `int`.
pub fn set(c: &Ctx, id: i32, uid: u32, gid: u32, mode: u32, qbytes: u64) -> Result<(), Errno> {
    let queue = Queue::find(c, id)?;
    let (entry, head) = (queue.entry, &queue.entry.head);
    perm::check_owner(c, head)?;
    let qbytes = qbytes as i32;
    let is_more = qbytes as u32 > c.pool.limits().msgmnb;
    if is_more && !perm::has(c, head, perm::CAP_SYS_RESOURCE) {
        return Err(Errno::EPERM);
    }
    let signals = SignalsBlocked::attentive(c.kernel);
    let slow = queue.lock(c, &signals)?;
    if !queue.still() {
        return Err(Errno::EIDRM);
    }
    let mut txn = slow.guard.txn();
    perm::put(c, &mut txn, head, uid, gid, mode)?;
    txn.put(&entry.qbytes, i64::from(qbytes) as u64)?;
    txn.put(&entry.ctime, c.kernel.now() as u64)?;
    txn.commit()?;
    waiter::retry(&slow)
}

/// `MSG_INFO`: the highest index in use (0 if none), and what is in use.
pub fn info(c: &Ctx) -> (i32, MsgInfo) {
    // Removals that dead processes have begun.
    super::remove::finish_removals(c, &SignalsBlocked::hurried(c.kernel));
    let highest = highest(c);
    let mut info = MsgInfo { queues: c.pool.kind_root(Kind::Msg).used.load(Relaxed), messages: 0, bytes: 0 };
    for index in 0..=highest {
        if dir::by_index(c, Kind::Msg, index).is_err() {
            continue;
        }
        if let Ok(queue) = Queue::at(c, index as u32) {
            let (bytes, messages) = counts(&queue);
            info.bytes += bytes;
            info.messages += messages;
        }
    }
    (highest.max(0), info)
}

/// The highest index in use, -1 if there is none.
pub fn highest(c: &Ctx) -> i32 {
    dir::highest(c, Kind::Msg)
}
