//! A process is killed at each of its calls to the kernel in turn, in the middle of whatever it does there.
//! What it did must have happened or not, never half, and nobody else may be held up.

use super::msg::{counts, queue, receive, send};
use super::sem::{op, set_of, undone, values, TAKE};
use crate::testing::{until, World, LONGEST_TEST};
use crate::{msg, sem, shm, Ctx, Errno, IPC_CREAT, IPC_NOWAIT};
use core::time::Duration;
use std::time::Instant;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::{Kind, PAGE};

const KEY: i32 = 4711;

/// Runs `act` in a process that is killed at its n-th call, for every n until it gets through (and is killed
/// then), each time on a fresh pool; `check` gets what `act` returned, if it did.
pub fn at_every_call<S: Copy + Send + 'static, T: Send + 'static>(
    setup: impl Fn(&World) -> S,
    act: impl Fn(&Ctx, S) -> T + Copy + Send + 'static,
    check: impl Fn(&World, S, Option<T>),
) {
    for n in 1..200 {
        let world = World::new(4 << 20);
        let state = setup(&world);
        let victim = world.process();
        victim.kill_at_call(n);
        let result = victim.start(move |c| act(c, state)).result_or_death();
        victim.kill();
        let finished = result.is_some();
        let begin = Instant::now();
        check(&world, state, result);
        // Taking over needs a moment, not the patience that is for owners who live.
        assert!(begin.elapsed() < LONGEST_TEST / 8, "killed at call {n}: took too long");
        if finished {
            assert!(n > 1, "it was never killed in the middle");
            return;
        }
    }
    panic!("it makes too many calls");
}

/// Blocks of the small heap and pages that are free, or would be if it had not grown.
pub fn free(world: &World) -> (u64, u64) {
    let (g, end) = (world.pool().geometry(), world.pool().root().small_end.load(Relaxed));
    let grown = u64::from(g.small.count) - end;
    let free = [g.small, g.pages].map(|heap| heap.free_blocks(world.pool()));
    (free[0] + grown, free[1] - grown * g.small.block() / PAGE)
}

/// Cleans up as a process that finds no room does, and says what is free then.
pub fn free_after_all(world: &World) -> (u64, u64) {
    let last = world.process();
    let signals = vshmem_pool::lock::SignalsBlocked::new(last.ctx().kernel);
    crate::liveness::free_up(&last.ctx(), &signals);
    drop(signals);
    free(world)
}

/// An entry that is free may be another's in the next moment, and what its process notes of it is about that.
#[test]
fn who_removes_has_forgotten_it_when_the_entry_is_free() {
    let is_forgotten = |w: &World, kind: Kind| {
        let pool = w.pool();
        let is_free = |index| pool.head(kind, index).unwrap().id.load(Relaxed) == 0;
        let mut touched = (0..8).flat_map(|slot| &pool.proc(slot).unwrap().touched);
        pool.root().lock.load(Relaxed) != 0
            || touched.all(|t| t.load(Relaxed) != kind.reference(0) || !is_free(0))
    };
    // As if somebody waited, who has to be woken as soon as the lock is free.
    let contend = |w: &World| w.pool().root().lock.store(1 << 31, Relaxed);
    at_every_call(
        |w| (set_of(&w.process().ctx(), &[5]), contend(w)).0,
        sem::remove,
        |w, _, _| assert!(is_forgotten(w, Kind::Sem)),
    );
    at_every_call(
        |w| (queue(&w.process().ctx()), contend(w)).0,
        msg::remove,
        |w, _, _| assert!(is_forgotten(w, Kind::Msg)),
    );
}

#[test]
fn in_semop_on_two_semaphores() {
    at_every_call(
        |w| set_of(&w.process().ctx(), &[5, 7]),
        |c, id| sem::op(c, id, &[op(0, -1), op(1, 2)], None),
        |w, id, result| {
            let now = values(&w.process().ctx(), id);
            assert!(now == [4, 9] || (result.is_none() && now == [5, 7]), "{now:?}");
        },
    );
}

#[test]
fn in_semop_with_undo_beside_another_who_has_some() {
    at_every_call(
        |w| {
            let id = set_of(&w.process().ctx(), &[5, 7]);
            let other = w.process();
            sem::op(&other.ctx(), id, &[undone(0, -2), undone(1, -2)], None).unwrap();
            id
        },
        |c, id| sem::op(c, id, &[undone(0, -1), undone(1, 2)], None),
        |w, id, _| assert_eq!(values(&w.process().ctx(), id), [3, 5]),
    );
}

#[test]
fn while_serving_a_waiter() {
    at_every_call(
        |w| {
            let id = set_of(&w.process().ctx(), &[0]);
            w.process().start(move |c| {
                let taken = sem::op(c, id, &TAKE, None);
                sem::setval(c, id, 0, 100 + taken.is_ok() as i32)
            });
            let c = w.process();
            until("it waits", || sem::getncnt(&c.ctx(), id, 0) == Ok(1));
            id
        },
        |c, id| sem::op(c, id, &[op(0, 1)], None),
        |w, id, result| {
            let p = w.process();
            let c = &p.ctx();
            // If the increase happened, the waiter gets it though nobody calls anything; otherwise it takes
            // the next one.
            let begin = Instant::now();
            while result.is_none()
                && begin.elapsed() < Duration::from_millis(400)
                && sem::getncnt(c, id, 0) == Ok(1)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            if sem::getncnt(c, id, 0) == Ok(1) {
                assert_eq!((result, values(c, id)[0]), (None, 0));
                sem::op(c, id, &[op(0, 1)], None).unwrap();
            }
            until("the waiter was served", || values(c, id) == [101]);
        },
    );
}

/// A set on which a process waits that was killed since.
fn set_with_a_dead_waiter(w: &World) -> i32 {
    let id = set_of(&w.process().ctx(), &[0]);
    let waiter = w.process();
    waiter.start(move |c| sem::op(c, id, &TAKE, None));
    until("it waits", || sem::getncnt(&w.process().ctx(), id, 0) == Ok(1));
    waiter.kill();
    id
}

#[test]
fn while_serving_a_dead_waiter() {
    at_every_call(
        set_with_a_dead_waiter,
        |c, id| sem::op(c, id, &[op(0, 1)], None),
        |w, id, result| {
            let p = w.process();
            let c = &p.ctx();
            let value = values(c, id)[0];
            assert!(value == 1 || (result.is_none() && value == 0), "{value}");
            sem::op(c, id, &[op(0, 1)], None).unwrap();
            free_after_all(w);
            let all = values(c, id)[0];
            assert!((value + 1..=2).contains(&all), "{value}, then {all}");
            assert_eq!(sem::getncnt(c, id, 0), Ok(0));
        },
    );
}

#[test]
fn a_dead_waiter_is_not_served_twice_over() {
    let world = World::new(4 << 20);
    let id = set_with_a_dead_waiter(&world);
    let (p, next) = (world.process(), world.process());
    let c = &p.ctx();
    let second = next.start(move |c| sem::op(c, id, &TAKE, None));
    until("it waits, too", || sem::getncnt(c, id, 0) == Ok(1));
    sem::op(c, id, &[op(0, 1)], None).unwrap();
    assert_eq!(second.result_or_death(), Some(Ok(())));
    free_after_all(&world);
    assert_eq!(values(c, id), [0]);
}

#[test]
fn in_semget() {
    in_semget_of(3);
}

/// A set for which the small heap has to grow.
#[test]
fn in_semget_that_takes_pages() {
    in_semget_of(8000);
}

fn in_semget_of(count: i32) {
    at_every_call(
        free,
        move |c, _| sem::get(c, KEY, count, IPC_CREAT | 0o600),
        |w, before, result| {
            let p = w.process();
            let c = &p.ctx();
            let id = sem::get(c, KEY, count, IPC_CREAT | 0o600).unwrap();
            assert!(result.is_none_or(|r| r == Ok(id)));
            assert!(values(c, id).len() == count as usize && values(c, id).iter().all(|value| *value == 0));
            assert_eq!(super::check::findings(&p), []);
            sem::remove(c, id).unwrap();
            assert_eq!(sem::info(c).1, sem::SemInfo::default());
            assert_eq!(free_after_all(w), before);
        },
    );
}

#[test]
fn in_removing_a_set_with_a_waiter() {
    at_every_call(
        |w| {
            let before = free(w);
            let p = w.process();
            let c = &p.ctx();
            let id = sem::get(c, KEY, 1, IPC_CREAT | 0o600).unwrap();
            let sign = sem::get(c, KEY + 1, 1, IPC_CREAT | 0o600).unwrap();
            w.process().start(move |c| {
                let ended = sem::op(c, id, &TAKE, None) == Err(Errno::EIDRM);
                sem::setval(c, sign, 0, 1 + ended as i32)
            });
            until("it waits", || sem::getncnt(c, id, 0) == Ok(1));
            (before, id, sign)
        },
        |c, (_, id, _)| sem::remove(c, id),
        |w, (before, id, sign), _| {
            let p = w.process();
            let c = &p.ctx();
            // Where the removal had not begun, it is done now.
            let _ = sem::remove(c, id);
            until("the waiter was told", || sem::getval(c, sign, 0) == Ok(2));
            assert_eq!(sem::get(c, KEY, 1, 0), Err(Errno::ENOENT));
            sem::remove(c, sign).unwrap();
            assert_eq!(sem::info(c).1, sem::SemInfo::default());
            assert_eq!(free_after_all(w), before);
        },
    );
}

/// A queue with a first and a third message; the second is the victim's.
fn queue_with_one(w: &World) -> i32 {
    let p = w.process();
    let id = queue(&p.ctx());
    send(&p.ctx(), id, 1, b"first").unwrap();
    id
}

#[test]
fn in_msgsnd() {
    at_every_call(
        queue_with_one,
        |c, id| send(c, id, 2, &[2; 300]),
        |w, id, result| {
            let p = w.process();
            let c = &p.ctx();
            send(c, id, 3, b"third").unwrap();
            let (n, bytes) = counts(c, id);
            assert!(n == 3 || (n == 2 && result.is_none()));
            assert_eq!(bytes, if n == 3 { 310 } else { 10 });
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"first");
            if n == 3 {
                assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, [2; 300]);
            }
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"third");
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT), Err(Errno::ENOMSG));
            assert_eq!(counts(c, id), (0, 0));
        },
    );
}

#[test]
fn in_msgsnd_while_others_fill_the_queue() {
    at_every_call(
        queue_with_one,
        |c, id| send(c, id, 2, &[2; 300]),
        |w, id, _| {
            let p = w.process();
            let c = &p.ctx();
            // Round the ring several times: the cells of the dead must not stay behind.
            for i in 0..1000u32 {
                send(c, id, 3, &i.to_le_bytes()).unwrap();
                if i >= 20 {
                    let (_, text) = receive(c, id, 300, 3, IPC_NOWAIT).unwrap();
                    assert_eq!(text, (i - 20).to_le_bytes());
                }
            }
            let (n, bytes) = counts(c, id);
            assert!((n, bytes) == (21, 85) || (n, bytes) == (22, 385));
        },
    );
}

#[test]
fn in_msgrcv() {
    at_every_call(
        |w| {
            let id = queue_with_one(w);
            send(&w.process().ctx(), id, 2, b"second").unwrap();
            id
        },
        |c, id| receive(c, id, 300, 0, IPC_NOWAIT),
        |w, id, result| {
            let p = w.process();
            let c = &p.ctx();
            let (n, bytes) = counts(c, id);
            // A receiver that dies in msgrcv may take the message along.
            assert!((n, bytes) == (1, 6) || (result.is_none() && (n, bytes) == (2, 11)));
            if n == 2 {
                assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"first");
            }
            for i in 0..1000u32 {
                send(c, id, 3, &i.to_le_bytes()).unwrap();
                assert_eq!(receive(c, id, 300, 3, IPC_NOWAIT).unwrap().1, i.to_le_bytes());
            }
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"second");
            assert_eq!(counts(c, id), (0, 0));
        },
    );
}

#[test]
fn in_msgrcv_of_a_type_in_the_middle() {
    at_every_call(
        |w| {
            let id = queue_with_one(w);
            send(&w.process().ctx(), id, 2, &[2; 300]).unwrap();
            send(&w.process().ctx(), id, 3, b"third").unwrap();
            id
        },
        |c, id| receive(c, id, 300, 2, IPC_NOWAIT),
        |w, id, result| {
            let p = w.process();
            let c = &p.ctx();
            let there = counts(c, id);
            assert!(there == (2, 10) || (result.is_none() && there == (3, 310)));
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"first");
            assert_eq!(receive(c, id, 300, 2, IPC_NOWAIT).is_ok(), there.0 == 3);
            assert_eq!(receive(c, id, 300, 0, IPC_NOWAIT).unwrap().1, b"third");
            assert_eq!(counts(c, id), (0, 0));
        },
    );
}

#[test]
fn while_handing_a_message_over() {
    at_every_call(
        |w| {
            let id = queue(&w.process().ctx());
            let echo = queue(&w.process().ctx());
            w.process().start(move |c| {
                let (kind, text) = receive(c, id, 300, 0, 0)?;
                send(c, echo, kind, &text)
            });
            let entry = w.pool().msg(id as u32 & 0x1ffff).unwrap();
            until("it waits", || entry.first_receiver.load(Relaxed) != 0);
            (id, echo)
        },
        |c, (id, _)| send(c, id, 7, b"for you"),
        |w, (id, echo), result| {
            let p = w.process();
            let c = &p.ctx();
            let waits = w.pool().msg(id as u32 & 0x1ffff).unwrap();
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(400) && counts(c, echo).0 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            if counts(c, echo).0 == 0 {
                assert_eq!(result, None);
                assert!(waits.first_receiver.load(Relaxed) != 0);
                send(c, id, 7, b"for you").unwrap();
            }
            until("it came", || counts(c, echo).0 == 1);
            assert_eq!(receive(c, echo, 300, 0, 0).unwrap(), (7, b"for you".to_vec()));
            assert_eq!(counts(c, id), (0, 0));
        },
    );
}

#[test]
fn in_msgget() {
    at_every_call(
        free,
        |c, _| msg::get(c, KEY, IPC_CREAT | 0o600),
        |w, before, result| {
            let p = w.process();
            let c = &p.ctx();
            let id = msg::get(c, KEY, IPC_CREAT | 0o600).unwrap();
            assert!(result.is_none_or(|r| r == Ok(id)));
            assert_eq!(counts(c, id), (0, 0));
            msg::remove(c, id).unwrap();
            assert_eq!(msg::info(c).1, msg::MsgInfo::default());
            assert_eq!(free_after_all(w), before);
        },
    );
}

#[test]
fn in_removing_a_queue() {
    at_every_call(
        |w| {
            let before = free(w);
            let p = w.process();
            let id = msg::get(&p.ctx(), KEY, IPC_CREAT | 0o600).unwrap();
            send(&p.ctx(), id, 1, b"lost").unwrap();
            (before, id)
        },
        |c, (_, id)| msg::remove(c, id),
        |w, (before, id), _| {
            let p = w.process();
            let c = &p.ctx();
            let _ = msg::remove(c, id);
            assert_eq!(msg::get(c, KEY, 0), Err(Errno::ENOENT));
            assert_eq!(msg::info(c).1, msg::MsgInfo::default());
            assert_eq!(free_after_all(w), before);
        },
    );
}

/// Of segments, sizes on both sides of what is prepared under the lock.
fn in_shmget(size: usize) {
    at_every_call(
        free,
        move |c, _| shm::get(c, KEY, size, IPC_CREAT | 0o600),
        |w, before, result| {
            let p = w.process();
            let c = &p.ctx();
            let id = shm::get(c, KEY, size, IPC_CREAT | 0o600).unwrap();
            assert!(result.is_none_or(|r| r == Ok(id)));
            shm::remove(c, id).unwrap();
            assert_eq!(shm::info(c).1, shm::ShmInfo::default());
            assert_eq!(free_after_all(w), before);
        },
    );
}

#[test]
fn in_shmget_of_a_small_segment() {
    in_shmget(5000);
}

#[test]
fn in_shmget_of_a_large_segment() {
    in_shmget(300_000);
}

#[test]
fn in_shmat_and_shmdt() {
    at_every_call(
        |w| shm::get(&w.process().ctx(), KEY, 5000, IPC_CREAT | 0o666).unwrap(),
        |c, id| {
            shm::attach(c, id, 0).unwrap();
            shm::attach(c, id, 0).unwrap();
            shm::detach(c, id);
            shm::detach(c, id);
        },
        |w, id, _| {
            let p = w.process();
            assert_eq!(shm::stat(&p.ctx(), id).unwrap().nattch, 0);
        },
    );
}

/// What a segment of this size leaves when the one who removes it, or the last one to detach it, is killed.
fn in_destroying(size: usize) {
    at_every_call(
        |w| {
            let before = free(w);
            let p = w.process();
            let id = shm::get(&p.ctx(), KEY, size, IPC_CREAT | 0o666).unwrap();
            (before, id)
        },
        |c, (_, id)| {
            shm::attach(c, id, 0).unwrap();
            shm::remove(c, id).unwrap();
            shm::detach(c, id);
        },
        |w, (before, id), _| {
            let p = w.process();
            let c = &p.ctx();
            if shm::get(c, KEY, 0, 0).is_ok() {
                shm::remove(c, id).unwrap();
            }
            assert_eq!(shm::info(c).1, shm::ShmInfo::default());
            assert_eq!(free_after_all(w), before);
        },
    );
}

#[test]
fn in_destroying_a_small_segment() {
    in_destroying(5000);
}

#[test]
fn in_destroying_a_large_segment() {
    in_destroying(300_000);
}

/// Somebody holds a lock for a minute.
#[test]
fn a_lock_is_waited_for_while_its_owner_is_stopped() {
    const MINUTE: Duration = Duration::from_secs(60);
    const FASTER: u32 = 500;
    let ends = |stopped: bool, signal: bool| {
        let world = World::new(4 << 20);
        let (owner, other) = (world.process(), world.process());
        let ctx = owner.ctx();
        let signals = vshmem_pool::lock::SignalsBlocked::new(ctx.kernel);
        let guard = crate::directory::lock(&ctx, &signals);
        world.hurry(FASTER);
        owner.seems_stopped(stopped);
        let call = other.start(move |c| msg::get(c, KEY, IPC_CREAT | 0o600).map(drop));
        if signal {
            other.signal();
        }
        if stopped && !signal {
            std::thread::sleep(MINUTE / FASTER);
            drop(guard);
            return call.result();
        }
        // The lock stays held until the call has ended, however late its thread gets to run.
        let result = call.result();
        drop(guard);
        result
    };
    assert_eq!(ends(false, false), Err(Errno::EIDRM), "it would wait for ever for one that hangs");
    assert_eq!(ends(true, false), Ok(()));
    assert_eq!(ends(true, true), Err(Errno::EINTR));
    assert_eq!(ends(false, true), Err(Errno::EINTR));
}
