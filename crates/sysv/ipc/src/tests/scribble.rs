//! A member that scribbles over words of a pool while it is in use: calls may fail, but must come back
//! without a panic, in time, and touch nothing outside of the pool.
//!
//! Everything that a pool can hold is made once. Then words of it are replaced by what an enemy might write
//! there (ends of ranges, links that lead to themselves, offsets just past the end), every call is made, and
//! the pool is put back as it was.

use super::msg::{receive, send};
use super::sem::{op, undone};
use crate::census::Census;
use crate::sem::Sembuf;
use crate::testing::{until, Process, World};
use crate::{check, liveness, msg, reclaim, sem, shm, stats, Ctx, Perm, IPC_CREAT, IPC_NOWAIT, IPC_PRIVATE};
use core::time::Duration;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::string::String;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration as Time;
use std::vec::Vec;
use std::{format, thread};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::{Kind, Root, PAGE, POOL_LOG, ROOT};
use vshmem_pool::lock::SignalsBlocked;

const SIZE: usize = 1 << 20;
/// One round of calls may take this long, though words say that others hold locks.
const DEADLINE: Time = Time::from_secs(20);
/// Time passes so much faster, or the patience that calls have with the holders of locks would take all day.
const HURRY: u32 = 1 << 17;

/// A pool with something of everything in it.
struct Scene {
    world: World,
    me: Arc<Process>,
    ids: Ids,
    image: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Ids {
    set: i32,
    queue: i32,
    full: i32,
    segment: i32,
}

/// Operations that must wait, on more semaphores than a record has room for, and on one.
const MANY: [Sembuf; 22] = [Sembuf { num: 1, op: -1, flg: sem::SEM_UNDO }; 22];

impl Scene {
    fn new() -> Scene {
        let world = World::new(SIZE);
        let me = world.process();
        let c = &me.ctx();
        let ids = Ids {
            set: sem::get(c, 1, 3, IPC_CREAT | 0o600).unwrap(),
            queue: msg::get(c, 1, IPC_CREAT | 0o600).unwrap(),
            full: msg::get(c, 2, IPC_CREAT | 0o600).unwrap(),
            segment: shm::get(c, 1, 5000, IPC_CREAT | 0o600).unwrap(),
        };
        shm::attach(c, ids.segment, 0).unwrap();
        sem::op(c, ids.set, &[undone(0, 5), undone(2, 1)], None).unwrap();
        let (living, dead) = (world.process(), world.process());
        for other in [&living, &dead] {
            let c = &other.ctx();
            sem::op(c, ids.set, &[undone(0, 5)], None).unwrap();
            shm::attach(c, ids.segment, 0).unwrap();
        }
        while send(c, ids.full, 3, &[3; 700]).is_ok() {}
        // Two of each wait, one of whom dies.
        for process in [&living, &dead] {
            process.start(move |c| sem::op(c, ids.set, &MANY, None));
            process.start(move |c| receive(c, ids.queue, 1000, 9, 0));
            process.start(move |c| {
                // SAFETY: an array.
                unsafe { msg::send(c, ids.full, 1, [0u8; 700].as_ptr(), 700, 0) }
            });
        }
        until("six wait", || (0..64).filter(|i| waits(&world, *i)).count() == 6);
        living.stop();
        dead.kill();
        send(c, ids.queue, 1, &[1; 300]).unwrap();
        send(c, ids.queue, 2, b"short").unwrap();
        let image = (0..SIZE as u64 / 8).map(|i| word(&world, i * 8)).collect();
        world.hurry(HURRY);
        Scene { world, me, ids, image }
    }

    /// Makes the pool what it was.
    fn restore(&self) {
        let base = self.world.pool().mem().base();
        // SAFETY: as long as the image, which was read from there; all other threads are stopped.
        unsafe { core::ptr::copy_nonoverlapping(self.image.as_ptr(), base.cast(), SIZE / 8) };
    }

    fn put(&self, at: u64, value: u64) {
        let word = self.world.pool().mem().word_anywhere(at).unwrap();
        word.store(value, Relaxed);
    }

    /// Offsets of the words that mean something. All others are texts, or in free memory.
    fn words(&self) -> Vec<u64> {
        let pool = self.world.pool();
        let geometry = pool.geometry();
        let range = |from: u64, len: u64| (from..from + len).step_by(8);
        let mut all: Vec<u64> = range(ROOT, size_of::<Root>() as u64)
            .chain(range(POOL_LOG, 48))
            .chain(range(geometry.members.0, 64))
            .chain(range(geometry.procs.0, 4 * 128))
            .collect();
        for i in (0..64).filter(|i| waits(&self.world, *i)) {
            all.extend(range(pool.offset_of(pool.waiter(i).unwrap()), 256));
        }
        for (kind, used) in Kind::ALL.into_iter().zip([1, 1, 2]) {
            let entries = geometry.entries[kind as usize].0;
            all.extend(range(entries, used * kind.entry_size()));
        }
        // Hash buckets, words of the heaps, and all small blocks: what is used of them is not 0.
        let tables = geometry.buckets.iter().map(|b| (b.0, b.1 as u64 * 8));
        let heaps = [geometry.small, geometry.pages].map(|h| (h.table, h.count as u64 * 8));
        let blocks = geometry.small.count as u64 * geometry.small.block();
        for (from, len) in tables.chain(heaps).chain([(geometry.small.base, blocks)]) {
            all.extend(range(from, len).filter(|at| self.image[(*at / 8) as usize] != 0));
        }
        // Texts of messages fill most blocks.
        let text = |at: &u64| {
            let bytes = self.image[(*at / 8) as usize].to_le_bytes();
            bytes == [3; 8] || bytes == [1; 8]
        };
        all.retain(|at| !text(at));
        all
    }
}

fn word(world: &World, at: u64) -> u64 {
    world.pool().mem().word_anywhere(at).unwrap().load(Relaxed)
}

fn waits(world: &World, index: u32) -> bool {
    let waiter = world.pool().waiter(index).unwrap();
    waiter.object.load(Relaxed) != 0 && waiter.owner.load(Relaxed) != 0
}

/// Words that an enemy might write in the place of a good one at an offset: for counts, for offsets, for
/// links, and for either half.
fn bad_words(at: u64, good: u64) -> Vec<u64> {
    let len = SIZE as u64;
    let mut bad = std::vec![0, 1, 2, 3, u64::MAX, u64::MAX - 1, 1 << 31, 1 << 63];
    bad.extend([len - 16, len - 8, len, len + 8, at, at - 8, at - 16]);
    bad.extend([good.wrapping_add(1), good.wrapping_sub(1), good ^ 1 << 16]);
    bad.extend([good.wrapping_add(8), good.wrapping_add(PAGE)]);
    for half in [0, 1, 1 << 31, u32::MAX as u64, 1 << 30, (1 << 30) + 1] {
        bad.push(good >> 32 << 32 | half);
        bad.push(good & 0xffff_ffff | half << 32);
    }
    bad
}

/// Every call there is. What they return is the enemy's business, that they return is ours.
fn call_everything(scene: &Scene) {
    let c = &scene.me.ctx();
    let ids = scene.ids;
    look_at_everything(c);
    use_sets(c, ids.set);
    for queue in [ids.queue, ids.full] {
        use_queue(c, queue);
    }
    use_segments(c, ids.segment);
    // A process comes and forks, all clean up, and all is removed.
    if let Some(other) = scene.world.try_process() {
        c.budget.renew();
        let _ = shm::fork(c, &SignalsBlocked::hurried(c.kernel), other.id(), &|_, _| 0);
        crate::leave(&other.ctx());
        c.pool.free_process(other.id());
    }
    c.budget.renew();
    let _ = liveness::free_up(c, &SignalsBlocked::new(c.kernel));
    c.budget.renew();
    let _ = sem::remove(c, ids.set);
    c.budget.renew();
    let _ = msg::remove(c, ids.queue);
    c.budget.renew();
    let _ = msg::remove(c, ids.full);
    c.budget.renew();
    let _ = shm::remove(c, ids.segment);
    crate::leave(c);
}

/// As displays and the back end do.
fn look_at_everything(c: &Ctx) {
    let back = &mut |at, len| c.kernel.reserve(at, len);
    c.budget.renew();
    let _ = stats::totals(c.pool);
    stats::segments(c.pool, back, |_| {});
    stats::sets(c.pool, back, |_| {});
    stats::queues(c.pool, back, |_| {});
    let mut seen = 0;
    stats::sleepers(c.pool, back, |_| seen += 1);
    assert!(seen <= c.pool.geometry().waiters.1, "a list without end");
    let mut census = Census::default();
    c.budget.renew();
    let _ = (0..100).find_map(|_| census.step(c, 1000));
    for _ in 0..4 {
        c.budget.renew();
        let _ = reclaim::step(c, 1 << 16, &mut reclaim::Cursor::default(), |at, _| Some(at));
    }
    c.budget.renew();
    let _ = reclaim::step(c, 1 << 16, &mut reclaim::Cursor::default(), |_, _| None);
    liveness::reap(c, 0);
    let mut scratch = std::vec![0; check::scratch_for(c.pool)];
    c.budget.renew();
    let _ = check::inspect(c, &mut scratch, |_| {});
    c.budget.renew();
    let _ = check::repair(c);
}

fn use_sets(c: &Ctx, set: i32) {
    let soon = Some(Duration::from_nanos(1));
    for sops in [&[op(0, 1)][..], &[undone(1, 1)], &[undone(0, -2), op(2, 0)], &[op(1, -30000)], &MANY] {
        c.budget.renew();
        let _ = sem::op(c, set, sops, soon);
    }
    c.budget.renew();
    let _ = (sem::getval(c, set, 1), sem::getpid(c, set, 0));
    c.budget.renew();
    let _ = (sem::getncnt(c, set, 1), sem::getzcnt(c, set, 2));
    c.budget.renew();
    let _ = sem::getall(c, set, &mut |_, _| true);
    c.budget.renew();
    let _ = sem::setall(c, set, &mut |i| Some(i as u16));
    c.budget.renew();
    let _ = sem::setval(c, set, 1, 30);
    c.budget.renew();
    let _ = (sem::stat(c, set), sem::stat_index(c, 0, true));
    c.budget.renew();
    let _ = (sem::set(c, set, 1000, 1000, 0o666), sem::nsems(c, set));
    c.budget.renew();
    let _ = (sem::info(c), sem::highest(c));
    if let Ok(id) = sem::get(c, 7, 2, IPC_CREAT | 0o600) {
        c.budget.renew();
        let _ = sem::op(c, id, &[undone(0, 1)], soon);
        c.budget.renew();
        let _ = sem::remove(c, id);
    }
}

fn use_queue(c: &Ctx, queue: i32) {
    c.budget.renew();
    let _ = send(c, queue, 4, b"short");
    c.budget.renew();
    let _ = send(c, queue, 9, &[9; 900]);
    c.budget.renew();
    let _ = receive(c, queue, 1, 1, IPC_NOWAIT | msg::MSG_COPY);
    c.budget.renew();
    let _ = receive(c, queue, 10, -3, IPC_NOWAIT | msg::MSG_NOERROR);
    c.budget.renew();
    let _ = receive(c, queue, 1000, 9, IPC_NOWAIT);
    c.budget.renew();
    let _ = receive(c, queue, 1000, 0, IPC_NOWAIT);
    c.budget.renew();
    let _ = (msg::stat(c, queue), msg::stat_index(c, 1, true));
    c.budget.renew();
    let _ = msg::set(c, queue, 1000, 1000, 0o666, 9000);
    c.budget.renew();
    let _ = (msg::info(c), msg::highest(c));
    if let Ok(id) = msg::get(c, 7, IPC_CREAT | 0o600) {
        c.budget.renew();
        let _ = send(c, id, 1, &[7; 200]);
        c.budget.renew();
        let _ = msg::remove(c, id);
    }
}

fn use_segments(c: &Ctx, segment: i32) {
    for id in [Ok(segment), shm::get(c, IPC_PRIVATE, 300_000, 0o600)] {
        let Ok(id) = id else { continue };
        let found = [shm::look(c, id, 0), shm::attach(c, id, 0)];
        for extent in found.into_iter().flatten() {
            assert!(c.pool.mem().range(extent.offset, extent.len).is_some());
        }
        shm::detach(c, id);
        c.budget.renew();
        let _ = (shm::stat(c, id), shm::stat_index(c, 0, true));
        c.budget.renew();
        let _ = (shm::set(c, id, 1000, 1000, 0o600), shm::lock(c, id, true));
        if id != segment {
            c.budget.renew();
            let _ = shm::remove(c, id);
        }
    }
    let _: (i32, shm::ShmInfo) = shm::info(c);
    let _: Result<Perm, _> = shm::stat(c, segment).map(|ds| ds.perm);
}

/// Some numbers, always the same ones.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

/// Replaces words in each of these ways in turn, and makes every call.
fn scribble(scene: Scene, ways: Vec<Vec<(u64, u64)>>) {
    let (tell, told) = channel();
    let worker = thread::spawn(move || {
        let mut harm = Vec::new();
        for way in ways {
            scene.restore();
            way.iter().for_each(|(at, bad)| scene.put(*at, *bad));
            let words: Vec<String> = way
                .iter()
                .map(|(at, bad)| format!("{at:#x}: {:#x}, {bad:#x}", scene.image[*at as usize / 8]))
                .collect();
            tell.send(words.clone()).unwrap();
            if catch_unwind(AssertUnwindSafe(|| call_everything(&scene))).is_err() {
                harm.push(words);
            }
            assert!(scene.world.is_untouched_outside(), "written to outside");
        }
        harm
    });
    let mut last = Vec::new();
    loop {
        match told.recv_timeout(DEADLINE) {
            Ok(words) => last = words,
            Err(RecvTimeoutError::Timeout) => panic!("hangs with (offset: was, is) {last:?}"),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let harm = worker.join().unwrap_or_else(|_| panic!("wrote outside with (offset: was, is) {last:?}"));
    assert!(harm.is_empty(), "panicked with (offset: was, is) {harm:#?}");
}

/// Each word is replaced by some of what an enemy might choose: over all words, everything is.
#[test]
fn one_word_of_an_enemy_does_no_harm() {
    let scene = Scene::new();
    let mut numbers = Numbers(4711);
    let mut ways = Vec::new();
    for at in scene.words() {
        let bad = bad_words(at, scene.image[at as usize / 8]);
        ways.extend((0..EACH).map(|_| std::vec![(at, bad[numbers.next(bad.len())])]));
    }
    assert!(ways.len() > 1000, "only {} words", ways.len());
    scribble(scene, ways);
}

/// Values that are tried of each word.
const EACH: usize = 4;

/// Several words are replaced at once.
#[test]
fn many_words_of_an_enemy_do_no_harm() {
    let scene = Scene::new();
    let mut numbers = Numbers(1147);
    let words = scene.words();
    let ways = (0..3000)
        .map(|_| {
            let n = 2 + numbers.next(12);
            let mut one = || {
                let at = words[numbers.next(words.len())];
                let bad = bad_words(at, scene.image[at as usize / 8]);
                (at, bad[numbers.next(bad.len())])
            };
            (0..n).map(|_| one()).collect()
        })
        .collect();
    scribble(scene, ways);
}
