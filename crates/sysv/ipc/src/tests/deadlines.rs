//! Deadlines of calls that need a lock beside another one, or beside something of their process's own, and
//! what they have changed then.

use super::msg::send;
use super::sem::{op, set_of, undone, values};
use crate::testing::World;
use crate::{liveness, msg, sem, shm, Ctx, Errno, IPC_NOWAIT, IPC_PRIVATE};
use core::time::Duration;
use std::time::Instant;
use std::vec::Vec;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::{Kind, PAGE};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::{Kernel, ProcId};

/// A process that lives holds the pool's lock, says the liar.
fn lie(world: &World, owner: ProcId) {
    let lied = 1 << 30 | u32::from(owner.generation & 0x3fff) << 16 | owner.slot;
    world.pool().root().lock.store(lied, Relaxed);
}

fn lift(world: &World) {
    world.pool().root().lock.store(0, Relaxed);
}

fn index(c: &Ctx, id: i32) -> u32 {
    c.pool.ids().index(id)
}

/// Time runs so many times faster.
const HURRY: u32 = 1 << 6;
const SECOND: u64 = 1_000_000_000;

#[test]
fn who_is_inside_does_not_sleep() {
    let world = World::new(1 << 20);
    let (me, other) = (world.process(), world.process());
    let c = &me.ctx();
    let id = shm::get(c, IPC_PRIVATE, 100, 0o600).unwrap();
    lie(&world, other.id());
    me.enter(true);
    assert_eq!(shm::attach(c, id, 0), Err(Errno::INSIDE));
    let signals = SignalsBlocked::hurried(c.kernel);
    // To give up needs no lock, wherever the caller is.
    lift(&world);
    shm::attach(c, id, 0).unwrap();
    shm::attach(c, id, 0).unwrap();
    lie(&world, other.id());
    let both = shm::Detached { id, source: 0, n: 2, has_heirs: false };
    assert!(shm::note_detached(c, &both));
    shm::settle(c, &signals, &both, true, None);
    lift(&world);
    assert_eq!(shm::stat(&other.ctx(), id).unwrap().nattch, 0);
    assert_eq!(shm::fork(c, &signals, other.id(), &|_, _| 0), Ok(()));
    assert_eq!(shm::stat(&other.ctx(), id).unwrap().nattch, 0);
}

/// Calls that need the pool's lock beside that of a set or queue: a signal ends the wait, and nothing is
/// changed.
#[test]
fn a_signal_ends_the_wait_for_a_second_lock() {
    let world = World::new(8 << 20);
    let (me, other) = (world.process(), world.process());
    let c = &me.ctx();
    let set = set_of(c, &[0; 25]);
    sem::op(&other.ctx(), set, &[undone(0, 1)], None).unwrap();
    let queue = msg::get(c, IPC_PRIVATE, 0o600).unwrap();
    let many: Vec<_> = (0..25).map(|i| op(i, if i < 24 { 1 } else { -1 })).collect();
    lie(&world, other.id());
    me.signal();
    let begun = Instant::now();
    assert_eq!(sem::op(c, set, &[undone(0, 1)], None), Err(Errno::EINTR));
    assert_eq!(sem::op(c, set, &many, None), Err(Errno::EINTR));
    // SAFETY: a slice.
    let sent = unsafe { msg::send(c, queue, 1, b"text".as_ptr(), 4, IPC_NOWAIT) };
    assert_eq!(sent, Err(Errno::EINTR));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    lift(&world);
    assert_eq!(sem::getval(c, set, 0), Ok(1));
    assert_eq!(sem::getncnt(c, set, 24), Ok(0));
    assert_eq!(send(c, queue, 1, b"text"), Ok(()));
}

/// A call that has found no room looks for some: that it had the lock once keeps no signal waiting when it
/// does not get it again.
#[test]
fn a_signal_ends_the_search_for_room() {
    let world = World::new(8 << 20);
    let (me, other) = (world.process(), world.process());
    let c = &me.ctx();
    let signals = SignalsBlocked::attentive(c.kernel);
    drop(crate::directory::lock(c, &signals).unwrap());
    lie(&world, other.id());
    me.signal();
    let begun = Instant::now();
    liveness::free_up(c, &signals);
    signals.nothing_changed();
    assert_eq!(crate::directory::lock(c, &signals).err(), Some(Errno::EINTR));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    lift(&world);
}

/// It need not wait as long as for a lock, but as long as an honest owner may be without its processor.
#[test]
fn a_call_gives_up_when_its_own_time_is_up() {
    let world = World::new(8 << 20);
    let (me, other) = (world.process(), world.process());
    let c = &me.ctx();
    let set = set_of(c, &[1, 1]);
    lie(&world, other.id());
    let lied = world.pool().root().lock.swap(0, Relaxed);
    world.hurry(HURRY);
    for lock in [&world.pool().root().lock, &world.pool().sem(index(c, set)).unwrap().lock] {
        lock.store(lied, Relaxed);
        c.budget.renew();
        let begun = me.monotonic();
        let many: Vec<_> = (0..25).map(|i| op(i % 2, if i < 24 { 1 } else { -30 })).collect();
        assert_eq!(sem::op(c, set, &many, Some(Duration::from_millis(200))), Err(Errno::EAGAIN));
        let took = me.monotonic() - begun;
        assert!((SECOND..10 * SECOND).contains(&took), "{took}");
        lock.store(0, Relaxed);
    }
    assert_eq!(values(c, set), [1, 1]);
}

/// A set or queue that is removed is removed, and the rest is done by who comes next.
#[test]
fn what_is_left_of_a_removal_is_done_later() {
    let world = World::new(8 << 20);
    let (me, other) = (world.process(), world.process());
    let c = &me.ctx();
    let (set, queue) = (set_of(c, &[1]), msg::get(c, IPC_PRIVATE, 0o600).unwrap());
    lie(&world, other.id());
    world.hurry(HURRY);
    type Remove = fn(&Ctx, i32) -> Result<(), Errno>;
    for (remove, id) in [(sem::remove as Remove, set), (msg::remove, queue)] {
        c.budget.renew();
        let begun = me.monotonic();
        assert_eq!(remove(c, id), Ok(()));
        let took = me.monotonic() - begun;
        assert!(took < 10 * SECOND, "{took}");
    }
    assert_eq!(sem::getval(c, set, 0), Err(Errno::EINVAL));
    lift(&world);
    let used = |kind| world.pool().kind_root(kind).used.load(Relaxed);
    assert_eq!((used(Kind::Sem), used(Kind::Msg)), (1, 1));
    liveness::free_up(c, &SignalsBlocked::new(c.kernel));
    assert_eq!((used(Kind::Sem), used(Kind::Msg)), (0, 0));
}

/// The memory that goes back of a segment of which the pool says another length than the process was told,
/// and where it was told none, or there is no time.
#[test]
fn a_forged_length_gives_no_memory_back() {
    const LEN: u64 = 4096 * PAGE;
    for (told, length, patience, released) in [
        (Some(LEN), LEN, -1, LEN),
        (Some(LEN), LEN, 0, LEN),
        (Some(LEN), LEN - PAGE, -1, 0),
        (None, LEN - PAGE, -1, LEN - PAGE),
        (None, LEN, 0, 0),
    ] {
        let world = World::new(32 << 20);
        let me = world.process();
        let c = &me.ctx();
        let id = shm::get(c, IPC_PRIVATE, LEN as usize, 0o600).unwrap();
        shm::attach(c, id, 0).unwrap();
        shm::remove(c, id).unwrap();
        world.pool().shm(index(c, id)).unwrap().pages.store(length / PAGE, Relaxed);
        if let Some(told) = told {
            me.was_told(told);
        }
        me.hurry(patience);
        shm::detach(c, id);
        assert_eq!(world.longest_release(), released);
        assert_eq!(shm::stat(c, id), Err(Errno::EINVAL));
    }
}
