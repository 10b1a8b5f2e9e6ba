//! The layout of a pool. `docs/layout.md` is the specification; this module is its code.
//!
//! The compiler checks each size and offset that the page says (`spec`). Everything is little-endian and
//! named by byte offsets from the start of the pool. Words that slow paths change are 64 bits wide, so that
//! the redo log needs one kind of entry.

mod objects;
mod spec;
mod waiters;

use crate::atomic::{AtomicU32, AtomicU64, AtomicU8};
use crate::mem::Shared;

pub use crate::mem::PAGE;
pub use objects::*;
pub use waiters::*;

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
/// Bits of an id that are the index of the IPC object in most pools, see [`crate::ids`].
pub const LEAST_INDEX_BITS: u32 = 17;
/// Bits of an id that are the index in a pool with the largest tables. A call's budget is enough to walk
/// through these.
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

/// Memory requests that there may be at a time.
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

/// The head of a pool. The maker of the pool writes it, once; a process that opens the pool copies and checks
/// it.
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
    /// The alignment of segments, in pages, if the pool is [`ALIGNED`]; else zero.
    pub align: AtomicU32,
    /// Bytes in the pool.
    pub size: AtomicU64,
    /// The places of tables and heaps.
    pub geometry: GeometryWords,
    /// System V limits.
    pub limits: LimitWords,
    /// The pool's UUID, if it [has one](HAS_UUID); else zero.
    pub uuid: [AtomicU64; 2],
    /// Bits of an id that are the index, if the pool can have [`MANY`] IPC objects; else zero.
    pub index_bits: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
}
// SAFETY: atomics only.
unsafe impl Shared for Superblock {}

/// The place of a table, as the superblock says it; [`crate::Geometry`] is the checked copy.
#[repr(C)]
pub struct TableWords {
    /// Offset.
    pub offset: AtomicU64,
    /// Records.
    pub count: AtomicU64,
}

/// The place of a heap.
#[repr(C)]
pub struct HeapWords {
    /// Offset of its words.
    pub words: AtomicU64,
    /// Offset of its first block.
    pub base: AtomicU64,
    /// Blocks.
    pub count: AtomicU64,
}

/// The places of tables and heaps.
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

/// Counts of one kind of IPC object, all under the pool's lock.
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

/// The value in the place of an owner of pending pages that did not get the pool's lock again: the lock's
/// next owner gives the pages back.
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

/// The changing part of a pool's head.
#[repr(C)]
pub struct Root {
    /// The pool's lock, see [`crate::lock`].
    pub lock: AtomicU32,
    /// The process slot at which the last search for a free one ended.
    pub proc_hint: AtomicU32,
    /// The waiter record at which the last search for a free one ended.
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
    /// The heartbeat: a count of seconds in which a back end lived. 0: no back end ever served this pool.
    pub heartbeat: AtomicU64,
    /// The time of the last heartbeat, in nanoseconds of the host's monotonic clock; 0: the back end has
    /// ended in good order.
    pub heartbeat_at: AtomicU64,
    /// A bit for each chunk of the words of the small heap and of the page heap: it is backed with memory.
    pub words_backed: [[AtomicU64; CHUNKS / 64]; 2],
    /// A bit for each member whose doorbell the back end is to ring for processes of the host.
    pub doorbells_to_ring: AtomicU64,
    /// A count of requests for doorbells; the back end sleeps on this word.
    pub doorbell_requests: AtomicU32,
    /// The count of heartbeats (its low bits) at which the back end said last that it serves memory requests;
    /// 0: it does not.
    pub gives: AtomicU32,
    /// Requests of members for memory, see [`crate::memory_requests`].
    pub memory_requests: [AtomicU64; MEMORY_REQUESTS],
    /// A count of the back end's answers.
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
    /// The number by which its doorbell is rung, + 1; 0: it has none. Bit 31: it rings others'.
    pub peer: AtomicU32,
    /// The kernel's identity.
    pub identity: [AtomicU64; 2],
    /// Its name, zero-terminated.
    pub name: [AtomicU8; 32],
    /// The time since when the back end knows it, in seconds since the epoch; 0: it does not.
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
    /// IPC objects beyond `touched` that may know the process: [`EVERYWHERE`], or a bit for each
    /// [region](Kind::region) of a table.
    pub overflow: AtomicU32,
    /// The start of the process, in its kernel's clock ticks since boot.
    pub started: AtomicU64,
    /// IPC objects that may hold something of this process: `kind << 28 | index + 1`; 0: unused.
    pub touched: [AtomicU32; 26],
}
// SAFETY: atomics only.
unsafe impl Shared for Proc {}

/// The bit of [`Proc::overflow`] that says: IPC objects of all kinds and indices may know the process.
pub const EVERYWHERE: u32 = 1;
/// Indices in a region of a table.
pub const REGION: u32 = 1 << LEAST_INDEX_BITS;

/// The bit of [`Proc::started`] that says: the process holds no liveness lock, so its pid must tell whether
/// it lives.
pub const NO_LIVENESS_LOCK: u64 = 1 << 31;
