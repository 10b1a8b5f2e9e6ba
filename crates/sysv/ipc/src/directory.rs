//! The directory of a pool: from keys and ids to entries, and back. Everything here that changes something
//! runs under the pool's lock.

use crate::{perm, Ctx, Errno, ProcId, IPC_CREAT, IPC_EXCL, IPC_PRIVATE};
use vshmem_pool::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed},
};
use vshmem_pool::heap::Range;
use vshmem_pool::layout::*;
use vshmem_pool::lock::{Guard, SignalsBlocked};
use vshmem_pool::log::{Log, Txn};

/// Takes the pool's lock.
pub fn lock<'a>(c: &'a Ctx, signals: &SignalsBlocked) -> Result<Guard<'a>, Errno> {
    let log = || Log { at: POOL_LOG, entries: POOL_LOG_ENTRIES as u32 };
    Ok(Guard::lock(c, signals, &c.pool.root().lock, log)?)
}

/// Waits until the pool's lock is free: for a call that has changed nothing, and could not wait where it
/// needed the lock ([`Errno::INSIDE`]).
///
/// # Errors
/// The lock was not to be had in time, or a signal came.
pub fn await_lock(c: &Ctx, signals: &SignalsBlocked) -> Result<(), Errno> {
    lock(c, signals).map(drop)
}

/// Takes an IPC object's lock. If its owner died, that one may have been changing under the pool's lock what
/// belongs to the object.
pub fn lock_object<'a>(
    c: &'a Ctx,
    signals: &SignalsBlocked,
    word: &'static AtomicU32,
    log: impl Fn() -> Log,
) -> Result<Guard<'a>, Errno> {
    let pool = || {
        signals.nothing_changed();
        lock(c, signals)
    };
    let (guard, pool) = Guard::lock_under(c, signals, word, log, pool)?;
    pool.transpose()?;
    Ok(guard)
}

/// The entry that an id names, if it is there and not being removed.
#[inline]
pub fn lookup(c: &Ctx, kind: Kind, id: i32) -> Result<(u32, &'static Head), Errno> {
    let index = c.pool.ids().index(id);
    let head = c.pool.head(kind, index).ok_or(Errno::EINVAL)?; // unpaid
    if id as u32 & ID_BIT != 0 && head.id.load(Acquire) == id as u32 && !is_dying(head) {
        Ok((index, head))
    } else {
        Err(Errno::EINVAL)
    }
}

/// Is the entry still what `id` named when the caller looked?
pub fn still(head: &Head, id: i32) -> bool {
    head.id.load(Acquire) == id as u32 && !is_dying(head)
}

/// Is the IPC object being removed?
#[inline]
pub fn is_dying(head: &Head) -> bool {
    head.flags.load(Relaxed) & HEAD_DYING != 0
}

/// An entry's sequence number.
pub fn sequence(head: &Head) -> u32 {
    head.flags.load(Relaxed) >> HEAD_SEQ_SHIFT & ((1 << SEQ_BITS) - 1)
}

/// The entry at an index, for the `*_STAT` commands.
pub fn by_index(c: &Ctx, kind: Kind, index: i32) -> Result<(u32, i32), Errno> {
    // As Linux does, which takes ids, too: their low bits are the index.
    if index < 0 {
        return Err(Errno::EINVAL);
    }
    let index = c.pool.ids().index(index);
    if index as u64 >= c.pool.kind_root(kind).high.load(Relaxed) {
        // It may have no memory, nor be looked at.
        return Err(Errno::EINVAL);
    }
    let head = c.head(kind, index).ok_or(Errno::EINVAL)?;
    match head.id.load(Acquire) {
        0 => Err(Errno::EINVAL),
        _ if is_dying(head) => Err(Errno::EINVAL),
        id => Ok((index, id as i32)),
    }
}

/// Entries of a kind that were ever used.
pub fn high(c: &Ctx, kind: Kind) -> u32 {
    let high = c.pool.kind_root(kind).high.load(Relaxed);
    high.min(c.pool.capacity(kind).into()) as u32
}

/// The entries of a kind that are in use, in order.
pub fn used<'a>(c: &'a Ctx, kind: Kind) -> impl DoubleEndedIterator<Item = (u32, &'static Head)> + 'a {
    used_among(c, kind, 0..high(c, kind))
}

fn used_among<'a>(
    c: &'a Ctx,
    kind: Kind,
    indices: core::ops::Range<u32>,
) -> impl DoubleEndedIterator<Item = (u32, &'static Head)> + 'a {
    let head = move |index| c.next_head(kind, index).map(|head| (index, head));
    indices.filter_map(head).filter(|(_, head)| head.id.load(Relaxed) != 0)
}

/// Calls `each` with index and id of every entry that is being removed.
pub fn each_dying(c: &Ctx, kind: Kind, mut each: impl FnMut(u32, i32)) {
    for (index, head) in used(c, kind).filter(|(_, head)| is_dying(head)) {
        each(index, head.id.load(Relaxed) as i32);
    }
}

/// The highest index in use, -1 if there is none.
pub fn highest(c: &Ctx, kind: Kind) -> i32 {
    used(c, kind).rev().find(|(_, head)| !is_dying(head)).map_or(-1, |(index, _)| index as i32)
}

/// The result of a look-up by key.
pub enum Found {
    /// An existing IPC object.
    Existing(u32, &'static Head),
    /// No IPC object: one is to be made.
    Nothing,
}

/// The first half of every `*get`: looks the key up, under the pool's lock.
pub fn find(c: &Ctx, kind: Kind, key: i32, flg: i32) -> Result<Found, Errno> {
    if key == IPC_PRIVATE {
        return Ok(Found::Nothing);
    }
    match search(c, kind, key) {
        None if flg & IPC_CREAT == 0 => Err(Errno::ENOENT),
        None => Ok(Found::Nothing),
        Some(_) if flg & IPC_CREAT != 0 && flg & IPC_EXCL != 0 => Err(Errno::EEXIST),
        Some((index, head)) => Ok(Found::Existing(index, head)),
    }
}

/// The second half of a `*get` that found something.
pub fn admit(c: &Ctx, (index, head): (u32, &Head), flg: i32) -> Result<i32, Errno> {
    perm::check(c, head, flg as u32 & 0o777)?;
    let id = head.id.load(Acquire);
    // Another entry's is a lie about whose id that is.
    if c.pool.ids().index(id as i32) != index {
        return Err(Errno::EIDRM);
    }
    Ok(id as i32)
}

/// Offset of the bucket of a key.
pub fn bucket(c: &Ctx, kind: Kind, key: u32) -> u64 {
    let (offset, count) = c.pool.geometry().buckets[kind as usize];
    let hash = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    offset + (hash & (count as u64 - 1)) * 8
}

fn search(c: &Ctx, kind: Kind, key: i32) -> Option<(u32, &'static Head)> {
    // The table has no memory before the first one of the kind is made.
    if c.pool.kind_root(kind).high.load(Relaxed) == 0 {
        return None;
    }
    let mut link = c.word(bucket(c, kind, key as u32))?.load(Acquire);
    // A chain is never longer than the table: what is, was scribbled on.
    for _ in 0..c.pool.capacity(kind) {
        let index = u32::try_from(link.checked_sub(1)?).ok()?;
        let head = c.head(kind, index)?;
        if head.key.load(Relaxed) == key as u32 && head.id.load(Relaxed) != 0 && !is_dying(head) {
            return Some((index, head));
        }
        link = head.next.load(Acquire);
    }
    None
}

/// Takes a free entry and enters it into the directory. The caller adds its own words and commits.
pub fn insert(
    c: &Ctx,
    txn: &mut Txn,
    kind: Kind,
    key: i32,
    mode: u32,
    limit: u32,
) -> Result<(u32, i32), Errno> {
    let cred = c.kernel.cred();
    if cred.uid == u32::MAX || cred.gid == u32::MAX {
        return Err(Errno::EOVERFLOW);
    }
    let root = c.pool.kind_root(kind);
    let used = root.used.load(Relaxed);
    if used >= limit.min(c.pool.capacity(kind)) as u64 {
        return Err(Errno::ENOSPC);
    }
    let index = take_index(c, txn, kind)?;
    let head = c.head(kind, index).ok_or(Errno::ENOSPC)?;
    let ids = c.pool.ids();
    let seq = ids.next(sequence(head));
    let flags = seq << HEAD_SEQ_SHIFT | (u32::from(c.member) + 1) << HEAD_MEMBER_SHIFT;
    let id = ids.id(index, seq);
    let owner = cred.uid as u64 | (cred.gid as u64) << 32;
    txn.put(&root.used, used + 1)?;
    let at = c.pool.offset_of(head);
    txn.set(at, id as u32 as u64 | (mode as u64) << 32)?;
    txn.set(at + 8, owner)?;
    txn.set(at + 16, owner)?;
    txn.set(at + 24, key as u32 as u64 | (flags as u64) << 32)?;
    if key == IPC_PRIVATE {
        txn.put(&head.next, 0)?;
    } else {
        let bucket = bucket(c, kind, key as u32);
        let first = txn.get(bucket).ok_or(Errno::EINVAL)?;
        txn.put(&head.next, first)?;
        txn.set(bucket, index as u64 + 1)?;
    }
    Ok((index, id))
}

/// Takes the free entry whose turn it is ([`vshmem_pool::ids`]), or a fresh one.
fn take_index(c: &Ctx, txn: &mut Txn, kind: Kind) -> Result<u32, Errno> {
    let root = c.pool.kind_root(kind);
    let (mut link, mut seen, mut found) = (&root.free, 0, None);
    while seen < c.pool.ids().waits() {
        let Some(index) = link.load(Relaxed).checked_sub(1) else {
            break;
        };
        let index = index.min(u32::MAX as u64) as u32;
        let head = c.head(kind, index).ok_or(Errno::ENOSPC)?;
        (found, link, seen) = (Some((index, link, head)), &head.next, seen + 1);
    }
    let is_due = seen == c.pool.ids().waits();
    let fresh = if is_due { Err(Errno::ENOSPC) } else { take_fresh(c, txn, kind) };
    match (fresh, found) {
        (Err(_), Some((index, link, head))) => {
            txn.put(link, head.next.load(Relaxed))?;
            Ok(index)
        }
        (fresh, _) => fresh,
    }
}

/// Takes an entry that was never used.
fn take_fresh(c: &Ctx, txn: &mut Txn, kind: Kind) -> Result<u32, Errno> {
    let root = c.pool.kind_root(kind);
    let high = root.high.load(Relaxed);
    let index = u32::try_from(high).map_err(|_| Errno::ENOSPC)?;
    let at = c.pool.entry_offset(kind, index).ok_or(Errno::ENOSPC)?;
    let (buckets, count) = c.pool.geometry().buckets[kind as usize];
    // The first of a kind is the first to look at the buckets.
    let backed = index > 0 || c.reserve(buckets, count as u64 * 8);
    if !backed || !c.reserve(at, kind.entry_size()) {
        return Err(Errno::ENOMEM);
    }
    txn.put(&root.high, high + 1)?;
    Ok(index)
}

/// Takes an entry out of its hash chain and makes it private (`ipc_set_key_private`).
pub fn unhash(c: &Ctx, txn: &mut Txn, kind: Kind, index: u32) -> Result<(), Errno> {
    let head = c.head(kind, index).ok_or(Errno::EINVAL)?;
    let key = head.key.load(Relaxed);
    if key == IPC_PRIVATE as u32 {
        return Ok(());
    }
    let mut link_at = bucket(c, kind, key);
    for _ in 0..=c.pool.capacity(kind) {
        let link = txn.get(link_at).ok_or(Errno::EINVAL)?;
        let Some(found) = link.checked_sub(1).and_then(|i| u32::try_from(i).ok()) else {
            break;
        };
        let Some(next) = c.head(kind, found) else {
            break;
        };
        if found == index {
            txn.set(link_at, next.next.load(Relaxed))?;
            break;
        }
        link_at = c.pool.offset_of(&next.next);
    }
    let flags = head.flags.load(Relaxed);
    txn.set(c.pool.offset_of(head) + 24, (flags as u64) << 32)?;
    Ok(())
}

/// Puts an entry that is out of its hash chain onto the free list.
pub fn retire(c: &Ctx, txn: &mut Txn, kind: Kind, index: u32) -> Result<(), Errno> {
    let head = c.head(kind, index).ok_or(Errno::EINVAL)?;
    let root = c.pool.kind_root(kind);
    let at = c.pool.offset_of(head);
    let flags = sequence(head) << HEAD_SEQ_SHIFT;
    txn.set(at, 0)?;
    txn.set(at + 24, (flags as u64) << 32)?;
    txn.put(&head.next, txn.get(c.pool.offset_of(&root.free)).ok_or(Errno::EINVAL)?)?;
    txn.put(&root.free, index as u64 + 1)?;
    txn.put(&root.used, root.used.load(Relaxed).saturating_sub(1))?;
    Ok(())
}

/// Takes pages, whose own memory is not touched yet.
pub fn take_pages(c: &Ctx, txn: &mut Txn, count: u32) -> Result<Range, Errno> {
    let reserve = &mut |at, len| c.reserve(at, len);
    c.pool.geometry().pages.allocate(txn, count, reserve)?.ok_or(Errno::ENOMEM)
}

/// Takes a block of at least `len` bytes from the small heap; it is zeroed. Returns offset and length in
/// blocks.
pub fn take_block(c: &Ctx, txn: &mut Txn, len: u64) -> Result<(u64, u64), Errno> {
    let heap = &c.pool.geometry().small;
    let count = heap.blocks_for(len).ok_or(Errno::ENOMEM)?;
    let reserve = &mut |at, len| c.reserve(at, len);
    let range = c.pool.allocate_blocks(txn, count, reserve)?.ok_or(Errno::ENOMEM)?;
    let (at, bytes) = (heap.offset(range.first), range.count as u64 * heap.block());
    if !back(c, txn, at + bytes)? || !c.pool.mem().zero(at, bytes) {
        return Err(Errno::ENOMEM);
    }
    Ok((at, bytes))
}

/// Backs the small heap with memory up to an offset, in steps: it is used from its start and keeps its
/// memory.
fn back(c: &Ctx, txn: &mut Txn, end: u64) -> Result<bool, Errno> {
    const STEP: u64 = 64 << 10;
    let heap = &c.pool.geometry().small;
    let word = &c.pool.root().small_backed;
    let all = heap.count as u64 * heap.block();
    let backed = txn.get(c.pool.offset_of(word)).ok_or(Errno::EINVAL)?;
    // More than there is: nobody counted that, so nothing is known to be backed.
    let backed = if backed > all { 0 } else { backed };
    let need = end - heap.base;
    if need <= backed {
        return Ok(true);
    }
    let upto = need.next_multiple_of(STEP).min(all);
    if !c.reserve(heap.base + backed, upto - backed) {
        return Ok(false);
    }
    txn.put(word, upto)?;
    Ok(true)
}

/// Gives a block of the small heap back.
pub fn give_block(c: &Ctx, txn: &mut Txn, at: u64, bytes: u64) -> Result<(), Errno> {
    let heap = &c.pool.geometry().small;
    let Some(first) = heap.block_at(at) else {
        return Ok(());
    };
    let count = heap.blocks_for(bytes).ok_or(Errno::EINVAL)?;
    heap.free(txn, Range::new(first, count, true))?;
    Ok(())
}

/// Calls `each` with every IPC object of a kind that may hold something of a process.
pub fn each_touched(c: &Ctx, who: ProcId, kind: Kind, mut each: impl FnMut(u32)) {
    let Some(p) = c.proc(who.slot) else {
        return;
    };
    let overflow = p.overflow.load(Relaxed);
    let is_searched = |index| overflow & (EVERYWHERE | kind.region(index)) != 0;
    let high = high(c, kind);
    for first in (0..high).step_by(REGION as usize).filter(|first| is_searched(*first)) {
        let region = first..high.min(first + REGION);
        used_among(c, kind, region).for_each(|(index, _)| each(index));
    }
    for touched in &p.touched {
        match Kind::of_reference(touched.load(Relaxed)) {
            Some((k, index)) if k == kind && !is_searched(index) => each(index),
            _ => {}
        }
    }
}
