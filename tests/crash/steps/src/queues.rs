//! Message queues.

use crate::calls::*;
use crate::image::{crash, mend, stopped};
use crate::world::{world, Process, Task};
use crate::Scenario;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use vshmem_ipc::msg::{self, MSG_COPY, MSG_EXCEPT, MSG_NOERROR};
use vshmem_ipc::{leave, Errno, IPC_NOWAIT};

/// Bytes of a message that takes some cells, and of one that needs a larger ring.
const LONG: usize = 300;
const HUGE: usize = 8000;

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    ("msgget", 9, get),
    ("msgsnd, the first", 15, || sends(&[], 10)),
    ("msgsnd", 5, || sends(&[10], 10)),
    ("msgsnd of a longer text", 5, || sends(&[10], LONG)),
    ("msgsnd that needs a larger ring", 31, || {
        sends(&[10, LONG, 0], HUGE)
    }),
    ("msgsnd across the ring's end", 5, sends_across),
    ("msgsnd behind a dead sender", 3, sends_behind_the_dead),
    (
        "msgsnd behind a dead receiver",
        3,
        sends_behind_a_dead_receiver,
    ),
    ("msgrcv", 5, || receives(&[10, 20], 0, 0, 0)),
    ("msgrcv of a longer text", 5, || {
        receives(&[LONG, 20], 0, 0, 0)
    }),
    ("msgrcv with MSG_NOERROR", 5, || {
        receives(&[LONG, 20], 0, MSG_NOERROR, 0)
    }),
    ("msgrcv of a type", 5, || receives(&[10, LONG, 20], 2, 0, 1)),
    ("msgrcv of the lowest type", 5, || {
        receives(&[10, LONG, 20], -3, 0, 0)
    }),
    ("msgrcv of another type", 5, || {
        receives(&[10, LONG, 20], 1, MSG_EXCEPT, 1)
    }),
    ("msgrcv with MSG_COPY", 5, copies),
    ("msgrcv behind a dead receiver", 3, receives_behind_the_dead),
    ("msgrcv that wakes senders", 5, wakes_senders),
    ("msgsnd to a waiting receiver", 5, || {
        hands_over(0, 8192, 20)
    }),
    ("msgsnd of a longer text to a waiting receiver", 5, || {
        hands_over(-5, 8192, LONG)
    }),
    ("msgsnd to receivers without room", 5, hands_to_the_second),
    ("msgsnd to a dead receiver", 5, hands_to_the_dead),
    ("msgsnd of a type that nobody waits for", 5, passes_by),
    ("msgrcv that waits", 5, receiver_waits),
    ("msgrcv that is handed a message", 3, is_handed),
    ("msgsnd that waits", 5, sender_waits),
    ("msgsnd that is woken", 3, is_woken),
    ("IPC_SET of a queue", 5, set),
    ("msgctl of a queue where the dead were", 5, stat),
    ("IPC_RMID of an empty queue", 5, || remove(&[])),
    ("IPC_RMID of a queue", 5, || remove(&[10, LONG])),
    (
        "IPC_RMID of a queue where receivers wait",
        5,
        remove_with_receivers,
    ),
    (
        "IPC_RMID of a queue where senders wait",
        5,
        remove_with_senders,
    ),
    ("leaving a ring where a sender is stopped", 31, || {
        parks(true, 0)
    }),
    ("leaving a ring where a receiver is stopped", 31, || {
        parks(false, 0)
    }),
    ("going on after a ring was left", 9, goes_on),
    ("collecting a ring that was left", 9, || parks(true, 1)),
    ("collecting a ring that was left by the dead", 9, || {
        parks(true, 2)
    }),
    (
        "collecting a ring that a receiver was stopped in",
        9,
        || parks(false, 1),
    ),
    ("IPC_RMID of a queue that has left a ring", 9, || {
        parks(true, 3)
    }),
    ("exit of a receiver", 0, exit),
];

/// A queue with messages of these lengths, of types 1, 2, ...
fn queue_with(lengths: &'static [usize]) -> i32 {
    let p = Process::new();
    let id = p.call(queue);
    for (i, len) in lengths.iter().enumerate() {
        p.call(move |c| send(c, id, i as i64 + 1, &text(i as u32, *len), 0))
            .expect("sent");
    }
    id
}

fn nth(i: usize, len: usize) -> (i64, Vec<u8>) {
    (i as i64 + 1, text(i as u32, len))
}

fn take_all(id: i32) -> Vec<(i64, Vec<u8>)> {
    Process::new().call(move |c| drain(c, id))
}

fn count(id: i32) -> (u64, u64) {
    Process::new().call(move |c| counts(c, id))
}

/// It is what it should be, with these messages in it, and works: so often round the ring that nothing stays behind.
fn check(id: i32, wanted: &[(i64, Vec<u8>)]) {
    let bytes: usize = wanted.iter().map(|m| m.1.len()).sum();
    assert_eq!(count(id), (wanted.len() as u64, bytes as u64));
    works(id);
    let found = take_all(id);
    assert!(
        found == wanted,
        "{:?}, not {:?}",
        brief(&found),
        brief(wanted)
    );
}

fn brief(all: &[(i64, Vec<u8>)]) -> Vec<(i64, usize)> {
    all.iter().map(|m| (m.0, m.1.len())).collect()
}

fn works(id: i32) {
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
    let id = p
        .call(|c| msg::get(c, KEY, CREATE))
        .expect("it is there or can be made");
    assert!(result.is_none_or(|r| r == Ok(id)));
    check(id, &[]);
    p.call(move |c| msg::remove(c, id))
        .expect("it can be removed");
    assert_eq!(p.call(|c| msg::info(c).1), msg::MsgInfo::default());
}

/// A message is sent behind others: it is there wholly or not, in its place.
fn sends(before: &'static [usize], len: usize) {
    let id = queue_with(before);
    let n = before.len();
    let result = crash(Process::new(), move |c| {
        send(c, id, 50, &text(50, len), IPC_NOWAIT)
    });
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
    let id = queue_with(&[10]);
    dies_after(2, move |c| {
        let _ = send(c, id, 40, &text(40, LONG), 0);
    });
    let result = crash(Process::new(), move |c| {
        send(c, id, 50, &text(50, LONG), IPC_NOWAIT)
    });
    check_sent(id, &[10], 1, LONG, result);
}

fn sends_behind_a_dead_receiver() {
    let id = queue_with(&[10, 20]);
    dies_after(2, move |c| {
        let _ = receive(c, id, 100, 0, 0);
    });
    crash(Process::new(), move |c| {
        send(c, id, 50, &text(50, LONG), IPC_NOWAIT)
    });
    let left = take_all(id);
    assert_eq!(left[0], nth(1, 20));
    assert!(left.len() == 1 || left[1..] == [(50, text(50, LONG))]);
    works(id);
}

/// A message is received from among others: whoever dies may take it along.
fn receives(before: &'static [usize], kind: i64, flags: i32, which: usize) {
    let id = queue_with(before);
    let cap = if flags & MSG_NOERROR != 0 { 5 } else { 8192 };
    let result = crash(Process::new(), move |c| {
        receive(c, id, cap, kind, flags | IPC_NOWAIT)
    });
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
    let result = crash(Process::new(), move |c| {
        receive(c, id, 8192, 1, MSG_COPY | IPC_NOWAIT)
    });
    assert!(result.is_none_or(|r| r == Ok(nth(1, LONG))));
    check(id, &[nth(0, 10), nth(1, LONG)]);
}

fn receives_behind_the_dead() {
    let id = queue_with(&[10, 20, LONG]);
    dies_after(2, move |c| {
        let _ = receive(c, id, 100, 0, 0);
    });
    crash(Process::new(), move |c| receive(c, id, 100, 0, IPC_NOWAIT));
    let left = take_all(id);
    assert!(
        left == [nth(1, 20), nth(2, LONG)] || left == [nth(2, LONG)],
        "{:?}",
        brief(&left)
    );
    works(id);
}

/// A queue that is full, and how many messages are in it.
fn full() -> (i32, usize) {
    let p = Process::new();
    let id = p.call(queue);
    let n = p.call(move |c| {
        (0..)
            .take_while(|i| send(c, id, 1, &text(*i, 4000), IPC_NOWAIT).is_ok())
            .count()
    });
    assert!(n > 2);
    (id, n)
}

type Sent = Task<Result<(), Errno>>;

fn waiting_sender(id: i32, n: u32, len: usize) -> Sent {
    let task = Process::new().begin(move |c| send(c, id, 60, &text(n, len), 0));
    world().rest();
    assert!(task.sleeps(), "it waits for room");
    task
}

type Received = Task<Result<(i64, Vec<u8>), Errno>>;

fn waiting_receiver(id: i32, cap: usize, kind: i64) -> (&'static Process, Received) {
    let p = Process::new();
    let task = p.begin(move |c| receive(c, id, cap, kind, 0));
    world().rest();
    assert!(task.sleeps(), "it waits for a message");
    (p, task)
}

fn wakes_senders() {
    let (id, n) = full();
    let (one, other) = (waiting_sender(id, 1, 3000), waiting_sender(id, 2, 3000));
    crash(Process::new(), move |c| receive(c, id, 8192, 0, IPC_NOWAIT));
    let p = Process::new();
    let mut all: Vec<_> = p.call(move |c| (1..n).map(|_| receive(c, id, 8192, 1, 0)).collect());
    let last = p.call(move |c| receive(c, id, 8192, 1, IPC_NOWAIT));
    all.extend(last.is_ok().then_some(last));
    assert_eq!((one.wait(), other.wait()), (Ok(()), Ok(())));
    let mut left = take_all(id);
    left.sort();
    let mut wanted = [(60, text(1, 3000)), (60, text(2, 3000))];
    wanted.sort();
    assert!(left == wanted, "{:?}", brief(&left));
    works(id);
}

fn pass(nanoseconds: u64) {
    let until = world().now() + nanoseconds;
    world().run(|| world().now() > until);
}

fn hands_over(kind: i64, cap: usize, len: usize) {
    let id = Process::new().call(queue);
    let (_, task) = waiting_receiver(id, cap, kind);
    let result = crash(Process::new(), move |c| send(c, id, 5, &text(5, len), 0));
    pass(500_000_000);
    if !task.is_over() {
        assert_eq!((result, count(id)), (None, (0, 0)));
        Process::new()
            .call(move |c| send(c, id, 5, &text(5, len), 0))
            .expect("sent");
    }
    assert!(task.wait() == Ok((5, text(5, len))));
    check(id, &[]);
}

fn hands_to_the_second() {
    let id = Process::new().call(queue);
    let (_, small) = waiting_receiver(id, 3, 0);
    let (_, large) = waiting_receiver(id, 8192, 0);
    crash(Process::new(), move |c| send(c, id, 5, &text(5, 20), 0));
    pass(500_000_000);
    if !large.is_over() {
        Process::new()
            .call(move |c| send(c, id, 5, &text(5, 20), 0))
            .expect("sent");
    }
    assert_eq!(small.wait(), Err(Errno::E2BIG));
    assert!(large.wait() == Ok((5, text(5, 20))));
    check(id, &[]);
}

fn hands_to_the_dead() {
    let id = Process::new().call(queue);
    let (dead, _) = waiting_receiver(id, 8192, 0);
    let (_, lives) = waiting_receiver(id, 8192, 0);
    dead.kill();
    crash(Process::new(), move |c| send(c, id, 5, &text(5, 20), 0));
    pass(500_000_000);
    if !lives.is_over() {
        assert_eq!(count(id), (0, 0));
        Process::new()
            .call(move |c| send(c, id, 5, &text(5, 20), 0))
            .expect("sent");
    }
    assert!(lives.wait() == Ok((5, text(5, 20))));
    check(id, &[]);
}

fn passes_by() {
    let id = Process::new().call(queue);
    let (_, task) = waiting_receiver(id, 8192, 9);
    crash(Process::new(), move |c| send(c, id, 5, &text(5, 20), 0));
    pass(500_000_000);
    let n = count(id).0;
    assert!(n <= 1 && !task.is_over());
    Process::new()
        .call(move |c| send(c, id, 9, &text(9, 20), 0))
        .expect("sent");
    assert!(task.wait() == Ok((9, text(9, 20))));
    assert_eq!(count(id).0, n);
    let left = take_all(id);
    assert!(left.iter().all(|m| *m == (5, text(5, 20))) && left.len() == n as usize);
    works(id);
}

fn receiver_waits() {
    let id = queue_with(&[10]);
    crash(Process::new(), move |c| receive(c, id, 8192, 9, 0));
    Process::new()
        .call(move |c| send(c, id, 9, &text(9, 20), 0))
        .expect("sent");
    check(id, &[nth(0, 10), (9, text(9, 20))]);
}

/// Does something after a moment.
fn soon<T: 'static>(body: impl FnOnce(&C) -> T + 'static) -> Task<T> {
    Process::new().begin(move |c| {
        c.kernel
            .wait(&AtomicU32::new(0), 0, Some(Duration::from_millis(3)));
        body(c)
    })
}

fn is_handed() {
    let id = queue_with(&[10]);
    let helper = soon(move |c| send(c, id, 9, &text(9, LONG), 0));
    let result = crash(Process::new(), move |c| receive(c, id, 8192, 9, 0));
    assert_eq!(helper.wait(), Ok(()));
    assert!(result.is_none_or(|r| r == Ok((9, text(9, LONG)))));
    // Who was given it may take it along; who was not leaves it.
    let left = take_all(id);
    assert!(
        left == [nth(0, 10)] || left == [nth(0, 10), (9, text(9, LONG))],
        "{:?}",
        brief(&left)
    );
    works(id);
}

fn sender_waits() {
    let (id, n) = full();
    crash(Process::new(), move |c| send(c, id, 60, &text(60, 3000), 0));
    let left = take_all(id);
    assert_eq!(left.len(), n);
    works(id);
}

fn is_woken() {
    let (id, n) = full();
    let helper = soon(move |c| receive(c, id, 8192, 0, 0));
    crash(Process::new(), move |c| send(c, id, 60, &text(60, 3000), 0));
    assert!(helper.wait() == Ok((1, text(0, 4000))));
    let left = take_all(id);
    assert!(left.len() == n - 1 || (left.len() == n && left[n - 1] == (60, text(60, 3000))));
    works(id);
}

fn set() {
    let (id, _) = full();
    let sender = waiting_sender(id, 1, 3000);
    let (_, receiver) = waiting_receiver(id, 8192, 9);
    crash(Process::new(), move |c| {
        msg::set(c, id, 1000, 1000, 0o666, 60_000)
    });
    pass(500_000_000);
    if !sender.is_over() {
        Process::new()
            .call(move |c| msg::set(c, id, 1000, 1000, 0o666, 60_000))
            .expect("set");
    }
    assert_eq!(sender.wait(), Ok(()));
    assert!(!receiver.is_over());
    Process::new()
        .call(move |c| send(c, id, 9, &text(9, 20), 0))
        .expect("sent");
    assert!(receiver.wait().is_ok());
    works(id);
}

fn stat() {
    let id = queue_with(&[10, 20, LONG]);
    dies_after(2, move |c| {
        let _ = send(c, id, 40, &text(40, LONG), 0);
    });
    dies_after(2, move |c| {
        let _ = receive(c, id, 100, 0, 0);
    });
    crash(Process::new(), move |c| msg::stat(c, id));
    check(id, &[nth(1, 20), nth(2, LONG)]);
}

fn check_removed(id: i32) {
    let p = Process::new();
    let _ = p.call(move |c| msg::remove(c, id));
    mend();
    assert_eq!(p.call(|c| msg::info(c).1), msg::MsgInfo::default());
    let other = p.call(queue);
    assert_ne!(id, other);
    works(other);
    assert_eq!(
        p.call(move |c| msg::stat(c, id).map(drop)),
        Err(Errno::EINVAL)
    );
}

fn remove(lengths: &'static [usize]) {
    let id = queue_with(lengths);
    crash(Process::new(), move |c| msg::remove(c, id));
    check_removed(id);
}

fn remove_with_receivers() {
    let id = queue_with(&[10]);
    let (_, one) = waiting_receiver(id, 8192, 9);
    let (dead, _) = waiting_receiver(id, 8192, 9);
    dead.kill();
    crash(Process::new(), move |c| msg::remove(c, id));
    let _ = Process::new().call(move |c| msg::remove(c, id));
    assert_eq!(one.wait(), Err(Errno::EIDRM));
    check_removed(id);
}

fn remove_with_senders() {
    let (id, _) = full();
    let one = waiting_sender(id, 1, 3000);
    crash(Process::new(), move |c| msg::remove(c, id));
    let _ = Process::new().call(move |c| msg::remove(c, id));
    assert_eq!(one.wait(), Err(Errno::EIDRM));
    check_removed(id);
}

/// A queue that leaves a ring in which somebody is stopped. Who is killed: 0 who leaves it; 1 who collects it after the stopped one has
/// gone on; 2 the same after that one has died; 3 who removes the queue.
fn parks(sender: bool, which: u32) {
    let id = queue_with(&[10, 20]);
    let p = Process::new();
    let task = if sender {
        stopped(p, 2, move |c| {
            send(c, id, 40, &text(40, LONG), 0).map(|()| (0, Vec::new()))
        })
    } else {
        stopped(p, 2, move |c| receive(c, id, 8192, 0, 0))
    };
    assert!(!task.is_over());
    let leave = move |c: &C| send(c, id, 50, &text(50, HUGE), 0);
    let began = if which == 0 {
        crash(Process::new(), leave)
    } else {
        Some(Process::new().call(leave))
    };
    match which {
        0 | 1 => task.go_on(),
        2 => p.kill(),
        _ => {}
    }
    world().rest();
    if which < 2 {
        assert!(task.is_over(), "nobody holds it up");
    }
    if which == 3 {
        crash(Process::new(), move |c| msg::remove(c, id));
        p.kill();
        return check_removed(id);
    }
    if which > 0 {
        crash(Process::new(), move |c| msg::stat(c, id));
    }
    let mut wanted = vec![nth(0, 10), nth(1, 20)];
    if !sender {
        wanted.remove(0);
    }
    if sender && which != 2 {
        wanted.push((40, text(40, LONG)));
    }
    let n = count(id).0 as usize;
    if n > wanted.len() {
        wanted.push((50, text(50, HUGE)));
    } else {
        assert!(began.is_none());
    }
    let found = take_all(id);
    assert!(
        found == wanted,
        "{:?}, not {:?}",
        brief(&found),
        brief(&wanted)
    );
    works(id);
}

/// Who was stopped in a ring that the queue has left goes on, and is killed on its way.
fn goes_on() {
    let id = queue_with(&[10, 20]);
    // As far as where it has its cells; from there on it is another's task to die.
    let p = Process::new();
    let task = crate::image::stopped_then_crash(
        p,
        2,
        move |c| send(c, id, 40, &text(40, LONG), 0),
        move || {
            Process::new()
                .call(move |c| send(c, id, 50, &text(50, HUGE), 0))
                .expect("sent");
        },
    );
    let found = take_all(id);
    let mut wanted = vec![
        nth(0, 10),
        nth(1, 20),
        (40, text(40, LONG)),
        (50, text(50, HUGE)),
    ];
    if found.len() < 4 {
        assert!(task.is_none());
        wanted.remove(2);
    }
    assert!(found == wanted, "{:?}", brief(&found));
    works(id);
}

fn exit() {
    let id = queue_with(&[10]);
    let p = Process::new();
    p.call(move |c| receive(c, id, 100, 0, 0))
        .expect("received");
    crash(p, |c| {
        if leave(c) {
            c.pool.free_process(c.me);
        }
    });
    check(id, &[]);
}
