//! Message queues at which others wait.

use crate::calls::*;
use crate::image::crash;
use crate::queues::{brief, check, check_removed, count, nth, queue_with, take_all, works, LONG};
use crate::world::{world, Process, Task};
use crate::Scenario;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use vshmem_ipc::{msg, Errno, IPC_NOWAIT};

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    ("msgrcv that wakes senders", 5, wakes_senders),
    ("msgrcv that wakes a sender who leaves at once", 5, wakes_hasty),
    ("msgsnd to a waiting receiver", 5, || hands_over(0, 8192, 20)),
    ("msgsnd of a longer text to a waiting receiver", 5, || hands_over(-5, 8192, LONG)),
    ("msgsnd to receivers without room", 5, hands_to_the_second),
    ("msgsnd to a dead receiver", 5, hands_to_the_dead),
    ("msgsnd of a type that nobody waits for", 5, passes_by),
    ("msgrcv that waits", 5, receiver_waits),
    ("msgrcv that is handed a message", 3, is_handed),
    ("msgsnd that waits", 5, sender_waits),
    ("msgsnd that is woken", 3, is_woken),
    ("IPC_SET of a queue", 5, set),
    ("IPC_RMID of a queue where receivers wait", 5, remove_with_receivers),
    ("IPC_RMID of a queue where senders wait", 5, remove_with_senders),
];

/// A queue that is full, and how many messages are in it.
fn full() -> (i32, usize) {
    let p = Process::new();
    let id = p.call(queue);
    let n =
        p.call(move |c| (0..).take_while(|i| send(c, id, 1, &text(*i, 4000), IPC_NOWAIT).is_ok()).count());
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

/// As with a set: the record is another waiter's, at another queue, before what the dead one had begun is
/// finished.
fn wakes_hasty() {
    let ((id, _), (other, _)) = (full(), full());
    let sender = waiting_sender(id, 1, 3000);
    crash(Process::new(), move |c| receive(c, id, 8192, 0, IPC_NOWAIT));
    world().stir();
    let next = waiting_sender(other, 2, 3000);
    count(id);
    pass(500_000_000);
    assert!(!next.is_over(), "there is no room for it");
    for queue in [id, other] {
        Process::new().call(move |c| receive(c, queue, 8192, 0, IPC_NOWAIT)).expect("received");
    }
    assert_eq!((sender.wait(), next.wait()), (Ok(()), Ok(())));
    for queue in [id, other] {
        take_all(queue);
        works(queue);
    }
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
        Process::new().call(move |c| send(c, id, 5, &text(5, len), 0)).expect("sent");
    }
    assert!(task.wait() == Ok((5, text(5, len))));
    check(id, &[]);
}

fn hands_to_the_second() {
    let id = Process::new().call(queue);
    let (_, small) = waiting_receiver(id, 3, 0);
    let (_, large) = waiting_receiver(id, 8192, 0);
    let result = crash(Process::new(), move |c| send(c, id, 5, &text(5, 20), 0));
    pass(500_000_000);
    if !large.is_over() {
        assert_eq!(result, None, "what was done is done");
        Process::new().call(move |c| send(c, id, 5, &text(5, 20), 0)).expect("sent");
    }
    assert_eq!(small.wait(), Err(Errno::E2BIG));
    assert!(large.wait() == Ok((5, text(5, 20))));
    check(id, &[]);
}

fn hands_to_the_dead() {
    // Who comes after a death cleans up after it first.
    let victim = Process::new();
    let id = Process::new().call(queue);
    let (dead, _) = waiting_receiver(id, 8192, 0);
    let (_, lives) = waiting_receiver(id, 8192, 0);
    dead.kill();
    let result = crash(victim, move |c| send(c, id, 5, &text(5, 20), 0));
    pass(500_000_000);
    if !lives.is_over() {
        assert_eq!(result, None, "what was done is done");
        assert_eq!(count(id), (0, 0));
        Process::new().call(move |c| send(c, id, 5, &text(5, 20), 0)).expect("sent");
    }
    assert!(lives.wait() == Ok((5, text(5, 20))));
    check(id, &[]);
}

fn passes_by() {
    let id = Process::new().call(queue);
    let (_, task) = waiting_receiver(id, 8192, 9);
    let result = crash(Process::new(), move |c| send(c, id, 5, &text(5, 20), 0));
    pass(500_000_000);
    let n = count(id).0;
    assert!((n == 1 || result.is_none()) && n <= 1 && !task.is_over());
    Process::new().call(move |c| send(c, id, 9, &text(9, 20), 0)).expect("sent");
    assert!(task.wait() == Ok((9, text(9, 20))));
    assert_eq!(count(id).0, n);
    let left = take_all(id);
    assert!(left.iter().all(|m| *m == (5, text(5, 20))) && left.len() == n as usize);
    works(id);
}

fn receiver_waits() {
    let id = queue_with(&[10]);
    crash(Process::new(), move |c| receive(c, id, 8192, 9, 0));
    Process::new().call(move |c| send(c, id, 9, &text(9, 20), 0)).expect("sent");
    check(id, &[nth(0, 10), (9, text(9, 20))]);
}

/// Does something after a moment.
fn soon<T: 'static>(body: impl FnOnce(&C) -> T + 'static) -> Task<T> {
    Process::new().begin(move |c| {
        c.kernel.wait(&AtomicU32::new(0), 0, Some(Duration::from_millis(3)));
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
    assert!(left == [nth(0, 10)] || left == [nth(0, 10), (9, text(9, LONG))], "{:?}", brief(&left));
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
    let result = crash(Process::new(), move |c| msg::set(c, id, 1000, 1000, 0o666, 60_000));
    pass(500_000_000);
    if !sender.is_over() {
        assert_eq!(result, None, "what was done is done");
        Process::new().call(move |c| msg::set(c, id, 1000, 1000, 0o666, 60_000)).expect("set");
    }
    assert_eq!(sender.wait(), Ok(()));
    assert!(!receiver.is_over());
    Process::new().call(move |c| send(c, id, 9, &text(9, 20), 0)).expect("sent");
    assert!(receiver.wait().is_ok());
    works(id);
}

fn remove_with_receivers() {
    // Who comes after a death cleans up after it first.
    let victim = Process::new();
    let id = queue_with(&[10]);
    let (_, one) = waiting_receiver(id, 8192, 9);
    let (dead, _) = waiting_receiver(id, 8192, 9);
    dead.kill();
    crash(victim, move |c| msg::remove(c, id));
    world().stir();
    // The record of one who has gone already is another waiter's, at another queue.
    let (other, _) = full();
    let next = waiting_sender(other, 2, 3000);
    let _ = Process::new().call(move |c| msg::remove(c, id));
    pass(500_000_000);
    assert!(!next.is_over(), "there is no room for it");
    Process::new().call(move |c| msg::remove(c, other)).expect("removed");
    assert_eq!(next.wait(), Err(Errno::EIDRM));
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
