//! Where things are in a pool. `docs/layout.md` is the specification; this module is its code.
//!
//! The compiler checks each size and offset that the page says (`spec`). Everything is little-endian and
//! named by byte offsets from the start of the pool. Words that slow paths change are 64 bits wide, so that
//! the redo log needs one kind of entry.

mod spec;

use crate::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicU8};
use crate::mem::Shared;
use crate::pair::Pair;

pub use crate::mem::PAGE;

/// First eight bytes of every pool.
pub const MAGIC: u64 = u64::from_le_bytes(*b"VSHMEM\x01\n");
/// Version of the layout; another version is another layout.
pub const VERSION: u32 = 5;
/// Bytes in the smallest block of the small heap.
pub const BLOCK: u64 = 256;
/// Entries in the pool's own redo log.
pub const POOL_LOG_ENTRIES: u64 = 511;
/// Offset of the pool's own redo log.
pub const POOL_LOG: u64 = 4096;
/// Offset of the first table.
pub const TABLES: u64 = POOL_LOG + 8192;
/// Offset of [`Root`].
pub const ROOT: u64 = 1024;
/// Bits of an id that are the index of the IPC object, see [`crate::ids`],
pub const LEAST_INDEX_BITS: u32 = 17;
/// and in a pool with the largest tables. A call's budget is enough to walk through these.
pub const MOST_INDEX_BITS: u32 = 20;
/// Bits of an id that are the sequence number, at the most.
pub const SEQ_BITS: u32 = 13;
/// The bit that marks an id as Vshmem's. The kernel gives out ids that large only after 2^30 creations.
pub const ID_BIT: u32 = 1 << 30;
/// Most IPC objects of one kind in a pool.
pub const MAX_ENTRIES: u32 = 1 << MOST_INDEX_BITS;
/// Most process slots: a slot is named by 16 bits.
pub const MAX_PROCS: u32 = 65535;
/// Most members: a member is named by 10 bits.
pub const MAX_MEMBERS: u32 = 64;
/// Ranges of pages that may be on their way in or out of the heap at once.
pub const PENDING_PAGES: usize = 32;
/// Orders of free pieces in a heap: those of 2^order to 2^(order + 1) - 1 blocks.
pub const ORDERS: usize = 28;

/// Questions for memory that there may be at a time.
pub const MEMORY_REQUESTS: usize = 16;

/// Chunks of a heap's words of which is known whether they are backed with memory.
pub const CHUNKS: usize = 4096;

/// An incompatible feature: segments begin at multiples of more than a page, and have all up to the next one
/// to themselves.
pub const ALIGNED: u32 = 1;
/// An incompatible feature: ids have more bits of index than [`LEAST_INDEX_BITS`].
pub const MANY: u32 = 2;
/// A compatible feature: the pool has a UUID.
pub const HAS_UUID: u32 = 1;
/// The most that segments can be aligned to, in bytes.
pub const MAX_ALIGN: u64 = 1 << 30;

/// The head of a pool. Written once, by whoever makes the pool; copied and checked by whoever opens it.
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Feature bits that a reader must know: [`ALIGNED`], [`MANY`].
    pub incompatible: AtomicU32,
    /// Feature bits that a reader may ignore: [`HAS_UUID`].
    pub compatible: AtomicU32,
    /// What segments are aligned to, in pages, if the pool is [`ALIGNED`]; else zero.
    pub align: AtomicU32,
    /// Bytes in the pool.
    pub size: AtomicU64,
    /// Where the tables are.
    pub geometry: GeometryWords,
    /// System V limits.
    pub limits: LimitWords,
    /// What tells the pool from all others, if it [has one](HAS_UUID); else zero.
    pub uuid: [AtomicU64; 2],
    /// Bits of an id that are the index, if the pool can have [`MANY`] IPC objects; else zero.
    pub index_bits: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
}
// SAFETY: atomics only.
unsafe impl Shared for Superblock {}

/// Where a table is, as the superblock says it; [`crate::Geometry`] is the checked copy.
#[repr(C)]
pub struct TableWords {
    /// Offset.
    pub offset: AtomicU64,
    /// Records.
    pub count: AtomicU64,
}

/// Where a heap is.
#[repr(C)]
pub struct HeapWords {
    /// Offset of its words.
    pub words: AtomicU64,
    /// Offset of its first block.
    pub base: AtomicU64,
    /// Blocks.
    pub count: AtomicU64,
}

/// Where everything is.
#[repr(C)]
pub struct GeometryWords {
    /// Members.
    pub members: TableWords,
    /// Process slots.
    pub procs: TableWords,
    /// Waiter records.
    pub waiters: TableWords,
    /// Entries by kind.
    pub entries: [TableWords; 3],
    /// Hash buckets by kind.
    pub buckets: [TableWords; 3],
    /// The heap of small blocks.
    pub small: HeapWords,
    /// The heap of pages.
    pub pages: HeapWords,
}

/// Limits, as the superblock says them; [`crate::Limits`] is the checked copy.
#[repr(C)]
pub struct LimitWords {
    /// Largest segment in bytes.
    pub shmmax: AtomicU64,
    /// Pages of all segments.
    pub shmall: AtomicU64,
    /// Segments.
    pub shmmni: AtomicU64,
    /// Semaphores in a set.
    pub semmsl: AtomicU64,
    /// Semaphores in all sets.
    pub semmns: AtomicU64,
    /// Operations in a `semop`.
    pub semopm: AtomicU64,
    /// Semaphore sets.
    pub semmni: AtomicU64,
    /// Bytes in a message.
    pub msgmax: AtomicU64,
    /// Bytes in a new queue.
    pub msgmnb: AtomicU64,
    /// Queues.
    pub msgmni: AtomicU64,
    /// Zero.
    pub reserved: [AtomicU64; 2],
}

/// What one kind of IPC object counts, all under the pool's lock.
#[repr(C)]
pub struct KindRoot {
    /// First free entry + 1, linked through [`Head::next`]; 0: none.
    pub free: AtomicU64,
    /// Entries that were ever used: the free list holds those below, all above are fresh.
    pub high: AtomicU64,
    /// Entries in use.
    pub used: AtomicU64,
    /// Zero.
    pub reserved: AtomicU64,
    /// Pages (segments) or semaphores (sets) in use.
    pub total: AtomicU64,
}

/// In the place of an owner of pending pages that did not get the pool's lock again: the lock's next owner
/// gives the pages back.
pub const ABANDONED: u64 = u64::MAX;

/// A range of pages on its way in or out: owned by a process, or by nobody once that died.
#[repr(C)]
pub struct PendingPages {
    /// Process slot + 1 and generation of the owner (`slot + 1 | generation << 32`), or [`ABANDONED`]; 0:
    /// unused.
    pub owner: AtomicU64,
    /// First page.
    pub first: AtomicU64,
    /// Pages.
    pub count: AtomicU64,
}

/// What changes in the head of a pool.
#[repr(C)]
pub struct Root {
    /// The pool's lock, see [`crate::lock`].
    pub lock: AtomicU32,
    /// Where the last search for a free process slot ended.
    pub proc_hint: AtomicU32,
    /// Where the last search for a free waiter record ended.
    pub waiter_hint: AtomicU32,
    /// Process slots that were ever used: all above are fresh.
    pub proc_high: AtomicU32,
    /// Waiter records that were ever used.
    pub waiter_high: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
    /// Segments, semaphore sets, message queues.
    pub kinds: [KindRoot; 3],
    /// The trees of free pieces of the page heap, by order: index + 1.
    pub page_free: [AtomicU64; ORDERS],
    /// The trees of free pieces of the small heap, by order: index + 1.
    pub small_free: [AtomicU64; ORDERS],
    /// Pages on their way in or out.
    pub pending_pages: [PendingPages; PENDING_PAGES],
    /// Bytes from the start of the small heap that are backed with memory.
    pub small_backed: AtomicU64,
    /// Free pages that still have their memory, kept for the next segments; it may be too low.
    pub kept: AtomicU64,
    /// How often the back end has said that it lives: once a second. 0: no back end ever served this pool.
    pub heartbeat: AtomicU64,
    /// When it did so last, in nanoseconds of the host's monotonic clock; 0: it has ended in good order.
    pub heartbeat_at: AtomicU64,
    /// A bit for each chunk of the words of the small heap and of the page heap: it is backed with memory.
    pub words_backed: [[AtomicU64; CHUNKS / 64]; 2],
    /// A bit for each member whose doorbell the back end is to ring for processes of the host.
    pub doorbells_to_ring: AtomicU64,
    /// How often somebody set such a bit; the back end sleeps on this word.
    pub doorbell_requests: AtomicU32,
    /// The count of heartbeats (its low bits) at which the back end said last that it serves memory requests;
    /// 0: it does not.
    pub gives: AtomicU32,
    /// Requests of members for memory, see [`crate::memory_requests`].
    pub memory_requests: [AtomicU64; MEMORY_REQUESTS],
    /// How often the back end has answered.
    pub answers: AtomicU32,
    /// Zero.
    pub reserved_too: AtomicU32,
    /// The back end's count of heartbeats when somebody last waited for it in vain.
    pub silent: AtomicU64,
    /// Blocks that the small heap has, from its first one on. It never has fewer again.
    pub small_end: AtomicU64,
}
// SAFETY: atomics only.
unsafe impl Shared for Root {}
const _: () = assert!(ROOT as usize + size_of::<Root>() <= 4096);

/// A kernel that is attached to the pool.
#[repr(C, align(64))]
pub struct Member {
    /// 0 free, 1 being written (bits 8-31 tell by which kernel), 2 in use, 3 dead, 4 vacant.
    pub state: AtomicU32,
    /// By which number its doorbell is rung, + 1; 0: it has none. Bit 31: it rings others'.
    pub peer: AtomicU32,
    /// What tells the kernel from all others.
    pub identity: [AtomicU64; 2],
    /// Its name, zero-terminated.
    pub name: [AtomicU8; 32],
    /// Since when the back end knows it, in seconds since the epoch; 0: it does not.
    pub since: AtomicU64,
}
// SAFETY: atomics only.
unsafe impl Shared for Member {}

/// A process that uses the pool.
#[repr(C, align(128))]
pub struct Proc {
    /// `state:32 | member:16 | generation:16`, low to high; see [`crate::process`].
    pub ident: AtomicU64,
    /// Its pid in its kernel.
    pub pid: AtomicU32,
    /// Where IPC objects beyond `touched` may know the process: [`EVERYWHERE`], or a bit for each
    /// [region](Kind::region) of a table.
    pub overflow: AtomicU32,
    /// When the process started, in its kernel's clock ticks since boot.
    pub started: AtomicU64,
    /// IPC objects that may hold something of this process: `kind << 28 | index + 1`; 0: unused.
    pub touched: [AtomicU32; 26],
}
// SAFETY: atomics only.
unsafe impl Shared for Proc {}

/// In [`Proc::overflow`]: IPC objects of all kinds and indices may know the process.
pub const EVERYWHERE: u32 = 1;
/// Indices in a region of a table.
pub const REGION: u32 = 1 << LEAST_INDEX_BITS;

/// In what is kept of a process's start: it holds no liveness lock, so its pid must tell whether it lives.
pub const NO_LIVENESS_LOCK: u64 = 1 << 31;

/// What every IPC object's entry begins with.
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
/// Where the sequence number begins in [`Head::flags`].
pub const HEAD_SEQ_SHIFT: u32 = 8;
/// Where the member begins, whose kernel the IPC object was made in: its index + 1, 7 bits; 0: unknown.
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
    /// The same of the last process that attached or detached.
    pub lpid: AtomicU64,
    /// Attachments.
    pub nattch: AtomicU64,
    /// First attachment record: offset, 0: none.
    pub holds: AtomicU64,
}
// SAFETY: atomics only.
unsafe impl Shared for Shm {}

/// A process's attachments of one segment by one source: a block of the small heap.
#[repr(C)]
pub struct Hold {
    /// Process slot + 1 and generation: `slot + 1 | generation << 32`.
    pub owner: AtomicU64,
    /// Next record: offset, 0: none.
    pub next: AtomicU64,
    /// Attachments that are counted. 0: its owner has none, but others may map it by the source.
    pub count: AtomicU64,
    /// So many times its owner has detached it without the lock, as each detach begins.
    pub detached: AtomicU64,
    /// So many of these were taken off the attachments.
    pub taken_off: AtomicU64,
    /// Id of the segment.
    pub segment: AtomicU64,
    /// What it is mapped by: a number that only the member's kernel knows, and the member << 48. 0: unknown.
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
    /// First and last waiter: index + 1.
    pub first_waiter: AtomicU64,
    /// Last waiter.
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

/// Adjustments of one process that don't fit beside the semaphores: a block of the small heap, followed by
/// one 16-bit adjustment for each semaphore, four to a word.
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
    /// What senders advance.
    pub send: MsgEnd,
    /// What receivers advance.
    pub receive: MsgEnd,
    /// The queue's lock.
    pub lock: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
    /// First and last waiting receiver: index + 1.
    pub first_receiver: AtomicU64,
    /// Last waiting receiver.
    pub last_receiver: AtomicU64,
    /// First waiting sender.
    pub first_sender: AtomicU64,
    /// Last waiting sender.
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
    /// What the other end's high word was when it was last looked at.
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

/// A thread that waits, for semaphores or for a queue.
#[repr(C, align(256))]
pub struct Waiter {
    /// Process slot + 1 and generation; 0: unused.
    pub owner: AtomicU64,
    /// [`WAITING`] or how it ended: what the thread sleeps on.
    pub status: AtomicU32,
    /// IPC object: `kind << 28 | index + 1`.
    pub object: AtomicU32,
    /// Next and previous in the queue: index + 1.
    pub next: AtomicU64,
    /// Previous in the queue.
    pub prev: AtomicU64,
    /// What it waits for: [`Waiter::semop`] or [`Waiter::message`].
    pub wanted: [AtomicU64; 5],
    /// When the thread began to wait, in seconds since the epoch; 0: unknown. Shown to people, and relied on
    /// by nobody.
    pub since: AtomicI64,
    /// Zero.
    pub spare: [AtomicU64; 2],
    /// Semaphores: the operations, `num:16 | op:16 | flags:16` each.
    pub ops: [AtomicU64; 20],
}
// SAFETY: atomics only.
unsafe impl Shared for Waiter {}

/// What a thread in `semop` waits for.
#[repr(C)]
pub struct WaitingSemop {
    /// Operations.
    pub count: AtomicU64,
    /// Offset of the operations when they don't fit in [`Waiter::ops`], otherwise the set's id.
    pub at: AtomicU64,
    /// The operation that blocks, and bit 32 if any alters.
    pub blocked: AtomicU64,
    /// Low half of the caller's pid word.
    pub pid: AtomicU64,
    /// Bytes in the block at `at`; 0: there is none.
    pub block_len: AtomicU64,
}

/// What a thread in `msgrcv` or `msgsnd` waits for.
#[repr(C)]
pub struct WaitingMessage {
    /// The type asked for.
    pub kind: AtomicU64,
    /// Bytes that a receiver has room for, or that a sender has.
    pub len: AtomicU64,
    /// Flags of `msgrcv`.
    pub flags: AtomicU64,
    /// Position of the message that was handed over.
    pub position: AtomicU64,
    /// The caller's pid word.
    pub pid: AtomicU64,
}

impl Waiter {
    /// What it waits for, of a thread that waits for semaphores.
    #[inline]
    pub fn semop(&self) -> &WaitingSemop {
        // SAFETY: five 64-bit atomics, as these are, at the same alignment.
        unsafe { &*self.wanted.as_ptr().cast() }
    }

    /// What it waits for, of a thread that waits for a queue.
    #[inline]
    pub fn message(&self) -> &WaitingMessage {
        // SAFETY: as above.
        unsafe { &*self.wanted.as_ptr().cast() }
    }
}

/// [`Waiter::status`]: not served yet. Any other value is `DONE | errno`.
pub const WAITING: u32 = 1;
/// [`Waiter::status`]: served; the low bits are an errno or 0.
pub const DONE: u32 = 1 << 31;
/// [`Waiter::status`]: the bits that hold the errno.
pub const ERRNO: u32 = 0xffff;

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
    /// The bit in [`Proc::overflow`] of the region in which an index lies.
    pub const fn region(self, index: u32) -> u32 {
        2 << (self as u32 * (MAX_ENTRIES / REGION) + index % MAX_ENTRIES / REGION)
    }
    /// The reference to an IPC object.
    pub const fn reference(self, index: u32) -> u32 {
        (self as u32) << 28 | (index + 1)
    }
}
