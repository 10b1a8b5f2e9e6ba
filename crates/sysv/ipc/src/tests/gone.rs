//! A pool that is taken away while it is in use, and reads as zeros from one moment to the next: every call
//! comes to an end, soon and without a panic, and none of those by id that begin later succeeds.

use super::msg::{receive, send};
use super::sem::{op, undone};
use crate::testing::{until, Process, Task, World};
use crate::{msg, sem, shm, Ctx, Errno, IPC_CREAT, IPC_NOWAIT};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use std::vec::Vec;
use vshmem_pool::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

const SIZE: usize = 1 << 20;

#[derive(Clone, Copy)]
struct Ids {
    set: i32,
    queue: i32,
    full: i32,
    segment: i32,
}

impl Ids {
    fn new(c: &Ctx) -> Ids {
        let ids = Ids {
            set: sem::get(c, 1, 3, IPC_CREAT | 0o600).unwrap(),
            queue: msg::get(c, 1, IPC_CREAT | 0o600).unwrap(),
            full: msg::get(c, 2, IPC_CREAT | 0o600).unwrap(),
            segment: shm::get(c, 1, 5000, IPC_CREAT | 0o600).unwrap(),
        };
        while send_without_waiting(c, ids.full).is_ok() {}
        ids
    }
}

fn send_without_waiting(c: &Ctx, queue: i32) -> Result<(), Errno> {
    // SAFETY: an array.
    unsafe { msg::send(c, queue, 1, [5u8; 700].as_ptr(), 700, IPC_NOWAIT) }
}

/// Has the pool's memory read as that of a device that is gone: as zeros.
fn take_away(world: &World) {
    let mem = world.pool().mem();
    (0..SIZE as u64 / 8).for_each(|i| mem.word_anywhere(i * 8).unwrap().store(0, Relaxed));
}

/// Every call, by id. Returns whether any has succeeded that says something about an IPC object.
fn call_everything(c: &Ctx, ids: Ids) -> bool {
    let soon = Some(Duration::from_millis(1));
    let mut any = false;
    for sops in [&[op(0, 1)][..], &[undone(0, -1)], &[op(1, 1), op(1, -1)]] {
        any |= sem::op(c, ids.set, sops, soon).is_ok();
    }
    any |= sem::op(c, ids.set, &[op(2, -1), op(1, -1)], soon).is_ok();
    any |= sem::getval(c, ids.set, 1).is_ok() | sem::getncnt(c, ids.set, 2).is_ok();
    any |= sem::getall(c, ids.set, &mut |_, _| true).is_ok() | sem::stat(c, ids.set).is_ok();
    any |= sem::setval(c, ids.set, 1, 0).is_ok();
    any |= send(c, ids.queue, 4, b"short").is_ok() | send(c, ids.queue, 9, &[9; 900]).is_ok();
    for (capacity, kind) in [(1000, 9), (10, -5), (1000, 0)] {
        any |= receive(c, ids.queue, capacity, kind, IPC_NOWAIT).is_ok();
    }
    any |= send_without_waiting(c, ids.full).is_ok() | msg::stat(c, ids.queue).is_ok();
    any |= shm::look(c, ids.segment, 0).is_ok() | shm::attach(c, ids.segment, 0).is_ok();
    shm::detach(c, ids.segment);
    any | shm::stat(c, ids.segment).is_ok()
}

/// Calls that make something, and look at all: what they say is no matter.
fn make_something(c: &Ctx) {
    if let Ok(id) = sem::get(c, 7, 2, IPC_CREAT | 0o600) {
        c.budget.renew();
        let _ = sem::op(c, id, &[undone(0, 1)], None);
        c.budget.renew();
        let _ = sem::remove(c, id);
    }
    if let Ok(id) = msg::get(c, 7, IPC_CREAT | 0o600) {
        c.budget.renew();
        let _ = send(c, id, 1, &[7; 200]);
        c.budget.renew();
        let _ = msg::remove(c, id);
    }
    if let Ok(id) = shm::get(c, 7, 5000, IPC_CREAT | 0o600) {
        c.budget.renew();
        let _ = shm::attach(c, id, 0).map(|_| shm::detach(c, id));
        c.budget.renew();
        let _ = shm::remove(c, id);
    }
    c.budget.renew();
    let _ = (sem::info(c), msg::info(c), shm::info(c));
}

/// The outcome of a call that says nothing else.
type Told = Result<(), Errno>;

/// One process each that waits by now for what won't come: for a semaphore, for two, for a message, for one
/// of a type, for room.
fn sleepers(world: &World, ids: Ids) -> Vec<(Arc<Process>, Task<Told>)> {
    let waits: [fn(&Ctx, Ids) -> Told; 5] = [
        |c, ids| sem::op(c, ids.set, &[op(2, -1)], None),
        |c, ids| sem::op(c, ids.set, &[undone(2, -1), op(0, -30000)], None),
        |c, ids| receive(c, ids.full, 1000, 77, 0).map(drop),
        |c, ids| receive(c, ids.queue, 1000, -1, msg::MSG_EXCEPT).map(drop),
        // SAFETY: an array.
        |c, ids| unsafe { msg::send(c, ids.full, 1, [5u8; 700].as_ptr(), 700, 0) },
    ];
    let start = |wait: &fn(&Ctx, Ids) -> Told| {
        let (process, wait) = (world.process(), *wait);
        let task = process.start(move |c| wait(c, ids));
        (process, task)
    };
    let sleepers = waits.iter().map(start).collect();
    until("five wait", || waiting(world).len() == 5);
    sleepers
}

/// The records of those who wait.
fn waiting(world: &World) -> Vec<u32> {
    (0..64).filter(|i| is_waiting(world, *i)).collect()
}

fn is_waiting(world: &World, index: u32) -> bool {
    let waiter = world.pool().waiter(index).unwrap();
    waiter.object.load(Relaxed) != 0 && waiter.owner.load(Relaxed) != 0
}

#[test]
fn who_waits_is_told() {
    let world = World::new(SIZE);
    let me = world.process();
    let ids = Ids::new(&me.ctx());
    let sleepers = sleepers(&world, ids);
    take_away(&world);
    for (i, (_process, task)) in sleepers.into_iter().enumerate() {
        assert!(task.result().is_err(), "sleeper {i} was told that all went well");
    }
}

/// The memory went away between the caller's last look at the IPC object and its registration, which stands
/// in zeros.
#[test]
fn who_begins_to_wait_in_zeros_is_told() {
    let world = World::new(SIZE);
    let me = world.process();
    let ids = Ids::new(&me.ctx());
    let sleepers = sleepers(&world, ids);
    let records = waiting(&world);
    take_away(&world);
    for index in records {
        let status = &world.pool().waiter(index).unwrap().status;
        status.store(vshmem_pool::layout::WAITING, SeqCst);
    }
    for (i, (_process, task)) in sleepers.into_iter().enumerate() {
        assert_eq!(task.result(), Err(Errno::EIDRM), "sleeper {i}");
    }
}

#[test]
fn nothing_is_known_any_more() {
    let world = World::new(SIZE);
    let me = world.process();
    let c = &me.ctx();
    let ids = Ids::new(c);
    assert!(call_everything(c, ids));
    take_away(&world);
    assert!(!call_everything(c, ids), "a call by id has succeeded");
    crate::leave(c);
    assert!(!call_everything(c, ids));
}

/// Again and again the memory goes away at some moment of calls of all kinds.
#[test]
fn whoever_is_in_the_middle_comes_out() {
    for round in 0..40 {
        let world = World::new(SIZE);
        let ids = Ids::new(&world.process().ctx());
        let gone = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..4)
            .map(|i| {
                let (process, gone) = (world.process(), gone.clone());
                let task = process.start(move |c| {
                    while !gone.load(SeqCst) {
                        call_everything(c, ids);
                        if i % 2 == 0 {
                            make_something(c);
                        }
                    }
                    for _ in 0..3 {
                        call_everything(c, ids);
                        make_something(c);
                    }
                    crate::leave(c);
                });
                (process, task)
            })
            .collect();
        thread::sleep(Duration::from_micros(300 + 97 * round));
        take_away(&world);
        gone.store(true, SeqCst);
        for (_process, task) in workers {
            task.result();
        }
        assert!(world.is_untouched_outside());
    }
}
