//! What an enemy tells by several words that belong together: lists that lead back to themselves, numbers whose product is out of bounds, names
//! of those who live, stand still and are dead where they have nothing, and ids that are nearly others.

use crate::input::Input;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use vshmem_pool::layout::*;
use vshmem_pool::Mem;

/// Of all that has an index, few are in use.
const FEW: u64 = 6;
/// Of a lock's word: somebody holds it.
const HELD: u32 = 1 << 30;
/// So many words of a kind are forged one by one.
const SOME: u64 = 64;

/// A lie, and what it is about.
#[derive(Clone, Copy)]
pub struct Lie {
    kind: u8,
    a: u8,
    b: u8,
    c: u8,
}

/// How to tell one, by the order of their numbers.
type Teller = fn(&Names, Lie) -> Option<()>;
const TELLERS: [Teller; 20] = [
    waiters_in_a_circle,
    undo_records_in_a_circle,
    holds_in_a_circle,
    a_chain_in_a_circle,
    free_entries_in_a_circle,
    free_blocks_in_a_circle,
    parked_rings_in_a_circle,
    a_set_of_very_many,
    a_ring_of_very_many,
    all_entries_used,
    known_everywhere,
    a_lock_is_held,
    an_owner,
    a_mover,
    nearly_another_id,
    ends_far_apart,
    a_wait_for_very_much,
    a_committed_log,
    limbo_is_full,
    much_is_backed,
];

impl Lie {
    /// One that the input makes up.
    pub fn choose(kind: u8, input: &mut Input) -> Lie {
        let (a, b, c) = (input.byte(), input.byte(), input.byte());
        Lie { kind, a, b, c }
    }

    /// Tells it, as far as the pool has room for it.
    pub fn tell(self, mem: Mem) {
        let teller = TELLERS[usize::from(self.kind) % TELLERS.len()];
        let _ = teller(&Names::of(mem), self);
    }

    /// The index of a thing that is chosen by a byte: as a rule one that is in use.
    fn one(of: u8) -> u64 {
        u64::from(of) % FEW
    }
}

/// Where things are, as the pool says, which the enemy may have changed as well.
pub struct Names {
    mem: Mem,
}

impl Names {
    /// As it is now.
    pub fn of(mem: Mem) -> Names {
        Names { mem }
    }

    fn word(&self, at: u64) -> Option<&'static AtomicU64> {
        self.mem.word(at)
    }

    fn put(&self, at: u64, value: u64) -> Option<()> {
        self.word(at)?.store(value, Relaxed);
        Some(())
    }

    fn geometry(&self, i: u64) -> u64 {
        self.word(32 + i * 8).map_or(0, |w| w.load(Relaxed))
    }

    fn table(&self, i: u64, index: u64, each: u64) -> u64 {
        self.geometry(i * 2).wrapping_add(index * each)
    }

    fn proc(&self, slot: u64) -> Option<&'static Proc> {
        self.mem.at(self.table(1, slot, 128))
    }

    fn waiter(&self, index: u64) -> Option<&'static Waiter> {
        self.mem.at(self.table(2, index, 256))
    }

    fn shm(&self, index: u64) -> Option<&'static Shm> {
        self.mem.at(self.table(3, index, Kind::Shm.entry_size()))
    }

    fn sem(&self, index: u64) -> Option<&'static Sem> {
        self.mem.at(self.table(4, index, Kind::Sem.entry_size()))
    }

    fn msg(&self, index: u64) -> Option<&'static Msg> {
        self.mem.at(self.table(5, index, Kind::Msg.entry_size()))
    }

    fn root(&self) -> Option<&'static Root> {
        self.mem.at(ROOT)
    }

    fn kind(a: u8) -> Kind {
        Kind::ALL[usize::from(a) % 3]
    }

    fn head(&self, kind: Kind, index: u64) -> Option<&'static Head> {
        let i = 3 + kind as u64;
        self.mem.at(self.table(i, index, kind.entry_size()))
    }

    /// Blocks of the small heap that nobody has as a rule, with room for `each` times a power of two, which is `most` or less.
    pub fn ground(&self, part: u64, each: u64, most: u64) -> (u64, u64) {
        let (base, len) = (self.geometry(19), self.geometry(20) * BLOCK);
        let room = len / part / each;
        let count = if room == 0 { 1 } else { 1 << room.ilog2() };
        (base.wrapping_add(len / part), count.min(most))
    }

    /// Has very much forged, as no enemy could while an input is played: adjustments and marks on all that ground, of those who live.
    pub fn prepare(&self) -> Option<()> {
        let (cells, count) = self.ground(4, 16, 1 << 16);
        for num in 0..count {
            let (slot, generation) = self.process(num as u8 % 5);
            self.put(
                cells + num * 16 + 8,
                (slot + 1) | generation << 16 | 1 << 32,
            )?;
        }
        let (ring, count) = self.ground(2, 128, 1 << 20);
        (0..count).try_for_each(|i| self.put(ring + i * 32, mark(self, i as u8 & 4, i)))?;
        for kind in Kind::ALL {
            for index in FEW..self.geometry(7 + 2 * kind as u64) {
                let head = self.head(kind, index)?;
                head.id.store(ID_BIT | index as u32, Relaxed);
            }
        }
        Some(())
    }

    /// The slot of a process, and its generation: of one that lives, stands still or is dead, of another time, or of none.
    fn process(&self, which: u8) -> (u64, u64) {
        let slot = u64::from(which) % 8;
        let ident = self.proc(slot).map_or(0, |p| p.ident.load(Relaxed));
        (slot, (ident >> 48).wrapping_add(u64::from(which >> 6 == 3)))
    }

    /// Its name, as records have it.
    fn owner(&self, which: u8) -> u64 {
        let (slot, generation) = self.process(which);
        (slot + 1) | (generation & 0xffff) << 32
    }

    /// The same, as locks have it.
    fn holder(&self, which: u8) -> u32 {
        let (slot, generation) = self.process(which);
        HELD | (generation as u32 & 0x3fff) << 16 | slot as u32
    }

    fn lock(&self, which: u8) -> Option<&'static AtomicU32> {
        let index = u64::from(which >> 2) % 2;
        match which % 4 {
            0 => Some(&self.root()?.lock),
            1 => Some(&self.sem(index)?.lock),
            _ => Some(&self.msg(index)?.lock),
        }
    }

    /// The offset of a lock, and two owners.
    pub fn flutter(&self, input: &mut Input) -> (u64, [u32; 2]) {
        let (which, one, other) = (input.byte(), input.byte(), input.byte());
        let base = self.mem.base() as u64;
        let at = self
            .lock(which)
            .map_or(0, |word| word.as_ptr() as u64 - base);
        (at, [self.holder(one), self.holder(other)])
    }
}

fn waiters_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
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

fn undo_records_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
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

fn holds_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
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

fn a_chain_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
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

fn free_entries_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
    let kind = Names::kind(lie.a);
    let index = Lie::one(lie.b);
    n.root()?.kinds[kind as usize]
        .free
        .store(index + 1, Relaxed);
    n.head(kind, index)?.next.store(index + 1, Relaxed);
    Some(())
}

fn free_blocks_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
    let root = n.root()?;
    let (heap, lists) = match lie.a & 1 {
        0 => (18, &root.small_free),
        _ => (21, &root.page_free),
    };
    let order = u64::from(lie.b) % ORDERS as u64;
    let (one, other) = (u64::from(lie.c), u64::from(lie.c ^ 1));
    let link = |next: u64| (next + 1) | (next + 1) << 28 | order << 56 | 1 << 62;
    n.put(n.geometry(heap).wrapping_add(one * 8), link(other))?;
    n.put(n.geometry(heap).wrapping_add(other * 8), link(one))?;
    lists[order as usize].store(one + 1, Relaxed);
    Some(())
}

fn parked_rings_in_a_circle(n: &Names, lie: Lie) -> Option<()> {
    let queue = n.msg(u64::from(lie.a & 1))?;
    let most = if lie.a & 2 == 0 { 1 << 20 } else { 64 };
    let (ring, cells) = n.ground(2, 128, most);
    let link = ring | u64::from(cells.ilog2());
    let notes = ring + cells * 96;
    n.put(notes, link)?;
    n.put(notes + 8, 1024)?;
    for i in 0..u64::from(lie.b) {
        n.put(notes + 16 + i * 16, i)?;
        n.put(notes + 24 + i * 16, mark(n, lie.c, i))?;
        n.put(ring + i * 32, mark(n, lie.c, i))?;
    }
    queue.parked.store(link, Relaxed);
    Some(())
}

/// The mark of somebody who is at work on a message.
fn mark(n: &Names, which: u8, lap: u64) -> u64 {
    let state = [1, 3, 4, 7, 2, 5, 6, 1][usize::from(which >> 3) % 8];
    let lap = if which & 128 == 0 { 0 } else { lap };
    state | lap << 4 | 1 << 24 | (n.process(which).0 + 1) << 48
}

fn a_set_of_very_many(n: &Names, lie: Lie) -> Option<()> {
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

fn a_ring_of_very_many(n: &Names, lie: Lie) -> Option<()> {
    let queue = n.msg(u64::from(lie.a & 1))?;
    let (ring, cells) = n.ground(2, 128, 1 << 20);
    for i in 0..cells.min(SOME) {
        n.put(ring + i * 32, mark(n, lie.b, i))?;
    }
    queue.ring.store(ring, Relaxed);
    queue.cells.store(cells, Relaxed);
    let used = if lie.a & 2 == 0 {
        cells
    } else {
        u64::from(lie.c)
    };
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

fn all_entries_used(n: &Names, lie: Lie) -> Option<()> {
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
            waiter.construct.store(what, Relaxed);
        }
    }
    Some(())
}

fn known_everywhere(n: &Names, lie: Lie) -> Option<()> {
    let process = n.proc(u64::from(lie.a) % 8)?;
    process.overflow.store(u32::from(lie.a >> 7 == 0), Relaxed);
    let reference = Names::kind(lie.b).reference(u32::from(lie.c) % 4);
    if lie.b & 128 != 0 {
        for (i, touched) in process.touched.iter().enumerate() {
            touched.store(reference ^ (i as u32 & u32::from(lie.c >> 6)), Relaxed);
        }
    }
    Some(())
}

fn a_lock_is_held(n: &Names, lie: Lie) -> Option<()> {
    let contended = u32::from(lie.c) << 31;
    let word = n.holder(lie.b) | contended;
    n.lock(lie.a)?.store(word, Relaxed);
    Some(())
}

/// A record is somebody else's.
fn an_owner(n: &Names, lie: Lie) -> Option<()> {
    let (owner, index) = (n.owner(lie.b), Lie::one(lie.c));
    match lie.a % 4 {
        0 => n.waiter(index)?.owner.store(owner, Relaxed),
        1 => {
            let at = n.shm(index % 2)?.holds.load(Relaxed);
            n.put(at, owner)?;
        }
        2 => {
            let at = n.sem(index % 2)?.undo.load(Relaxed);
            n.put(at, owner)?;
        }
        _ => {
            // The adjustment beside a semaphore.
            let (slot, generation) = n.process(lie.b);
            let at = n.sem(0)?.cells.load(Relaxed) + index * 16 + 8;
            n.put(at, (slot + 1) | generation << 16 | u64::from(lie.a) << 32)?;
        }
    }
    Some(())
}

/// Somebody has moved an end of a queue, and not written that it is done.
fn a_mover(n: &Names, lie: Lie) -> Option<()> {
    let queue = n.msg(u64::from(lie.a & 1))?;
    let end = if lie.a & 2 == 0 {
        &queue.send
    } else {
        &queue.receive
    };
    let counts = end.at.hi.load(Relaxed) & 0xffff_ffff;
    let by = u64::from(lie.c) << (lie.a >> 3 & 7) & 0x7fff;
    let slow = u64::from(lie.a >> 7);
    let moved = counts | (n.process(lie.b).0 + 1) << 32 | by << 48 | slow << 63;
    end.at.hi.store(moved, Relaxed);
    let pos = end.at.lo.load(Relaxed);
    if lie.a & 4 != 0 {
        end.at.lo.store(
            pos & !0xffff_ffff | (pos as u32).wrapping_add(by as u32) as u64,
            Relaxed,
        );
    }
    Some(())
}

fn nearly_another_id(n: &Names, lie: Lie) -> Option<()> {
    let kind = Names::kind(lie.a);
    let (one, other) = (
        n.head(kind, Lie::one(lie.b))?,
        n.head(kind, Lie::one(lie.b / 8))?,
    );
    let id = one.id.load(Relaxed);
    let bit = 1 << (lie.c % 31);
    other
        .id
        .store(if lie.c & 32 == 0 { id } else { id ^ bit }, Relaxed);
    if lie.c & 64 != 0 {
        other.key.store(one.key.load(Relaxed), Relaxed);
    }
    if lie.c & 128 != 0 {
        other.flags.fetch_xor(1 << (8 + lie.a / 8 % 13), Relaxed);
    }
    Some(())
}

fn ends_far_apart(n: &Names, lie: Lie) -> Option<()> {
    let queue = n.msg(u64::from(lie.a & 1))?;
    let far = u64::from(lie.b) << (lie.c % 33);
    let end = if lie.a & 2 == 0 {
        &queue.send
    } else {
        &queue.receive
    };
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
    word.store(
        if lie.a & 32 == 0 {
            at.wrapping_add(far)
        } else {
            at.wrapping_sub(far)
        },
        Relaxed,
    );
    Some(())
}

/// A waiter that has very many operations, or wants very much.
fn a_wait_for_very_much(n: &Names, lie: Lie) -> Option<()> {
    let waiter = n.waiter(Lie::one(lie.a))?;
    waiter.arg0.store(u64::from(lie.b) << (lie.c % 12), Relaxed);
    match lie.a >> 6 {
        0 => waiter.arg1.store(n.ground(4, 16, 1).0, Relaxed),
        1 => waiter.arg4.store(u64::from(lie.b) << 20, Relaxed),
        2 => waiter
            .status
            .store(DONE | ON_TRUST | u32::from(lie.b) << 16, Relaxed),
        _ => {
            let sop = u64::from(lie.b) | 0x8001 << 16;
            waiter.ops.iter().for_each(|op| op.store(sop, Relaxed));
        }
    }
    Some(())
}

/// What the next one is to finish who takes a lock from the dead: words of the pool's heads and of its lists.
fn a_committed_log(n: &Names, lie: Lie) -> Option<()> {
    let log = match lie.a % 3 {
        0 => POOL_LOG,
        1 => n.sem(0)?.log.load(Relaxed),
        _ => n.msg(u64::from(lie.a >> 7))?.log.load(Relaxed),
    };
    let at = [POOL_LOG, ROOT, log, n.table(2, 0, 0), n.table(4, 0, 0)][usize::from(lie.b) % 5];
    for i in 0..16 {
        n.put(
            log + 16 + i * 16,
            at.wrapping_add(i * 8 * u64::from(lie.b >> 5)),
        )?;
        n.put(log + 24 + i * 16, u64::from(lie.c) << (i * 4))?;
    }
    n.put(log, if lie.c & 1 == 0 { 16 } else { u64::MAX })
}

fn limbo_is_full(n: &Names, lie: Lie) -> Option<()> {
    let (root, pages) = (n.root()?, n.geometry(23));
    for (i, limbo) in root.limbo.iter().enumerate() {
        let owner = if lie.a & 1 == 0 {
            ABANDONED
        } else {
            n.owner(lie.b)
        };
        limbo.owner.store(owner, Relaxed);
        let first = u64::from(lie.c) * (i as u64 & u64::from(lie.a >> 4));
        limbo.first.store(first, Relaxed);
        limbo
            .count
            .store(if lie.a & 2 == 0 { pages } else { 1 }, Relaxed);
    }
    Some(())
}

/// Memory is there that is not, and the other way round.
fn much_is_backed(n: &Names, lie: Lie) -> Option<()> {
    let root = n.root()?;
    let all = if lie.a & 1 == 0 { u64::MAX } else { 0 };
    root.words_backed
        .iter()
        .flatten()
        .for_each(|bits| bits.store(all, Relaxed));
    root.small_backed
        .store(u64::from(lie.b) << (lie.c % 40), Relaxed);
    root.kept.store(u64::from(lie.b), Relaxed);
    Some(())
}
