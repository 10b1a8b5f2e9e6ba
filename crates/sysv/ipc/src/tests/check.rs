//! Tests of the checker: it finds what is wrong, and nothing in a pool that is whole.

use super::msg::{queue, receive, send};
use super::sem::{set_of, undone};
use crate::check::{inspect, repair, scratch_for, Location};
use crate::sem::Sembuf;
use crate::testing::{until, Process, World};
use crate::{msg, sem, shm, Budget, Ctx, Errno, IPC_CREAT};
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;
use vshmem_pool::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use vshmem_pool::layout::{Hold, Kind, Msg, Sem, Shm, Waiter};

/// The findings: the place of each, and its sentence.
pub fn findings(process: &Process) -> Vec<(Location, String)> {
    // As `vshmem check` has.
    let c = &Ctx { budget: Budget::new(1 << 31), ..process.ctx() };
    let mut scratch = std::vec![0; scratch_for(c.pool)];
    let mut found = Vec::new();
    inspect(c, &mut scratch, |f| found.push((f.location, f.to_string()))).unwrap();
    found
}

/// A pool with something of everything in it, of which nothing is wrong.
struct Scene {
    world: World,
    me: Arc<Process>,
    set: &'static Sem,
    queue: &'static Msg,
    segment: &'static Shm,
    waiter: &'static Waiter,
}

fn scene() -> Scene {
    let world = World::new(4 << 20);
    let (me, other, waiting) = (world.process(), world.process(), world.process());
    let c = &me.ctx();
    let id = shm::get(c, 77, 5000, IPC_CREAT | 0o600).unwrap();
    shm::attach(c, id, 0).unwrap();
    shm::attach(&other.ctx(), id, 0).unwrap();
    let set = set_of(c, &[5, 0, 5, 5, 5]);
    sem::op(c, set, &[undone(0, -1)], None).unwrap();
    sem::op(&other.ctx(), set, &[undone(0, -1)], None).unwrap();
    let p = Sembuf { num: 1, op: -1, flg: 0 };
    waiting.start(move |c| sem::op(c, set, &[p], None));
    until("it waits", || sem::getncnt(c, set, 1) == Ok(1));
    let q = queue(c);
    for len in [10, 300, 20] {
        send(c, q, 1, &std::vec![1; len]).unwrap();
    }
    receive(c, q, 100, 0, 0).unwrap();
    // Something that is free again in each table.
    for _ in 0..2 {
        let id = shm::get(c, 0, 5000, 0o600).unwrap();
        shm::remove(c, id).unwrap();
        msg::remove(c, queue(c)).unwrap();
    }
    waiting.stop();
    let (pool, index) = (world.pool(), |id: i32| id as u32 & 0x1ffff);
    Scene {
        set: pool.sem(index(set)).unwrap(),
        queue: pool.msg(index(q)).unwrap(),
        segment: pool.shm(index(id)).unwrap(),
        waiter: pool.waiter(0).unwrap(),
        world,
        me,
    }
}

#[test]
fn nothing_is_wrong_with_a_pool_in_use() {
    let scene = scene();
    assert_eq!(findings(&scene.me), []);
    assert!(repair(&scene.me.ctx()).unwrap().is_nothing());
    assert_eq!(findings(&scene.world.process()), []);
}

#[test]
fn what_the_dead_have_left_is_found_and_mended() {
    let scene = scene();
    let (mender, dead) = (scene.world.process(), scene.world.process());
    let id = scene.segment.head.id.load(Relaxed) as i32;
    shm::attach(&dead.ctx(), id, 0).unwrap();
    dead.kill();
    let found = findings(&mender);
    let places: Vec<_> = found.iter().map(|f| f.0).collect();
    let slot = Location::Slot(dead.id().slot);
    assert_eq!(places, [Location::Object(Kind::Shm, 0), slot], "{found:#?}");
    assert_eq!(repair(&mender.ctx()).unwrap().processes, 1);
    assert_eq!(findings(&mender), []);
}

/// A place in a scene, the change that is made there, and the words that must be said of it.
type Damage = (fn(&Scene) -> u64, fn(u64) -> u64, &'static str);

fn at64(scene: &Scene, word: &AtomicU64) -> u64 {
    scene.world.pool().offset_of(word)
}

fn at32(scene: &Scene, word: &AtomicU32) -> u64 {
    scene.world.pool().offset_of(word)
}

fn hold(scene: &Scene) -> &'static Hold {
    let at = scene.segment.holds.load(Relaxed);
    scene.world.pool().mem().at(at).unwrap()
}

/// The last word of the free pages before the segment.
fn before_segment(scene: &Scene) -> u64 {
    let heap = &scene.world.pool().geometry().pages;
    heap.table + (scene.segment.first.load(Relaxed) - 1) * 8
}

const DAMAGES: &[Damage] = &[
    (|s| at64(s, &s.segment.nattch), |n| n + 1, "counts its attachments wrongly"),
    (|s| at64(s, &s.segment.pages), |n| n + 1, "some of its pages are free"),
    (|s| at64(s, &s.segment.pages), |n| n - 1, "pages from it on are nobody's"),
    (|s| at64(s, &s.segment.size), |n| n * 2, "has not the pages for its size"),
    (|s| at64(s, &s.segment.holds), |_| 0, "blocks from it on are nobody's"),
    (|s| at64(s, &hold(s).owner), |n| n | 7 << 32, "who is dead has it attached"),
    (|s| at64(s, &hold(s).next), |_| 1 << 19, "a piece of its memory"),
    (|s| at32(s, &s.segment.head.id), |n| n + (1 << 17), "it has the wrong id"),
    (|s| at64(s, &s.segment.head.next), |_| 1, "a chain leads to an entry"),
    (|s| s.world.pool().geometry().buckets[0].0 + bucket(), |_| 0, "can be found by key"),
    (|s| at64(s, &s.world.pool().kind_root(Kind::Shm).used), |n| n + 1, "entries in use wrongly"),
    (|s| at64(s, &s.world.pool().kind_root(Kind::Sem).total), |n| n + 1, "semaphores wrongly"),
    (|s| at64(s, &s.world.pool().kind_root(Kind::Msg).free), |_| 0, "in the list of free ones"),
    (|s| at64(s, &s.world.pool().root().page_free[3]), |_| 1, "no free piece of that length"),
    (
        |s| s.world.pool().geometry().pages.table + s.segment.first.load(Relaxed) * 8,
        |n| n | 1 << 63,
        "are in no tree",
    ),
    (|s| before_segment(s), |n| n + 1, "does not end where it says"),
    (|s| before_segment(s), |n| n & !(1 << 62), "does not end where it says"),
    (|s| at64(s, &s.world.pool().root().pending_pages[3].owner), |_| 1, "range 3 of pending pages"),
    (|s| at64(s, &s.set.undo), |_| 0, "blocks from it on are nobody's"),
    (|s| at64(s, &s.set.log), |n| n + 16, "its log is not where it must be"),
    (|s| s.set.cells.load(Relaxed) + 32, |n| n | 0x8000, "a semaphore has no such value"),
    (|s| s.set.cells.load(Relaxed) + 32, |n| n ^ 1 << 20, "a semaphore is another set's"),
    (|s| s.set.cells.load(Relaxed) + 8, |n| n ^ 1 << 16, "adjustment is not repaid"),
    (|s| s.set.cells.load(Relaxed) + 16, |n| n & !(1 << 16), "fast paths use a semaphore"),
    (|s| s.set.cells.load(Relaxed) + 16, |n| n + 1, "nothing is in its way"),
    (|s| at64(s, &s.set.last_waiter), |_| 9, "its queue of waiters ends"),
    (|s| at64(s, &s.waiter.prev), |_| 9, "does not lead back"),
    (|s| at64(s, &s.waiter.next), |_| 1, "its queue of waiters leads astray"),
    (|s| at64(s, &s.waiter.owner), |n| n | 7 << 32, "who waits there is dead"),
    (|s| at64(s, &s.queue.receive.at.hi), |n| n - 1, "counts its messages wrongly"),
    (|s| at64(s, &s.queue.send.at.lo), |n| n + 2, "do not follow upon each other"),
    (|s| at64(s, &s.queue.ring), |_| 0, "blocks from it on are nobody's"),
    (|s| at64(s, &s.queue.ring), |n| n + 8, "its ring is not in the pool"),
    (|s| at64(s, &s.queue.receive.done), |n| n + 100, "positions are not in order"),
    (|s| s.world.pool().geometry().members.0 + 64, |_| 0x0500_0001, "its writer is gone"),
    (|_| 24, |n| n * 2, "the head of the pool: it has changed"),
];

/// The offset in the table of the bucket with the segment's key, in bytes.
fn bucket() -> u64 {
    let hash = 77u64.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (hash & (BUCKETS - 1)) * 8
}

/// Buckets of a pool of that size.
const BUCKETS: u64 = 256;

#[test]
fn every_damage_is_found() {
    let count = scene().world.pool().geometry().buckets[0].1;
    assert_eq!(u64::from(count), BUCKETS);
    for (n, (place, change, said)) in DAMAGES.iter().enumerate() {
        let scene = scene();
        let at = place(&scene) & !7;
        let word = scene.world.pool().mem().word(at).unwrap();
        word.store(change(word.load(Relaxed)), Relaxed);
        let found = findings(&scene.me);
        let is_it = |f: &(Location, String)| f.1.contains(said);
        assert!(found.iter().any(is_it), "{n}: not '{said}' but {found:#?}");
    }
}

#[test]
fn a_lock_that_is_not_to_be_had_is_an_error() {
    let scene = scene();
    scene.world.hurry(1 << 12);
    let holder = scene.world.process();
    let ctx = holder.ctx();
    let signals = vshmem_pool::lock::SignalsBlocked::new(ctx.kernel);
    let guard = crate::directory::lock(&ctx, &signals);
    let mut scratch = std::vec![0; scratch_for(scene.world.pool())];
    let seen = inspect(&scene.me.ctx(), &mut scratch, |_| {});
    assert_eq!(seen, Err(Errno::EIDRM));
    drop(guard);
}
