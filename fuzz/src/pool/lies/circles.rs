//! Lists that lead back to themselves.

use super::names::{mark, Lie, Names, SOME};
use std::sync::atomic::Ordering::Relaxed;
use vshmem_pool::layout::*;

pub fn waiters_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
    let (first, second) = (Lie::one(lie.b), Lie::one(lie.b / 8));
    let link = first + 1;
    for (index, next) in [(first, second + 1), (second, link)] {
        let waiter = n.waiter(index)?;
        waiter.next.store(next, Relaxed);
        waiter.prev.store(next, Relaxed);
        waiter.status.store(WAITING, Relaxed);
        if lie.c & 64 != 0 {
            waiter.owner.store(n.owner(lie.c), Relaxed);
        }
    }
    let index = u64::from(lie.a >> 4) % 2;
    let (first, last) = match lie.a % 3 {
        0 => (&n.sem(index)?.first_waiter, &n.sem(index)?.last_waiter),
        1 => (&n.msg(index)?.first_receiver, &n.msg(index)?.last_receiver),
        _ => (&n.msg(index)?.first_sender, &n.msg(index)?.last_sender),
    };
    first.store(link, Relaxed);
    if lie.c & 128 != 0 {
        last.store(link, Relaxed);
    }
    Some(())
}

pub fn undo_records_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
    let set = n.sem(u64::from(lie.a & 1))?;
    let mut at = set.undo.load(Relaxed);
    if lie.b & 1 != 0 || n.mem.at::<Undo>(at).is_none() {
        at = n.ground(4, BLOCK, 1).0;
    }
    let record: &Undo = n.mem.at(at)?;
    let next = if lie.b & 2 == 0 { at } else { at + BLOCK };
    record.next.store(next, Relaxed);
    n.put(next + 8, at)?;
    record.owner.store(n.owner(lie.c), Relaxed);
    let len = u64::from(lie.b) << 12;
    record.block_len.store(len, Relaxed);
    set.undo.store(at, Relaxed);
    // What it is to be given back.
    n.put(at + 24, u64::from(lie.c >> 3) * 0x0001_0001_0001_0001)
}

pub fn holds_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
    let segment = n.shm(Lie::one(lie.a))?;
    let mut at = segment.holds.load(Relaxed);
    if lie.b & 1 != 0 || n.mem.at::<Hold>(at).is_none() {
        at = n.ground(4, BLOCK, 1).0;
        segment.holds.store(at, Relaxed);
    }
    let hold: &Hold = n.mem.at(at)?;
    let next = if lie.b & 2 == 0 { at } else { at + BLOCK };
    hold.next.store(next, Relaxed);
    n.put(next + 8, at)?;
    hold.owner.store(n.owner(lie.c), Relaxed);
    if lie.b & 4 != 0 {
        hold.detached.store(u64::MAX >> (lie.b >> 2), Relaxed);
    }
    if lie.b & 8 != 0 {
        let id = segment.head.id.load(Relaxed);
        hold.segment.store(id.into(), Relaxed);
    }
    Some(())
}

pub fn a_chain_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
    let kind = Names::kind(lie.a);
    let (first, second) = (Lie::one(lie.b), Lie::one(lie.c));
    let buckets = n.geometry(13 + 2 * kind as u64);
    for bucket in 0..buckets.min(SOME) {
        n.put(n.table(6 + kind as u64, bucket, 8), first + 1)?;
    }
    n.head(kind, first)?.next.store(second + 1, Relaxed);
    n.head(kind, second)?.next.store(first + 1, Relaxed);
    Some(())
}

pub fn free_entries_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
    let kind = Names::kind(lie.a);
    let index = Lie::one(lie.b);
    n.root()?.kinds[kind as usize].free.store(index + 1, Relaxed);
    n.head(kind, index)?.next.store(index + 1, Relaxed);
    Some(())
}

pub fn free_blocks_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
    let root = n.root()?;
    let (heap, trees) = match lie.a & 1 {
        0 => (18, &root.small_free),
        _ => (21, &root.page_free),
    };
    let order = u64::from(lie.b) % ORDERS as u64;
    let count = 1 << order;
    let short = if order < 2 { count << 56 } else { 0 };
    let (one, other) = (u64::from(lie.c), u64::from(lie.c ^ 4));
    for (from, to) in [(one, other), (other, one)] {
        let at = n.geometry(heap).wrapping_add(from * 8);
        let links = (to + 1) | (to + 1) << 28;
        n.put(at, 1 << 63 | short | if lie.a & 2 == 0 { links } else { 0 })?;
        n.put(at + 8, if lie.a & 4 == 0 { links } else { 0 })?;
        n.put(at + 16, count)?;
    }
    trees[order as usize].store(one + 1, Relaxed);
    Some(())
}

pub fn retired_rings_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
    let queue = n.msg(u64::from(lie.a & 1))?;
    let most = if lie.a & 2 == 0 { 1 << 20 } else { 64 };
    let (ring, cells) = n.ground(2, 128, most);
    let link = ring | u64::from(cells.ilog2());
    let spare = ring + cells * 96;
    n.put(spare, link)?;
    n.put(spare + 8, 1024)?;
    for i in 0..u64::from(lie.b) {
        n.put(spare + 16 + i * 16, i)?;
        n.put(spare + 24 + i * 16, mark(n, lie.c, i))?;
        n.put(ring + i * 32, mark(n, lie.c, i))?;
    }
    queue.retired.store(link, Relaxed);
    Some(())
}
