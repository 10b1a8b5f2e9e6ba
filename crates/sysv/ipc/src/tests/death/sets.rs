//! Processes killed in calls on semaphore sets.

use super::{at_every_call, free, free_after_all, KEY};
use crate::testing::{until, World};
use crate::tests::sem::{op, set_of, undone, values, TAKE};
use crate::{sem, Errno, IPC_CREAT};
use core::time::Duration;
use std::time::Instant;

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
            assert_eq!(crate::tests::check::findings(&p), []);
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
