//! `semop` and its neighbours.

use crate::sem::{self, Sembuf, SEMVMX, SEM_UNDO};
use crate::testing::{until, Process, Task, World};
use crate::{Cred, Ctx, Errno, IPC_NOWAIT, IPC_PRIVATE};
use core::time::Duration;
use std::sync::Arc;
use std::vec::Vec;
use vshmem_pool::atomic::Ordering::Relaxed;

/// An operation.
pub fn op(num: u16, op: i16) -> Sembuf {
    Sembuf { num, op, flg: 0 }
}

/// An operation that is undone.
pub fn undone(num: u16, op: i16) -> Sembuf {
    Sembuf { num, op, flg: SEM_UNDO }
}

/// Takes one.
pub static TAKE: [Sembuf; 1] = [Sembuf { num: 0, op: -1, flg: 0 }];

fn now(num: u16, op: i16) -> Sembuf {
    Sembuf { num, op, flg: IPC_NOWAIT as i16 }
}

/// A new set with these values.
pub fn set_of(c: &Ctx, values: &[u16]) -> i32 {
    let id = sem::get(c, IPC_PRIVATE, values.len() as i32, 0o666).unwrap();
    sem::setall(c, id, &mut |i| Some(values[i])).unwrap();
    id
}

/// All values of a set.
pub fn values(c: &Ctx, id: i32) -> Vec<u16> {
    let mut all = Vec::new();
    sem::getall(c, id, &mut |_, v| {
        all.push(v);
        true
    })
    .unwrap();
    all
}

/// Begins operations that have to wait, and waits until they do.
fn begin(c: &Ctx, process: &Arc<Process>, id: i32, sops: &'static [Sembuf]) -> Task<Result<(), Errno>> {
    let waiting = || {
        (0..sem::nsems(c, id).unwrap() as i32)
            .map(|n| sem::getncnt(c, id, n).unwrap() + sem::getzcnt(c, id, n).unwrap())
            .sum::<i32>()
    };
    let before = waiting();
    let task = process.start(move |c| sem::op(c, id, sops, None));
    until("the operation waits", || waiting() > before);
    task
}

#[test]
fn operations_happen_all_or_not_at_all() {
    let world = World::new(1 << 20);
    let process = world.process();
    let c = &process.ctx();
    let id = set_of(c, &[1, 0]);
    assert_eq!(sem::op(c, id, &[op(0, -1), now(1, -1)], None), Err(Errno::EAGAIN));
    assert_eq!(values(c, id), [1, 0]);
    assert_eq!(sem::op(c, id, &[op(0, 1), op(1, -1)], Some(Duration::from_millis(20))), Err(Errno::EAGAIN));
    assert_eq!(values(c, id), [1, 0]);
    // The second operation on one semaphore sees what the first has done.
    assert_eq!(sem::op(c, id, &[op(1, 2), op(1, -2), op(1, 0), op(0, -1)], None), Ok(()));
    assert_eq!(values(c, id), [0, 0]);
    assert_eq!(sem::op(c, id, &[op(0, 3), op(1, SEMVMX as i16), op(1, 1)], None), Err(Errno::ERANGE));
    assert_eq!(values(c, id), [0, 0]);
    assert_eq!(sem::op(c, id, &[op(0, 1), op(2, 1)], None), Err(Errno::EFBIG));
    assert_eq!(sem::op(c, id, &[], None), Err(Errno::EINVAL));
    let many = std::vec![op(0, 1); 501];
    assert_eq!(sem::op(c, id, &many, None), Err(Errno::E2BIG));
    assert_eq!(sem::op(c, id, &many[..500], None), Ok(()));
    assert_eq!(values(c, id), [500, 0]);
    assert_eq!(sem::getpid(c, id, 0), Ok(process.pid()));
}

#[test]
fn two_semaphores_are_taken_together_by_a_waiter() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let c = &a.ctx();
    let id = set_of(c, &[0, 0]);
    let task = begin(c, &b, id, &[Sembuf { num: 0, op: -1, flg: 0 }, Sembuf { num: 1, op: -1, flg: 0 }]);
    assert_eq!(sem::getncnt(c, id, 0), Ok(1));
    sem::op(c, id, &[op(0, 1)], None).unwrap();
    // One of two is not enough; the other is in the way now.
    assert_eq!(values(c, id), [1, 0]);
    assert_eq!((sem::getncnt(c, id, 0), sem::getncnt(c, id, 1)), (Ok(0), Ok(1)));
    sem::op(c, id, &[op(1, 1)], None).unwrap();
    assert_eq!(task.result(), Ok(()));
    assert_eq!(values(c, id), [0, 0]);
    assert_eq!(sem::getpid(c, id, 1), Ok(b.pid()));
}

#[test]
fn waiters_are_served_in_order_and_those_for_zero_first() {
    static TAKE: [Sembuf; 2] = [Sembuf { num: 0, op: -1, flg: 0 }, Sembuf { num: 1, op: 1, flg: 0 }];
    static PASS: [Sembuf; 2] = [Sembuf { num: 0, op: 0, flg: 0 }, Sembuf { num: 0, op: 1, flg: 0 }];
    let world = World::new(1 << 20);
    let a = world.process();
    let c = &a.ctx();
    let id = set_of(c, &[0, 0]);
    let waiters: Vec<_> = (0..4).map(|_| world.process()).collect();
    let mut tasks: Vec<_> = waiters.iter().map(|w| begin(c, w, id, &TAKE)).collect();
    // The second semaphore's last pid says who came through.
    for (i, waiter) in waiters.iter().enumerate() {
        sem::op(c, id, &[op(0, 1)], None).unwrap();
        assert_eq!(sem::getpid(c, id, 1), Ok(waiter.pid()));
        assert_eq!(values(c, id), [0, i as u16 + 1]);
        assert_eq!(tasks.remove(0).result(), Ok(()));
    }
    // Both wait for zero; the first would leave 1 behind, the second changes nothing and goes first.
    let (alters, looks) = (world.process(), world.process());
    sem::setval(c, id, 0, 1).unwrap();
    let first = begin(c, &alters, id, &PASS);
    let second = begin(c, &looks, id, &PASS[..1]);
    sem::op(c, id, &[op(0, -1)], None).unwrap();
    assert_eq!(second.result(), Ok(()));
    assert_eq!(first.result(), Ok(()));
    assert_eq!(values(c, id)[0], 1);
}

#[test]
fn a_waiter_gives_up_when_it_should() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let c = &a.ctx();
    let id = set_of(c, &[0]);
    let task = begin(c, &b, id, &TAKE);
    b.interrupt();
    assert_eq!(task.result(), Err(Errno::EINTR));
    assert_eq!(sem::getncnt(c, id, 0), Ok(0));
    let task = begin(c, &b, id, &TAKE);
    sem::remove(c, id).unwrap();
    assert_eq!(task.result(), Err(Errno::EIDRM));
    assert_eq!(sem::op(c, id, &[op(0, 1)], None), Err(Errno::EINVAL));
    // No record is left behind: each of very many waits finds one.
    let id = set_of(c, &[0]);
    for _ in 0..1000 {
        assert_eq!(sem::op(c, id, &[op(0, -1)], Some(Duration::from_nanos(1))), Err(Errno::EAGAIN));
    }
}

#[test]
fn what_two_killed_processes_took_comes_back() {
    let world = World::new(1 << 20);
    let (a, b, d) = (world.process(), world.process(), world.process());
    let c = &a.ctx();
    let id = set_of(c, &[5, 7]);
    // The first adjustment lives beside the semaphore, the second in a record.
    sem::op(&b.ctx(), id, &[undone(0, -1), undone(1, -2)], None).unwrap();
    sem::op(&d.ctx(), id, &[undone(0, -3), undone(1, 4)], None).unwrap();
    assert_eq!(values(c, id), [1, 9]);
    d.kill();
    assert_eq!(values(c, id), [4, 5]);
    assert_eq!(sem::getpid(c, id, 0), Ok(d.pid()));
    b.kill();
    assert_eq!(values(c, id), [5, 7]);
    // Nothing is undone twice.
    assert_eq!(values(c, id), [5, 7]);
    sem::op(c, id, &[op(0, -5)], None).unwrap();
    assert_eq!(values(c, id), [0, 7]);
}

#[test]
fn a_sleeper_gets_what_a_killed_process_held() {
    let world = World::new(1 << 20);
    let (a, b, d) = (world.process(), world.process(), world.process());
    let c = &a.ctx();
    let id = set_of(c, &[1]);
    sem::op(&b.ctx(), id, &[undone(0, -1)], None).unwrap();
    let task = begin(c, &d, id, &[Sembuf { num: 0, op: -1, flg: SEM_UNDO }]);
    b.kill();
    // Nobody calls anything: the sleeper itself has to notice.
    assert_eq!(task.result(), Ok(()));
    assert_eq!(values(c, id), [0]);
    d.kill();
    assert_eq!(sem::op(c, id, &[now(0, -1)], None), Ok(()));
}

#[test]
fn a_wait_that_a_handler_could_not_end_is_ended_by_its_next_call() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let c = &a.ctx();
    let id = set_of(c, &[0]);
    let task = begin(c, &b, id, &TAKE);
    let lock = &world.pool().sem(0).unwrap().lock;
    until("the lock is free", || {
        // As its owner leaves it, who does not move.
        let owner = 1 << 30 | u32::from(a.id().generation) << 16 | a.id().slot;
        lock.compare_exchange(0, owner, Relaxed, Relaxed).is_ok()
    });
    b.hurry(5_000_000);
    let word = &raw const world.pool().waiter(0).unwrap().status;
    assert!(!crate::interrupt(&b.ctx(), word, false));
    lock.store(0, Relaxed);
    assert!(crate::interrupt(&b.ctx(), word, false));
    assert_eq!(task.result(), Err(Errno::EINTR));
    assert_eq!(sem::getncnt(c, id, 0), Ok(0));
}

#[test]
fn setting_a_value_forgets_adjustments() {
    let world = World::new(1 << 20);
    let (a, b, d) = (world.process(), world.process(), world.process());
    let c = &a.ctx();
    let id = set_of(c, &[5, 5]);
    for p in [&b, &d] {
        sem::op(&p.ctx(), id, &[undone(0, -1), undone(1, -1)], None).unwrap();
    }
    sem::setval(c, id, 0, 2).unwrap();
    b.kill();
    d.kill();
    assert_eq!(values(c, id), [2, 5]);
    assert_eq!(sem::setval(c, id, 0, SEMVMX + 1), Err(Errno::ERANGE));
    assert_eq!(sem::setval(c, id, 2, 0), Err(Errno::EINVAL));
}

#[test]
fn leaving_undoes_and_wakes() {
    let world = World::new(1 << 20);
    let (a, b, d) = (world.process(), world.process(), world.process());
    let c = &a.ctx();
    let id = set_of(c, &[1]);
    sem::op(&b.ctx(), id, &[undone(0, -1)], None).unwrap();
    let task = begin(c, &d, id, &TAKE);
    crate::leave(&b.ctx());
    assert_eq!(task.result(), Ok(()));
    assert_eq!(values(c, id), [0]);
}

#[test]
fn permissions_are_looked_at() {
    let world = World::new(1 << 20);
    let (a, b) = (world.process(), world.process());
    let c = &a.ctx();
    let id = sem::get(c, 77, 1, crate::IPC_CREAT | 0o640).unwrap();
    let other = &b.ctx();
    b.set_cred(Cred { uid: 2, gid: 2, caps: 0 });
    assert_eq!(sem::getval(other, id, 0), Err(Errno::EACCES));
    assert_eq!(sem::op(other, id, &[op(0, 1)], None), Err(Errno::EACCES));
    assert_eq!(sem::remove(other, id), Err(Errno::EPERM));
    assert_eq!(sem::get(other, 77, 1, 0o600), Err(Errno::EACCES));
    assert_eq!(sem::get(other, 77, 1, 0), Ok(id));
    b.set_cred(Cred { uid: 2, gid: 1000, caps: 0 });
    assert_eq!(sem::getval(other, id, 0), Ok(0));
    assert_eq!(sem::setval(other, id, 0, 1), Err(Errno::EACCES));
    // CAP_IPC_OWNER, then CAP_SYS_ADMIN.
    b.set_cred(Cred { uid: 2, gid: 2, caps: 1 << 15 });
    assert_eq!(sem::setval(other, id, 0, 1), Ok(()));
    assert_eq!(sem::remove(other, id), Err(Errno::EPERM));
    b.set_cred(Cred { uid: 2, gid: 2, caps: 1 << 21 });
    assert_eq!(sem::remove(other, id), Ok(()));
}

/// Root of a machine rules over what was made in that machine, and root of the host over all.
#[test]
fn a_machines_root_rules_over_its_own() {
    let world = World::new(1 << 20);
    let (maker, root) = (world.process(), world.process());
    let ids = [1, 2].map(|key| sem::get(&maker.ctx(), key, 1, crate::IPC_CREAT | 0o600).unwrap());
    root.set_cred(Cred { uid: 2, gid: 2, caps: u64::MAX });
    root.move_into_machine();
    let elsewhere = crate::Ctx { member: 1, ..root.ctx() };
    assert_eq!(sem::getval(&elsewhere, ids[0], 0), Err(Errno::EACCES));
    assert_eq!(sem::remove(&elsewhere, ids[0]), Err(Errno::EPERM));
    let own = sem::get(&elsewhere, 3, 1, crate::IPC_CREAT).unwrap();
    assert_eq!(sem::getval(&elsewhere, own, 0), Ok(0));
    assert_eq!(sem::remove(&elsewhere, own), Ok(()));
    // The entry is used again, by others.
    let again = sem::get(&maker.ctx(), 4, 1, crate::IPC_CREAT | 0o600).unwrap();
    assert_eq!(sem::remove(&elsewhere, again), Err(Errno::EPERM));

    let there = root.ctx();
    assert_eq!(sem::getval(&there, ids[0], 0), Ok(0));
    assert_eq!(sem::remove(&there, ids[0]), Ok(()));
    let host = world.process();
    host.set_cred(Cred { uid: 2, gid: 2, caps: u64::MAX });
    let host = crate::Ctx { member: 1, ..host.ctx() };
    assert_eq!(sem::remove(&host, ids[1]), Ok(()));
}

#[test]
fn a_crowd_keeps_the_sum() {
    let world = World::new(1 << 20);
    let a = world.process();
    let c = &a.ctx();
    let id = set_of(c, &[2, 0]);
    let tasks: Vec<_> = (0..4)
        .map(|i| {
            world.process().start(move |c| {
                for round in 0..300 {
                    let there = if i % 2 == 0 { undone(0, -1) } else { op(0, -1) };
                    sem::op(c, id, &[there], None).unwrap();
                    if round % 3 == 0 {
                        sem::op(c, id, &[op(1, 1), op(1, -1)], None).unwrap();
                    }
                    let back = if i % 2 == 0 { undone(0, 1) } else { op(0, 1) };
                    sem::op(c, id, &[back], None).unwrap();
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(Task::result);
    assert_eq!(values(c, id), [2, 0]);
}

/// More than a lock's owner can wake later: those are woken at once, and must find that they were served.
#[test]
fn all_of_a_large_crowd_are_served_before_they_are_woken() {
    let world = World::new(1 << 20);
    let process = world.process();
    let c = &process.ctx();
    let id = set_of(c, &[0]);
    let waiting: Vec<_> =
        (0..20).map(|_| world.process().start(move |c| sem::op(c, id, &[op(0, -1)], None))).collect();
    until("they wait", || sem::getncnt(c, id, 0) == Ok(20));
    sem::op(c, id, &[op(0, 20)], None).unwrap();
    waiting.into_iter().for_each(|task| task.result().unwrap());
    assert_eq!((values(c, id), world.woken_early()), (std::vec![0], 0));
}

/// A program knows the sizes of sets by their ids.
#[test]
fn an_id_of_another_entry_is_not_told() {
    let world = World::new(1 << 20);
    let process = world.process();
    let c = &process.ctx();
    let large = sem::get(c, 1, 25, crate::IPC_CREAT | 0o600).unwrap();
    let small = sem::get(c, 2, 2, crate::IPC_CREAT | 0o600).unwrap();
    let index = c.pool.ids().index(small);
    let head = &c.pool.sem(index).unwrap().head;
    head.id.store(large as u32, Relaxed);
    assert_eq!(sem::get(c, 2, 2, 0), Err(Errno::EIDRM));
    head.id.store(small as u32, Relaxed);
    assert_eq!(sem::get(c, 2, 2, 0), Ok(small));
}
