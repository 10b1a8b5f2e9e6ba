//! `docs/layout.md` as the compiler checks it: sizes, and where each field is.

use super::*;
use crate::log::Log;
use core::mem::offset_of;

/// `specified!(TYPE, SIZE, FIELD at OFFSET, ...)`
macro_rules! specified {
    ($type:ty, $size:expr $(, $($field:tt).+ at $offset:expr)* $(,)?) => {
        const _: () = assert!(size_of::<$type>() == $size, concat!("size of ", stringify!($type)));
        $(const _: () = assert!(
            offset_of!($type, $($field).+) == $offset,
            concat!("offset of ", stringify!($type), "::", stringify!($($field).+))
        );)*
    };
}

// Conventions, overview, and the most that there may be of anything.
const _: () = {
    assert!(MAGIC.to_le_bytes()[6] == 1 && MAGIC.to_le_bytes()[7] == 10 && VERSION == 5);
    assert!(PAGE == 4096 && BLOCK == 256 && ROOT == 1024 && POOL_LOG == 4096 && TABLES == 12288);
    assert!(POOL_LOG_ENTRIES == 511 && Log::size(POOL_LOG_ENTRIES) == TABLES - POOL_LOG);
    assert!(MAX_MEMBERS == 64 && MAX_PROCS == 65535 && MAX_ENTRIES == 1048576);
    assert!(ORDERS == 28 && PENDING_PAGES == 32 && MEMORY_REQUESTS == 16 && CHUNKS == 64 * 64);
    assert!(ID_BIT == 1 << 30 && SEQ_BITS == 13 && LEAST_INDEX_BITS == 17 && MOST_INDEX_BITS == 20);
    assert!(HEAD_DYING == 1 && HEAD_SEQ_SHIFT == 8 && HEAD_MEMBER_SHIFT == 8 + SEQ_BITS);
    assert!(NO_LIVENESS_LOCK == 1 << 31 && ABANDONED == u64::MAX && CLEAR_ALL == u64::MAX);
    assert!(ALIGNED == 1 && MANY == 2 && HAS_UUID == 1);
    assert!(WAITING == 1 && DONE == 1 << 31);
    assert!(EVERYWHERE == 1 && REGION == 131072 && Kind::Shm.region(REGION - 1) == 1 << 1);
    assert!(Kind::Sem.region(REGION) == 1 << 10 && Kind::Msg.region(MAX_ENTRIES - 1) == 1 << 24);
    assert!(Kind::Shm.reference(0) == 1 && Kind::Sem.reference(0) == 1 << 28 | 1);
    assert!(Kind::Msg.reference(MAX_ENTRIES - 1) == 2 << 28 | MAX_ENTRIES);
};

specified!(
    Superblock, 344,
    magic at 0, version at 8, incompatible at 12, compatible at 16, align at 20, size at 24,
    geometry at 32, limits at 224, uuid at 320, index_bits at 336,
);
specified!(
    GeometryWords, 24 * 8,
    members at 0, procs at 16, waiters at 32, entries at 48, buckets at 96, small at 18 * 8, pages at 21 * 8,
);
specified!(TableWords, 16, offset at 0, count at 8);
specified!(HeapWords, 24, words at 0, base at 8, count at 16);
specified!(
    LimitWords, 12 * 8,
    shmmax at 0, shmall at 8, shmmni at 16, semmsl at 24, semmns at 32, semopm at 40, semmni at 48,
    msgmax at 56, msgmnb at 64, msgmni at 72, reserved at 80,
);
specified!(
    Root, 2584,
    lock at 0, proc_hint at 4, waiter_hint at 8, proc_high at 12, waiter_high at 16, reserved at 20,
    kinds at 24, page_free at 144, small_free at 368, pending_pages at 592, small_backed at 1360,
    kept at 1368,
    heartbeat at 1376, heartbeat_at at 1384, words_backed at 1392, doorbells_to_ring at 2416,
    doorbell_requests at 2424, gives at 2428,
    memory_requests at 2432, answers at 2560, reserved_too at 2564, silent at 2568, small_end at 2576,
);
specified!(KindRoot, 40, free at 0, high at 8, used at 16, reserved at 24, total at 32);
specified!(PendingPages, 24, owner at 0, first at 8, count at 16);
specified!(Member, 64, state at 0, peer at 4, identity at 8, name at 24, since at 56);
specified!(Proc, 128, ident at 0, pid at 8, overflow at 12, started at 16, touched at 24);
specified!(
    Head, 40,
    id at 0, mode at 4, uid at 8, gid at 12, cuid at 16, cgid at 20, key at 24, flags at 28, next at 32,
);
specified!(
    Shm, 128,
    head at 0, first at 40, pages at 48, size at 56, atime at 64, dtime at 72, ctime at 80, cpid at 88,
    lpid at 96, nattch at 104, holds at 112,
);
specified!(
    Hold, 64,
    owner at 0, next at 8, count at 16, detached at 24, taken_off at 32, segment at 40, source at 48,
    inherited at 56,
);
specified!(
    Sem, 192,
    head at 0, nsems at 40, cells at 48, otime at 56, lock at 64, reserved at 68, undo at 72,
    first_waiter at 80, last_waiter at 88, clear at 96, log at 104, log_entries at 112, block_len at 120,
    ctime at 128,
);
specified!(Undo, 24, owner at 0, next at 8, block_len at 16);
specified!(
    Msg, 256,
    head at 0, qbytes at 40, ring at 48, cells at 56, send at 64, receive at 128, lock at 192,
    reserved at 196, first_receiver at 200, last_receiver at 208, first_sender at 216, last_sender at 224,
    ctime at 232, log at 240, retired at 248,
);
specified!(
    MsgEnd, 64,
    at at 0, seen at 16, time at 24, pid at 32, done at 40, sweep at 48, finished at 56,
);
specified!(
    Waiter, 256,
    owner at 0, status at 8, object at 12, next at 16, prev at 24, wanted at 32, since at 72,
    spare at 80, ops at 96,
);
specified!(WaitingSemop, 40, count at 0, at at 8, blocked at 16, pid at 24, block_len at 32);
specified!(WaitingMessage, 40, kind at 0, len at 8, flags at 16, position at 24, pid at 32);
