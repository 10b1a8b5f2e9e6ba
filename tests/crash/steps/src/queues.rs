//! Message queues.

use crate::calls::*;
use crate::image::{crash, stopped, stopped_then_crash};
use crate::mend::{inspect_as, mend};
use crate::world::Process;
use crate::Scenario;
use vshmem_ipc::msg::{self, MSG_COPY, MSG_EXCEPT, MSG_NOERROR};
use vshmem_ipc::{leave, Errno, IPC_NOWAIT};

/// Bytes of a message that takes some cells, and of one that needs a larger ring.
pub const LONG: usize = 300;
pub const HUGE: usize = 8000;

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    ("msgget", 9, get),
    ("msgsnd, the first", 15, || sends(&[], 10)),
    ("msgsnd", 5, || sends(&[10], 10)),
    ("msgsnd of a longer text", 5, || sends(&[10], LONG)),
    ("msgsnd that needs a larger ring", 31, || sends(&[10, LONG, 0], HUGE)),
    ("msgsnd across the ring's end", 5, sends_across),
    ("msgsnd behind a dead sender", 3, sends_behind_the_dead),
    ("msgsnd behind a dead receiver", 3, sends_behind_a_dead_receiver),
    ("msgrcv", 5, || receives(&[10, 20], 0, 0, 0)),
    ("msgrcv of a longer text", 5, || receives(&[LONG, 20], 0, 0, 0)),
    ("msgrcv with MSG_NOERROR", 5, || receives(&[LONG, 20], 0, MSG_NOERROR, 0)),
    ("msgrcv of a type", 5, || receives(&[10, LONG, 20], 2, 0, 1)),
    ("msgrcv of the lowest type", 5, || receives(&[10, LONG, 20], -3, 0, 0)),
    ("msgrcv of another type", 5, || receives(&[10, LONG, 20], 1, MSG_EXCEPT, 1)),
    ("msgrcv with MSG_COPY", 5, copies),
    ("msgrcv behind a dead receiver", 3, receives_behind_the_dead),
    ("msgrcv that ends after a later one", 3, receives_late),
    ("msgctl of a queue where the dead were", 5, stat),
    ("IPC_RMID of an empty queue", 5, || remove(&[])),
    ("IPC_RMID of a queue", 5, || remove(&[10, LONG])),
    ("exit of a receiver", 0, exit),
];

/// A queue with messages of these lengths, of types 1, 2, ...
pub fn queue_with(lengths: &'static [usize]) -> i32 {
    let p = Process::new();
    let id = p.call(queue);
    for (i, len) in lengths.iter().enumerate() {
        p.call(move |c| send(c, id, i as i64 + 1, &text(i as u32, *len), 0)).expect("sent");
    }
    id
}

pub fn nth(i: usize, len: usize) -> (i64, Vec<u8>) {
    (i as i64 + 1, text(i as u32, len))
}

pub fn take_all(id: i32) -> Vec<(i64, Vec<u8>)> {
    Process::new().call(move |c| drain(c, id))
}

pub fn count(id: i32) -> (u64, u64) {
    Process::new().call(move |c| counts(c, id))
}

/// It is what it should be, with these messages in it, and works: so often round the ring that nothing stays
/// behind.
pub fn check(id: i32, wanted: &[(i64, Vec<u8>)]) {
    let bytes: usize = wanted.iter().map(|m| m.1.len()).sum();
    assert_eq!(count(id), (wanted.len() as u64, bytes as u64));
    works(id);
    let found = take_all(id);
    assert!(found == wanted, "{:?}, not {:?}", brief(&found), brief(wanted));
}

pub fn brief(all: &[(i64, Vec<u8>)]) -> Vec<(i64, usize)> {
    all.iter().map(|m| (m.0, m.1.len())).collect()
}

pub fn works(id: i32) {
    let p = Process::new();
    p.call(move |c| {
        for i in 0..150u32 {
            send(c, id, 77, &text(i, 70), IPC_NOWAIT).expect("there is room");
            let got = receive(c, id, 8192, 77, IPC_NOWAIT);
            assert_eq!(got, Ok((77, text(i, 70))));
        }
    });
}

fn get() {
    let result = crash(Process::new(), |c| msg::get(c, KEY, CREATE));
    let p = Process::new();
    let id = p.call(|c| msg::get(c, KEY, CREATE)).expect("it is there or can be made");
    assert!(result.is_none_or(|r| r == Ok(id)));
    check(id, &[]);
    p.call(move |c| msg::remove(c, id)).expect("it can be removed");
    assert_eq!(p.call(|c| msg::info(c).1), msg::MsgInfo::default());
}

/// A message is sent behind others: it is there wholly or not, in its place.
fn sends(before: &'static [usize], len: usize) {
    let id = queue_with(before);
    let n = before.len();
    let result = crash(Process::new(), move |c| send(c, id, 50, &text(50, len), IPC_NOWAIT));
    check_sent(id, before, n, len, result);
}

fn check_sent(id: i32, before: &[usize], n: usize, len: usize, result: Option<Result<(), Errno>>) {
    let mut wanted: Vec<_> = (0..).zip(before).map(|(i, len)| nth(i, *len)).collect();
    assert!(result.is_none_or(|r| r == Ok(())));
    let there = count(id).0 as usize - n;
    assert!(there == 1 || (there == 0 && result.is_none()));
    if there == 1 {
        wanted.push((50, text(50, len)));
    }
    check(id, &wanted);
}

fn sends_across() {
    let id = queue_with(&[10]);
    let p = Process::new();
    p.call(move |c| {
        drain(c, id);
        // Cells up to nearly the end of the first ring.
        for i in 0..60 {
            send(c, id, 1, &text(i, 10), 0).expect("sent");
            receive(c, id, 10, 0, IPC_NOWAIT).expect("received");
        }
    });
    let result = crash(p, move |c| send(c, id, 50, &text(50, LONG), IPC_NOWAIT));
    check_sent(id, &[], 0, LONG, result);
}

/// Somebody who is dead after so many stores of a call.
fn dies_after(stores: u64, call: impl FnOnce(&C) + 'static) {
    let p = Process::new();
    stopped(p, stores, call);
    p.kill();
}

fn sends_behind_the_dead() {
    // Who comes after a death cleans up after it first.
    let victim = Process::new();
    let id = queue_with(&[10]);
    dies_after(2, move |c| {
        let _ = send(c, id, 40, &text(40, LONG), 0);
    });
    let result = crash(victim, move |c| send(c, id, 50, &text(50, LONG), IPC_NOWAIT));
    check_sent(id, &[10], 1, LONG, result);
}

fn sends_behind_a_dead_receiver() {
    // Who comes after a death cleans up after it first.
    let victim = Process::new();
    let id = queue_with(&[10, 20]);
    dies_after(2, move |c| {
        let _ = receive(c, id, 100, 0, 0);
    });
    crash(victim, move |c| send(c, id, 50, &text(50, LONG), IPC_NOWAIT));
    let left = take_all(id);
    assert_eq!(left[0], nth(1, 20));
    assert!(left.len() == 1 || left[1..] == [(50, text(50, LONG))]);
    works(id);
}

/// A message is received from among others: whoever dies may take it along.
fn receives(before: &'static [usize], kind: i64, flags: i32, which: usize) {
    let id = queue_with(before);
    let cap = if flags & MSG_NOERROR != 0 { 5 } else { 8192 };
    let result = crash(Process::new(), move |c| receive(c, id, cap, kind, flags | IPC_NOWAIT));
    let mut wanted: Vec<_> = (0..).zip(before).map(|(i, len)| nth(i, *len)).collect();
    let there = count(id).0 as usize;
    if there < before.len() {
        let (kind, mut text) = wanted.remove(which);
        text.truncate(cap);
        assert!(result.is_none_or(|r| r == Ok((kind, text))));
    } else {
        assert!(result.is_none());
    }
    check(id, &wanted);
}

fn copies() {
    let id = queue_with(&[10, LONG]);
    let result = crash(Process::new(), move |c| receive(c, id, 8192, 1, MSG_COPY | IPC_NOWAIT));
    assert!(result.is_none_or(|r| r == Ok(nth(1, LONG))));
    check(id, &[nth(0, 10), nth(1, LONG)]);
}

fn receives_behind_the_dead() {
    // Who comes after a death cleans up after it first.
    let victim = Process::new();
    let id = queue_with(&[10, 20, LONG]);
    dies_after(2, move |c| {
        let _ = receive(c, id, 100, 0, 0);
    });
    crash(victim, move |c| receive(c, id, 100, 0, IPC_NOWAIT));
    let left = take_all(id);
    assert!(left == [nth(1, 20), nth(2, LONG)] || left == [nth(2, LONG)], "{:?}", brief(&left));
    works(id);
}

fn receives_late() {
    let id = queue_with(&[10, 20, LONG]);
    let (late, other) = (Process::new(), Process::new());
    let take = move |c: &C| receive(c, id, 100, 0, IPC_NOWAIT);
    let result = stopped_then_crash(late, 2, take, move || {
        assert_eq!(other.call(take), Ok(nth(1, 20)));
    });
    assert!(result.is_none_or(|r| r == Ok(nth(0, 10))));
    mend();
    // Who was later has finished, whatever became of the one before it.
    inspect_as(other, "as the later one sees it");
    check(id, &[nth(2, LONG)]);
}

fn stat() {
    // Who comes after a death cleans up after it first.
    let victim = Process::new();
    let id = queue_with(&[10, 20, LONG]);
    dies_after(2, move |c| {
        let _ = send(c, id, 40, &text(40, LONG), 0);
    });
    dies_after(2, move |c| {
        let _ = receive(c, id, 100, 0, 0);
    });
    crash(victim, move |c| msg::stat(c, id));
    check(id, &[nth(1, 20), nth(2, LONG)]);
}

pub fn check_removed(id: i32) {
    let p = Process::new();
    let _ = p.call(move |c| msg::remove(c, id));
    mend();
    assert_eq!(p.call(|c| msg::info(c).1), msg::MsgInfo::default());
    let other = p.call(queue);
    assert_ne!(id, other);
    works(other);
    assert_eq!(p.call(move |c| msg::stat(c, id).map(drop)), Err(Errno::EINVAL));
}

fn remove(lengths: &'static [usize]) {
    let id = queue_with(lengths);
    crash(Process::new(), move |c| msg::remove(c, id));
    check_removed(id);
}

fn exit() {
    let id = queue_with(&[10]);
    let p = Process::new();
    p.call(move |c| receive(c, id, 100, 0, 0)).expect("received");
    crash(p, |c| {
        if leave(c) {
            c.pool.free_process(c.me);
        }
    });
    check(id, &[]);
}
