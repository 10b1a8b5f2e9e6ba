//! Statistics of a pool: what is seen from outside is what is there.

use super::msg::{queue, receive, send};
use super::sem::{op, set_of};
use crate::sem::Sembuf;
use crate::stats::{self, Sleeper, Wanted};
use crate::testing::{until, World};
use crate::{msg, sem, shm, IPC_CREAT, IPC_NOWAIT};
use std::vec::Vec;
use vshmem_pool::layout::Kind;

fn sleepers(w: &World) -> Vec<Sleeper> {
    let mut all = Vec::new();
    stats::sleepers(w.pool(), &mut |_, _| true, |sleeper| all.push(sleeper));
    all
}

#[test]
fn objects_and_what_has_passed_are_seen() {
    let w = World::new(8 << 20);
    let p = w.process();
    let c = &p.ctx();
    assert_eq!(stats::totals(w.pool()).objects, [0; 3]);
    let segment = shm::get(c, 7, 5000, IPC_CREAT | 0o640).unwrap();
    shm::attach(c, segment, 0).unwrap();
    let set = set_of(c, &[1, 2, 3]);
    let id = queue(c);
    let mut new = None;
    stats::queues(w.pool(), &mut |_, _| true, |q| new = Some(q));
    let new = new.unwrap();
    for size in [10, 20, 30] {
        send(c, id, 1, &std::vec![1; size]).unwrap();
    }
    receive(c, id, 100, 0, IPC_NOWAIT).unwrap();
    let removed = queue(c);
    msg::remove(c, removed).unwrap();

    let back = &mut |_, _| true;
    let (mut segments, mut sets, mut queues) = (Vec::new(), Vec::new(), Vec::new());
    stats::segments(w.pool(), back, |s| segments.push(s));
    stats::sets(w.pool(), back, |s| sets.push(s));
    stats::queues(w.pool(), back, |q| queues.push(q));
    let [s] = segments[..] else { panic!("{segments:?}") };
    assert_eq!((s.entry.id, s.entry.key, s.entry.mode), (segment, 7, 0o640));
    assert_eq!((s.size, s.attached, s.creator.pid), (5000, 1, p.pid()));
    let [s] = sets[..] else { panic!("{sets:?}") };
    assert_eq!((s.entry.id, s.count), (set, 3));
    let [q] = queues[..] else { panic!("{queues:?}") };
    assert_eq!((q.entry.id, q.bytes(), q.messages()), (id, 50, 2));
    let passed = |now: stats::End, then: stats::End| {
        let messages = now.messages.wrapping_sub(then.messages);
        (now.bytes.wrapping_sub(then.bytes), messages)
    };
    assert_eq!(passed(q.sent, new.sent), (60, 3));
    assert_eq!(passed(q.received, new.received), (10, 1));
    assert_eq!((q.sent.last.pid, q.received.last.pid), (p.pid(), p.pid()));
    let totals = stats::totals(w.pool());
    assert_eq!((totals.objects, totals.semaphores, totals.segment_bytes), ([1, 1, 1], 3, 8192));

    // What has no memory is not looked at.
    stats::segments(w.pool(), &mut |_, _| false, |_| panic!("it was looked at"));
}

/// It is in the queue at no time.
#[test]
fn what_is_handed_to_a_waiting_receiver_is_counted() {
    let w = World::new(8 << 20);
    let (p, receiver) = (w.process(), w.process());
    let id = queue(&p.ctx());
    for round in 1..=3 {
        let task = receiver.start(move |c| receive(c, id, 100, 0, 0));
        until("it waits", || sleepers(&w).len() == 1);
        send(&p.ctx(), id, 1, &[1; 70]).unwrap();
        assert!(task.result().is_ok());
        let mut seen = None;
        stats::queues(w.pool(), &mut |_, _| true, |q| seen = Some(q));
        let seen = seen.unwrap();
        assert_eq!((seen.handed, seen.messages()), ((70 * round, round), 0));
    }
}

#[test]
fn who_waits_is_seen_with_what_for_and_since_when() {
    const TAKE: [Sembuf; 2] = [Sembuf { num: 0, op: 1, flg: 0 }, Sembuf { num: 2, op: -3, flg: 0 }];
    const MANY: [Sembuf; 25] = [Sembuf { num: 1, op: 0, flg: 0 }; 25];
    let w = World::new(8 << 20);
    let (p, taker, receiver, sender) = (w.process(), w.process(), w.process(), w.process());
    let c = &p.ctx();
    let set = set_of(c, &[1, 2, 0]);
    let (empty, full) = (queue(c), queue(c));
    while send(c, full, 1, &[1; 1000]).is_ok() {}
    assert_eq!(sleepers(&w), []);
    taker.start(move |c| sem::op(c, set, &TAKE, None));
    until("it waits", || sleepers(&w).len() == 1);
    taker.start(move |c| sem::op(c, set, &MANY, None));
    receiver.start(move |c| receive(c, empty, 10, -9, 0));
    // SAFETY: an array.
    sender.start(move |c| unsafe { msg::send(c, full, 1, [0u8; 700].as_ptr(), 700, 0) });
    until("all wait", || sleepers(&w).len() == 4);
    let seen: Vec<_> = sleepers(&w).iter().map(|s| (s.who.pid, s.kind, s.id, s.wanted)).collect();
    assert_eq!(seen[0], (taker.pid(), Kind::Sem, set, Wanted::Operation { number: 2, add: -3 }));
    assert_eq!(seen[1], (taker.pid(), Kind::Sem, set, Wanted::Operation { number: 1, add: 0 }));
    assert!(seen.contains(&(receiver.pid(), Kind::Msg, empty, Wanted::Message(-9))));
    assert!(seen.contains(&(sender.pid(), Kind::Msg, full, Wanted::Space(700))));
    let now = crate::Kernel::now(&*p);
    assert!(sleepers(&w).iter().all(|s| (now - 60..=now).contains(&s.since)));
    sem::op(c, set, &[op(2, 3)], None).unwrap();
    assert_eq!(sleepers(&w).len(), 3);
}
