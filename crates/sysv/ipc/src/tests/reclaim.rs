//! Memory that machines can't give back: somebody else gives it back, who may die at any moment.

use super::death::at_every_call;
use crate::reclaim::{step, Cursor, Step};
use crate::testing::World;
use crate::{liveness, shm, Ctx, Errno, IPC_PRIVATE};
use std::vec::Vec;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::tuning::LOCK_NS;
use vshmem_pool::Pool;

const SIZE: usize = 1 << 20;
const STEP_BYTES: u64 = 256 << 10;

/// The first page in a range that does not read as zeros.
fn data(pool: &Pool, at: u64, len: u64) -> Option<u64> {
    let is_zero = |from: u64| {
        (from..from + 4096).step_by(8).all(|word| pool.mem().word_anywhere(word).unwrap().load(Relaxed) == 0)
    };
    (at..at + len).step_by(4096).find(|page| !is_zero(*page))
}

fn one_step(c: &Ctx, cursor: &mut Cursor) -> Result<Step, Errno> {
    step(c, STEP_BYTES, cursor, |at, len| data(c.pool, at, len))
}

fn give_all_back(c: &Ctx) -> u64 {
    let mut bytes = 0;
    let mut cursor = Cursor::default();
    for _ in 0..100 {
        match one_step(c, &mut cursor).unwrap() {
            Step::Emptied(more) => bytes += more,
            Step::Nothing => return bytes,
            Step::Impossible => panic!("it can be given back"),
        }
    }
    panic!("it never comes to an end");
}

/// A machine makes a segment, fills and removes it. Where it was.
fn fill_and_remove(w: &World, size: usize) -> shm::Extent {
    let p = w.process();
    p.move_into_machine();
    let c = p.ctx();
    let id = shm::get(&c, IPC_PRIVATE, size, 0o600).unwrap();
    let extent = shm::attach(&c, id, 0).unwrap();
    for at in (extent.offset..extent.offset + extent.len).step_by(8) {
        w.pool().mem().word_anywhere(at).unwrap().store(u64::MAX, Relaxed);
    }
    shm::remove(&c, id).unwrap();
    shm::detach(&c, id);
    extent
}

/// A new segment of a machine reads as zeros.
fn next_is_empty(w: &World, size: usize) {
    let p = w.process();
    p.move_into_machine();
    let c = p.ctx();
    let id = shm::get(&c, IPC_PRIVATE, size, 0o600).unwrap();
    let extent = shm::look(&c, id, 0).unwrap();
    assert_eq!(data(w.pool(), extent.offset, extent.len), None);
    shm::remove(&c, id).unwrap();
}

fn free(w: &World) -> u64 {
    w.pool().geometry().pages.free_blocks(w.pool())
}

#[test]
fn what_a_machine_removes_is_emptied() {
    let w = World::new(8 << 20);
    let before = free(&w);
    let extent = fill_and_remove(&w, SIZE);
    let p = w.process();
    assert_eq!(data(w.pool(), extent.offset, extent.len), Some(extent.offset));
    assert_eq!(give_all_back(&p.ctx()), SIZE as u64);
    assert_eq!(data(w.pool(), extent.offset, extent.len), None);
    assert_eq!((give_all_back(&p.ctx()), free(&w)), (0, before));
    next_is_empty(&w, SIZE);
}

/// Memory that a segment was given when it was made, but that was never written, reads as zeros all the time.
#[test]
fn memory_that_was_never_written_goes_back_too() {
    let w = World::new(8 << 20);
    let p = w.process();
    p.move_into_machine();
    let id = shm::get(&p.ctx(), IPC_PRIVATE, SIZE, 0o600).unwrap();
    let extent = shm::look(&p.ctx(), id, 0).unwrap();
    assert_eq!(w.memory_of(extent.offset, extent.len), SIZE / 4096);
    shm::remove(&p.ctx(), id).unwrap();
    let q = w.process();
    assert_eq!(give_all_back(&q.ctx()), 0, "nothing was written");
    assert_eq!(w.memory_of(extent.offset, extent.len), 0);
    next_is_empty(&w, SIZE);
}

#[test]
fn what_is_in_use_is_left_alone() {
    let w = World::new(8 << 20);
    let extent = fill_and_remove(&w, SIZE);
    let p = w.process();
    let c = p.ctx();
    assert_eq!(one_step(&c, &mut Cursor::default()), Ok(Step::Emptied(STEP_BYTES)));
    // Somebody takes it, half emptied as it is, and gives a part back.
    let q = w.process();
    q.move_into_machine();
    let d = q.ctx();
    let ids = [SIZE / 2, SIZE / 2].map(|size| shm::get(&d, IPC_PRIVATE, size, 0o600).unwrap());
    let mine = ids.map(|id| shm::look(&d, id, 0).unwrap());
    assert!(mine.iter().any(|m| m.offset == extent.offset));
    for at in mine.iter().flat_map(|m| (m.offset..m.offset + m.len).step_by(8)) {
        assert_eq!(w.pool().mem().word_anywhere(at).unwrap().swap(7, Relaxed), 0);
    }
    shm::remove(&d, ids[0]).unwrap();
    give_all_back(&c);
    assert_eq!(data(w.pool(), mine[0].offset, mine[0].len), None);
    let kept = mine[1].offset..mine[1].offset + mine[1].len;
    assert!(kept.step_by(8).all(|at| w.pool().mem().word_anywhere(at).unwrap().load(Relaxed) == 7));
}

#[test]
fn small_segments_keep_their_memory() {
    let w = World::new(8 << 20);
    let extent = fill_and_remove(&w, 16 << 10);
    let p = w.process();
    assert_eq!(one_step(&p.ctx(), &mut Cursor::default()), Ok(Step::Nothing));
    assert!(data(w.pool(), extent.offset, extent.len).is_some());
    next_is_empty(&w, 16 << 10);
}

#[test]
fn memory_that_stays_is_not_said_to_be_empty() {
    let w = World::new(8 << 20);
    fill_and_remove(&w, SIZE);
    let p = w.process();
    let ever_more = |at, _| Some(at);
    assert_eq!(step(&p.ctx(), STEP_BYTES, &mut Cursor::default(), ever_more), Ok(Step::Impossible));
    p.move_into_machine();
    assert_eq!(one_step(&p.ctx(), &mut Cursor::default()), Ok(Step::Impossible));
    next_is_empty(&w, SIZE);
}

/// Pieces that are as long, and read as zeros, hide no other.
#[test]
fn whatever_stands_before_it_is_found() {
    const SIZE: usize = 33 * 4096;
    let w = World::new(112 << 20);
    let (host, machine) = (w.process(), w.process());
    machine.move_into_machine();
    let ids: Vec<i32> = (0..522).map(|_| shm::get(&host.ctx(), IPC_PRIVATE, SIZE, 0o600).unwrap()).collect();
    let extent = shm::look(&host.ctx(), ids[2], 0).unwrap();
    w.pool().mem().word_anywhere(extent.offset).unwrap().store(7, Relaxed);
    for (at, id) in ids.into_iter().enumerate().step_by(2) {
        let p = if at == 2 { &machine } else { &host };
        shm::remove(&p.ctx(), id).unwrap();
    }
    assert_eq!(give_all_back(&host.ctx()), SIZE as u64);
    assert_eq!(w.memory_of(extent.offset, extent.len), 0);
    assert_eq!((data(w.pool(), extent.offset, extent.len), give_all_back(&host.ctx())), (None, 0));
}

/// Calls that need the lock wait for no more than one such step.
#[test]
fn a_call_that_needs_memory_empties_a_little_at_a_time() {
    let w = World::new(32 << 20);
    let extent = fill_and_remove(&w, 9 << 20);
    let p = w.process();
    assert!(liveness::free_up(&p.ctx(), &SignalsBlocked::new(p.ctx().kernel)));
    assert_eq!(data(w.pool(), extent.offset, extent.len), None);
    assert_eq!(w.memory_of(extent.offset, extent.len), 0);
    assert!(w.longest_release() <= 2 << 20, "{}", w.longest_release());
}

#[test]
fn who_gives_back_may_die_at_any_moment() {
    at_every_call(
        |w| (fill_and_remove(w, SIZE), free(w)),
        |c, _| give_all_back(c),
        |w, (extent, before), _| {
            next_is_empty(w, SIZE);
            let p = w.process();
            give_all_back(&p.ctx());
            assert_eq!(data(w.pool(), extent.offset, extent.len), None);
            assert_eq!(free(w), before);
        },
    );
}

/// The loop of the back end must not stand still, whoever holds the lock.
#[test]
fn who_has_no_patience_does_not_wait() {
    let w = World::new(8 << 20);
    fill_and_remove(&w, SIZE);
    let holder = w.process();
    holder.start(|c| {
        let signals = SignalsBlocked::new(c.kernel);
        let _guard = crate::directory::lock(c, &signals).unwrap();
        std::thread::sleep(core::time::Duration::from_secs(3));
    });
    crate::testing::until("it is held", || w.pool().root().lock.load(Relaxed) != 0);
    let p = w.process();
    p.hurry(5_000_000);
    let begun = std::time::Instant::now();
    assert_eq!(one_step(&p.ctx(), &mut Cursor::default()), Err(Errno::EIDRM));
    assert!(u128::from(LOCK_NS) > 100 * begun.elapsed().as_nanos(), "{:?}", begun.elapsed());
    holder.kill();
    // A dead process is followed in spite of all haste.
    let mut cursor = Cursor::default();
    crate::testing::until("it is done", || one_step(&p.ctx(), &mut cursor) == Ok(Step::Nothing));
}
