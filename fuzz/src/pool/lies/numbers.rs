//! Numbers that are too large, by themselves or together.

use super::names::{mark, Lie, Names, FEW, SOME};
use std::sync::atomic::Ordering::Relaxed;
use vshmem_pool::layout::*;

pub fn a_set_of_very_many(n: &Names, lie: Lie) -> Option<()> {
    let set = n.sem(u64::from(lie.a & 1))?;
    let count = [65_535, 32_000, 512, 4][usize::from(lie.a >> 1) % 4];
    set.nsems.store(count, Relaxed);
    if lie.a & 8 != 0 {
        let (cells, room) = n.ground(4, 16, 1 << 16);
        set.cells.store(cells, Relaxed);
        let (slot, generation) = n.process(lie.b);
        for num in 0..room.min(SOME) {
            let owed = u64::from(lie.c & 15) << 32;
            n.put(cells + num * 16 + 8, (slot + 1) | generation << 16 | owed)?;
        }
    }
    if lie.a & 16 != 0 {
        set.clear.store(CLEAR_ALL, Relaxed);
    }
    if lie.a & 32 != 0 {
        set.log_entries.store(u64::MAX, Relaxed);
    }
    Some(())
}

pub fn a_ring_of_very_many(n: &Names, lie: Lie) -> Option<()> {
    let queue = n.msg(u64::from(lie.a & 1))?;
    let (ring, cells) = n.ground(2, 128, 1 << 20);
    for i in 0..cells.min(SOME) {
        n.put(ring + i * 32, mark(n, lie.b, i))?;
    }
    queue.ring.store(ring, Relaxed);
    queue.cells.store(cells, Relaxed);
    let used = if lie.a & 2 == 0 { cells } else { u64::from(lie.c) };
    for (end, at) in [(&queue.receive, 0), (&queue.send, used)] {
        end.at.lo.store(at, Relaxed);
        if lie.a & 4 == 0 {
            end.at.hi.store(0, Relaxed);
        }
        end.done.store(0, Relaxed);
        end.sweep.store(u64::from(lie.a >> 3) << 28, Relaxed);
    }
    if lie.a & 4 == 0 {
        queue.send.at.hi.store(used, Relaxed);
    }
    Some(())
}

pub fn all_entries_used(n: &Names, lie: Lie) -> Option<()> {
    let root = n.root()?;
    for kind in Kind::ALL {
        let capacity = n.geometry(7 + 2 * kind as u64);
        let high = &root.kinds[kind as usize].high;
        if lie.a >> (kind as u8) & 1 != 0 {
            high.store(capacity, Relaxed);
        }
        if lie.b >> (kind as u8) & 1 != 0 {
            for index in FEW..capacity.min(SOME) {
                let head = n.head(kind, index)?;
                head.id.store(ID_BIT | index as u32, Relaxed);
            }
        }
    }
    if lie.a & 8 != 0 {
        root.proc_high.store(n.geometry(3) as u32, Relaxed);
    }
    if lie.a & 16 != 0 {
        root.waiter_high.store(n.geometry(5) as u32, Relaxed);
    }
    if lie.a & 32 != 0 {
        // Records of somebody that stand nowhere.
        for index in 0..n.geometry(5).min(SOME) {
            let waiter = n.waiter(index)?;
            waiter.owner.store(n.owner(lie.c), Relaxed);
            let what = Names::kind(lie.b >> 3).reference(u32::from(lie.b >> 5));
            waiter.object.store(what, Relaxed);
        }
    }
    Some(())
}

pub fn ends_far_apart(n: &Names, lie: Lie) -> Option<()> {
    let queue = n.msg(u64::from(lie.a & 1))?;
    let far = u64::from(lie.b) << (lie.c % 33);
    let end = if lie.a & 2 == 0 { &queue.send } else { &queue.receive };
    let word = match lie.a >> 2 & 7 {
        0 => &end.at.lo,
        1 => &end.seen,
        2 => &end.done,
        3 => &end.sweep,
        4 => &end.finished,
        5 => &queue.qbytes,
        6 => &end.at.hi,
        _ => &queue.cells,
    };
    let at = word.load(Relaxed);
    word.store(if lie.a & 32 == 0 { at.wrapping_add(far) } else { at.wrapping_sub(far) }, Relaxed);
    Some(())
}

/// A waiter that has very many operations, or wants very much.
pub fn a_wait_for_very_much(n: &Names, lie: Lie) -> Option<()> {
    let waiter = n.waiter(Lie::one(lie.a))?;
    waiter.semop().count.store(u64::from(lie.b) << (lie.c % 12), Relaxed);
    match lie.a >> 6 {
        0 => waiter.semop().at.store(n.ground(4, 16, 1).0, Relaxed),
        1 => waiter.semop().block_len.store(u64::from(lie.b) << 20, Relaxed),
        2 => waiter.status.store(DONE | 1 << 30 | u32::from(lie.b) << 16, Relaxed),
        _ => {
            let sop = u64::from(lie.b) | 0x8001 << 16;
            waiter.ops.iter().for_each(|op| op.store(sop, Relaxed));
        }
    }
    Some(())
}

pub fn pending_pages_are_full(n: &Names, lie: Lie) -> Option<()> {
    let (root, pages) = (n.root()?, n.geometry(23));
    for (i, pending) in root.pending_pages.iter().enumerate() {
        let owner = if lie.a & 1 == 0 { ABANDONED } else { n.owner(lie.b) };
        pending.owner.store(owner, Relaxed);
        let first = u64::from(lie.c) * (i as u64 & u64::from(lie.a >> 4));
        pending.first.store(first, Relaxed);
        pending.count.store(if lie.a & 2 == 0 { pages } else { 1 }, Relaxed);
    }
    Some(())
}

/// Memory is there that is not, and the other way round.
pub fn much_is_backed(n: &Names, lie: Lie) -> Option<()> {
    let root = n.root()?;
    let all = if lie.a & 1 == 0 { u64::MAX } else { 0 };
    root.words_backed.iter().flatten().for_each(|bits| bits.store(all, Relaxed));
    root.small_backed.store(u64::from(lie.b) << (lie.c % 40), Relaxed);
    root.kept.store(u64::from(lie.b), Relaxed);
    Some(())
}
