//! The entries of IPC objects: segments, semaphore sets and message queues; and their records in the small
//! heap.

use super::{BLOCK, MAX_ENTRIES, REGION};
use crate::atomic::{AtomicI64, AtomicU32, AtomicU64};
use crate::mem::Shared;
use crate::pair::Pair;

/// The kinds of IPC object, in table order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Segments.
    Shm = 0,
    /// Semaphore sets.
    Sem = 1,
    /// Message queues.
    Msg = 2,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::Shm, Kind::Sem, Kind::Msg];
    /// Bytes of an entry.
    pub const fn entry_size(self) -> u64 {
        match self {
            Kind::Shm => size_of::<Shm>() as u64,
            Kind::Sem => size_of::<Sem>() as u64,
            Kind::Msg => size_of::<Msg>() as u64,
        }
    }
    /// The kind in an IPC object reference (`kind << 28 | index + 1`).
    pub const fn of_reference(reference: u32) -> Option<(Kind, u32)> {
        let index = match (reference & 0x0fff_ffff).checked_sub(1) {
            Some(i) => i,
            None => return None,
        };
        match reference >> 28 {
            0 => Some((Kind::Shm, index)),
            1 => Some((Kind::Sem, index)),
            2 => Some((Kind::Msg, index)),
            _ => None,
        }
    }

    /// The bit in `Proc::overflow` of the region in which an index lies.
    pub const fn region(self, index: u32) -> u32 {
        2 << (self as u32 * (MAX_ENTRIES / REGION) + index % MAX_ENTRIES / REGION)
    }
    /// The reference to an IPC object.
    pub const fn reference(self, index: u32) -> u32 {
        (self as u32) << 28 | (index + 1)
    }
}

/// The common beginning of every IPC object's entry.
#[repr(C)]
pub struct Head {
    /// The id, or 0 while the entry is free.
    pub id: AtomicU32,
    /// Low nine bits: permissions; more per kind.
    pub mode: AtomicU32,
    /// Owner.
    pub uid: AtomicU32,
    /// Owner's group.
    pub gid: AtomicU32,
    /// Creator.
    pub cuid: AtomicU32,
    /// Creator's group.
    pub cgid: AtomicU32,
    /// The key, 0 if private.
    pub key: AtomicU32,
    /// [`HEAD_DYING`].
    pub flags: AtomicU32,
    /// Next entry of the hash chain or of the free list: index + 1.
    pub next: AtomicU64,
}
// SAFETY: atomics only.
unsafe impl Shared for Head {}

/// The IPC object is being removed: it can't be found any more, its memory is on the way back.
pub const HEAD_DYING: u32 = 1;
/// The bit of [`Head::flags`] at which the sequence number begins.
pub const HEAD_SEQ_SHIFT: u32 = 8;
/// The bit of [`Head::flags`] at which the member that made the IPC object begins: its index + 1, 7 bits;
/// 0: unknown.
pub const HEAD_MEMBER_SHIFT: u32 = 21;

/// A segment.
#[repr(C, align(64))]
pub struct Shm {
    /// Common part.
    pub head: Head,
    /// First page.
    pub first: AtomicU64,
    /// Pages.
    pub pages: AtomicU64,
    /// Bytes asked for.
    pub size: AtomicU64,
    /// Last attach, detach, change: seconds since the epoch, 0: never.
    pub atime: AtomicI64,
    /// Last detach.
    pub dtime: AtomicI64,
    /// Last change.
    pub ctime: AtomicI64,
    /// Pid word of the creator: name spaces << 32 | member << 22 | pid.
    pub cpid: AtomicU64,
    /// Pid word of the last process that attached or detached.
    pub lpid: AtomicU64,
    /// Attachments.
    pub nattch: AtomicU64,
    /// First attachment record: offset, 0: none.
    pub holds: AtomicU64,
}
// SAFETY: atomics only.
unsafe impl Shared for Shm {}

/// An attachment record: a process's attachments of one segment by one source. A block of the small heap.
#[repr(C)]
pub struct Hold {
    /// Process slot + 1 and generation: `slot + 1 | generation << 32`.
    pub owner: AtomicU64,
    /// Next record: offset, 0: none.
    pub next: AtomicU64,
    /// Attachments that are counted. 0: its owner has none, but others may map it by the source.
    pub count: AtomicU64,
    /// Detaches by its owner without the lock, counted as each begins.
    pub detached: AtomicU64,
    /// Detaches among these that were taken off the attachments.
    pub taken_off: AtomicU64,
    /// Id of the segment.
    pub segment: AtomicU64,
    /// The source: a number that only the member's kernel knows, and the member << 48. 0: unknown.
    pub source: AtomicU64,
    /// Bits. 1: a parent has counted them for its child, by its own source. 2: others may map it by the
    /// source, as its owner notes without the lock.
    pub inherited: AtomicU64,
}
// SAFETY: atomics only.
unsafe impl Shared for Hold {}
const _: () = assert!(size_of::<Hold>() as u64 <= BLOCK);

/// A semaphore set.
#[repr(C, align(64))]
pub struct Sem {
    /// Common part.
    pub head: Head,
    /// Semaphores.
    pub nsems: AtomicU64,
    /// Offset of the semaphores: 16 bytes each.
    pub cells: AtomicU64,
    /// Last `semop`.
    pub otime: AtomicI64,
    /// The set's lock (line 2).
    pub lock: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
    /// First undo record: offset, 0: none.
    pub undo: AtomicU64,
    /// First waiter: index + 1; 0: none.
    pub first_waiter: AtomicU64,
    /// Last waiter: index + 1; 0: none.
    pub last_waiter: AtomicU64,
    /// Semaphore + 1 whose adjustments are being cleared, or [`CLEAR_ALL`].
    pub clear: AtomicU64,
    /// Offset of the redo log.
    pub log: AtomicU64,
    /// Entries that the log has room for.
    pub log_entries: AtomicU64,
    /// Bytes in the block that holds semaphores and log.
    pub block_len: AtomicU64,
    /// Last change.
    pub ctime: AtomicI64,
}
// SAFETY: atomics only.
unsafe impl Shared for Sem {}
/// [`Sem::clear`]: all semaphores.
pub const CLEAR_ALL: u64 = u64::MAX;

/// An undo record: adjustments of one process that don't fit beside the semaphores. A block of the small
/// heap, in which one 16-bit adjustment for each semaphore follows, four to a word.
#[repr(C)]
pub struct Undo {
    /// Process slot + 1 and generation.
    pub owner: AtomicU64,
    /// Next record: offset, 0: none.
    pub next: AtomicU64,
    /// Bytes in the block.
    pub block_len: AtomicU64,
}
// SAFETY: atomics only.
unsafe impl Shared for Undo {}

/// A message queue.
#[repr(C, align(64))]
pub struct Msg {
    /// Common part.
    pub head: Head,
    /// Most bytes of text.
    pub qbytes: AtomicU64,
    /// Offset of the ring.
    pub ring: AtomicU64,
    /// Cells in the ring, a power of two; 0: no ring yet.
    pub cells: AtomicU64,
    /// The end that senders advance.
    pub send: MsgEnd,
    /// The end that receivers advance.
    pub receive: MsgEnd,
    /// The queue's lock.
    pub lock: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
    /// First waiting receiver: index + 1; 0: none.
    pub first_receiver: AtomicU64,
    /// Last waiting receiver: index + 1; 0: none.
    pub last_receiver: AtomicU64,
    /// First waiting sender: index + 1; 0: none.
    pub first_sender: AtomicU64,
    /// Last waiting sender: index + 1; 0: none.
    pub last_sender: AtomicU64,
    /// Last change.
    pub ctime: AtomicI64,
    /// Offset of the redo log.
    pub log: AtomicU64,
    /// The last ring that was left while somebody was at work there: offset and how many times two its cells
    /// are; 0: none.
    pub retired: AtomicU64,
}
// SAFETY: atomics only.
unsafe impl Shared for Msg {}

/// Largest message in bytes: an end moves by less than 2^15 cells of 64 bytes at once.
pub const MSGMAX_MOST: u32 = 0x7fff * 64;

/// One end of a queue: a cache line that one side advances.
#[repr(C, align(64))]
pub struct MsgEnd {
    /// Position and counts, advanced by one compare-and-swap.
    pub at: Pair,
    /// The other end's high word when it was last looked at.
    pub seen: AtomicU64,
    /// Last `msgsnd` or `msgrcv`.
    pub time: AtomicI64,
    /// Pid word of the last sender or receiver.
    pub pid: AtomicU64,
    /// Receiving end: the position before which all cells are free. Sending end: what it was when it was last
    /// looked at.
    pub done: AtomicU64,
    /// Sending end: the position at which old marks must be swept away before anything is sent.
    pub sweep: AtomicU64,
    /// Sending end: the position behind a message that is there wholly, as a rule the last one. Receiving
    /// end: messages that were handed to waiting receivers, and their bytes << 32, modulo 2^32 each; they
    /// count at neither end.
    pub finished: AtomicU64,
}
