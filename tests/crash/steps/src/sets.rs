//! Semaphore sets.

use crate::calls::*;
use crate::image::crash;
use crate::world::{world, Process, Task};
use crate::Scenario;
use std::time::Duration;
use vshmem_ipc::sem::{self, Sembuf};
use vshmem_ipc::{leave, Errno};

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    ("semget", 9, || only(3)),
    ("semget of many semaphores", 9, || only(400)),
    ("semget that takes pages", 9, get_grown),
    ("semop, one P", 3, || plain([op(0, -1)], [4, 7])),
    ("semop, one V", 3, || plain([op(0, 1)], [6, 7])),
    ("semop, several on one semaphore", 3, || plain([op(0, -3), op(0, 1)], [3, 7])),
    ("semop, wait for zero after a P", 3, || plain([op(0, -5), op(0, 0)], [0, 7])),
    ("semop on two semaphores", 3, || plain([op(0, -1), op(1, 2)], [4, 9])),
    ("semop on many", 3, many),
    ("semop with SEM_UNDO", 3, || with_undo([undone(0, -1)])),
    ("semop with SEM_UNDO on two", 3, || with_undo([undone(0, -1), undone(1, 3)])),
    ("semop with SEM_UNDO beside another's", 5, beside),
    ("semop with SEM_UNDO in a record", 5, in_record),
    ("semop that empties its record", 5, empties_record),
    ("V that serves one", 5, || serves([op(0, -1)], [op(0, 1)])),
    ("V that serves several", 5, serves_several),
    ("V that serves one who leaves at once", 5, serves_hasty),
    ("V that serves one with SEM_UNDO", 5, || serves([undone(0, -1)], [op(0, 1)])),
    ("V that serves one who waits for two", 5, || serves([op(0, -1), op(1, -1)], [op(0, 1), op(1, 1)])),
    ("V that serves one with many operations", 5, serves_many),
    ("P that serves one who waits for zero", 5, serves_zero),
    ("V that serves a dead one", 5, serves_the_dead),
    ("P that waits", 5, || waits(vec![op(0, -1)], None)),
    ("P with SEM_UNDO that waits", 5, || waits(vec![undone(0, -1), undone(1, -1)], None)),
    ("many operations that wait", 5, || waits((0..25).map(|_| op(0, -1)).collect(), None)),
    ("P whose time is up", 5, || waits(vec![op(0, -1)], Some(Duration::from_millis(20)))),
    ("many operations whose time is up", 5, || waits(vec![op(0, -1); 25], Some(Duration::from_millis(20)))),
    ("P that is served", 5, || is_served(vec![op(0, -1)])),
    ("P with SEM_UNDO that is served", 5, || is_served(vec![undone(0, -1)])),
    ("many operations that are served", 5, || is_served([vec![op(0, 0); 24], vec![op(0, -1)]].concat())),
    ("SETVAL", 5, setval),
    ("SETALL", 5, setall),
    ("GETALL", 0, getall),
    ("IPC_SET of a set", 0, set),
    ("IPC_RMID of a set", 5, remove),
    ("exit with adjustments", 5, exit),
];

fn new_set(values: &'static [u16]) -> i32 {
    Process::new().call(|c| set_of(c, values))
}

fn now(id: i32) -> Vec<u16> {
    Process::new().call(move |c| values(c, id))
}

/// Does something in a process that waits then.
fn waiter(id: i32, sops: Vec<Sembuf>) -> (&'static Process, Task<Result<(), Errno>>) {
    let p = Process::new();
    let task = p.begin(move |c| sem::op(c, id, &sops, None));
    world().rest();
    assert!(task.sleeps(), "it waits");
    (p, task)
}

fn pass(nanoseconds: u64) {
    let until = world().now() + nanoseconds;
    world().run(|| world().now() > until);
}

fn get(n: i32) {
    let result = crash(Process::new(), move |c| sem::get(c, KEY, n, CREATE));
    let p = Process::new();
    let id = p.call(move |c| sem::get(c, KEY, n, CREATE)).expect("it is there or can be made");
    assert!(result.is_none_or(|r| r == Ok(id)));
    assert_eq!(now(id), vec![0; n as usize]);
    p.call(move |c| sem::remove(c, id)).expect("it can be removed");
}

fn only(n: i32) {
    get(n);
    assert_eq!(Process::new().call(|c| sem::info(c).1), sem::SemInfo::default());
}

/// There is not enough free of what the small heap has.
fn get_grown() {
    let pool = world().pool();
    let p = Process::new();
    let mut others = Vec::new();
    while pool.geometry().small.free_blocks(pool) > 40 {
        others.push(p.call(|c| sem::get(c, 0, 100, CREATE)).expect("a set"));
    }
    let (first, _) = pool.pages_for_segments();
    get(400);
    assert!(pool.pages_for_segments().0 > first, "it has grown");
    for id in others {
        p.call(move |c| sem::remove(c, id)).expect("it can be removed");
    }
}

fn plain<const N: usize>(sops: [Sembuf; N], then: [u16; 2]) {
    let id = new_set(&[5, 7]);
    let result = crash(Process::new(), move |c| sem::op(c, id, &sops, None));
    let now = now(id);
    assert!(now == then || (result.is_none() && now == [5, 7]), "{now:?}");
}

fn many() {
    let id = new_set(&[1; 30]);
    let sops: Vec<_> = (0..30).map(|i| op(i, 1)).collect();
    let result = crash(Process::new(), move |c| sem::op(c, id, &sops, None));
    let now = now(id);
    assert!(now == [2; 30] || (result.is_none() && now == [1; 30]), "{now:?}");
}

fn with_undo<const N: usize>(sops: [Sembuf; N]) {
    let id = new_set(&[5, 7]);
    crash(Process::new(), move |c| sem::op(c, id, &sops, None));
    assert_eq!(now(id), [5, 7]);
}

fn beside() {
    let id = new_set(&[5, 7]);
    let other = Process::new();
    other.call(move |c| sem::op(c, id, &[undone(0, -2), undone(1, -2)], None)).expect("done");
    crash(Process::new(), move |c| sem::op(c, id, &[undone(0, -1), undone(1, 2)], None));
    assert_eq!(now(id), [3, 5]);
    other.kill();
    assert_eq!(now(id), [5, 7]);
}

fn in_record() {
    let id = new_set(&[5, 7, 9, 9, 9]);
    let (other, p) = (Process::new(), Process::new());
    other.call(move |c| sem::op(c, id, &[undone(0, -2)], None)).expect("done");
    p.call(move |c| sem::op(c, id, &[undone(0, -1), undone(4, -4)], None)).expect("done");
    crash(p, move |c| sem::op(c, id, &[undone(0, -1), undone(1, 2), undone(4, 1)], None));
    assert_eq!(now(id), [3, 7, 9, 9, 9]);
    other.kill();
    assert_eq!(now(id), [5, 7, 9, 9, 9]);
}

fn empties_record() {
    let id = new_set(&[5, 7]);
    let (other, p) = (Process::new(), Process::new());
    other.call(move |c| sem::op(c, id, &[undone(0, -2)], None)).expect("done");
    p.call(move |c| sem::op(c, id, &[undone(0, -1)], None)).expect("done");
    crash(p, move |c| sem::op(c, id, &[undone(0, 1)], None));
    assert_eq!(now(id), [3, 7]);
}

fn serves<const N: usize>(waits_for: [Sembuf; N], gives: [Sembuf; N]) {
    let id = new_set(&[0, 0]);
    let (p, task) = waiter(id, waits_for.to_vec());
    let result = crash(Process::new(), move |c| sem::op(c, id, &gives, None));
    pass(500_000_000);
    if !task.is_over() {
        assert_eq!((result, now(id)), (None, vec![0, 0]), "it waits for what was not given");
        Process::new().call(move |c| sem::op(c, id, &gives, None)).expect("done");
    }
    assert_eq!(task.wait(), Ok(()));
    assert_eq!(now(id), [0, 0]);
    p.kill();
    let undone: i32 = waits_for.iter().filter(|s| s.flg & sem::SEM_UNDO != 0).map(|s| -i32::from(s.op)).sum();
    assert_eq!(i32::from(now(id)[0]), undone);
}

/// Who is served by somebody who dies in the middle of that goes, and the record is another waiter's, at
/// another set, before anybody finishes what the dead one had begun.
fn serves_hasty() {
    let (id, other) = (new_set(&[0, 0]), new_set(&[0, 0]));
    let (_, task) = waiter(id, vec![op(0, -1)]);
    crash(Process::new(), move |c| sem::op(c, id, &[op(0, 1)], None));
    world().stir();
    let (_, next) = waiter(other, vec![op(1, -1)]);
    now(id);
    pass(500_000_000);
    assert!(!next.is_over(), "nobody has given it anything");
    let p = Process::new();
    assert_eq!(p.call(move |c| sem::getncnt(c, other, 1)), Ok(1));
    p.call(move |c| sem::op(c, other, &[op(1, 1)], None)).expect("done");
    assert_eq!(next.wait(), Ok(()));
    if !task.is_over() {
        p.call(move |c| sem::op(c, id, &[op(0, 1)], None)).expect("done");
    }
    assert_eq!(task.wait(), Ok(()));
    assert_eq!((now(id), now(other)), (vec![0, 0], vec![0, 0]));
}

fn serves_several() {
    let id = new_set(&[0, 0]);
    let all: Vec<_> = (0..3).map(|_| waiter(id, vec![op(0, -1)])).collect();
    let result = crash(Process::new(), move |c| sem::op(c, id, &[op(0, 3)], None));
    pass(500_000_000);
    let over = all.iter().filter(|(_, task)| task.is_over()).count();
    assert!(over == 0 || over == 3, "{over} of those who wait were served");
    if over == 0 {
        assert_eq!(result, None, "what was done is done");
        assert_eq!(now(id), [0, 0]);
        Process::new().call(move |c| sem::op(c, id, &[op(0, 3)], None)).expect("done");
    }
    for (_, task) in all {
        assert_eq!(task.wait(), Ok(()));
    }
    assert_eq!(now(id), [0, 0]);
}

fn serves_many() {
    let id = new_set(&[0, 0]);
    let (_, task) = waiter(id, vec![op(0, -1); 22]);
    let result = crash(Process::new(), move |c| sem::op(c, id, &[op(0, 22)], None));
    pass(500_000_000);
    if !task.is_over() {
        assert_eq!(result, None, "what was done is done");
        assert_eq!(now(id), [0, 0]);
        Process::new().call(move |c| sem::op(c, id, &[op(0, 22)], None)).expect("done");
    }
    assert_eq!(task.wait(), Ok(()));
    assert_eq!(now(id), [0, 0]);
}

fn serves_zero() {
    let id = new_set(&[1, 0]);
    let (_, zero) = waiter(id, vec![op(0, 0)]);
    let (_, both) = waiter(id, vec![op(0, 0), op(0, 2)]);
    let result = crash(Process::new(), move |c| sem::op(c, id, &[op(0, -1)], None));
    pass(500_000_000);
    if !zero.is_over() {
        assert_eq!(result, None, "what was done is done");
        assert_eq!(now(id), [1, 0]);
        Process::new().call(move |c| sem::op(c, id, &[op(0, -1)], None)).expect("done");
    }
    assert_eq!((zero.wait(), both.wait()), (Ok(()), Ok(())));
    assert_eq!(now(id), [2, 0]);
}

fn serves_the_dead() {
    // Who comes after a death cleans up after it first.
    let victim = Process::new();
    let id = new_set(&[0, 0]);
    let (dead, _) = waiter(id, vec![op(0, -1)]);
    let (_, lives) = waiter(id, vec![op(0, -1)]);
    dead.kill();
    let result = crash(victim, move |c| sem::op(c, id, &[op(0, 1)], None));
    pass(500_000_000);
    crate::mend::mend();
    pass(500_000_000);
    if !lives.is_over() {
        assert_eq!(result, None, "what was done is done");
        assert_eq!(now(id), [0, 0], "what the dead was given is not lost");
        Process::new().call(move |c| sem::op(c, id, &[op(0, 1)], None)).expect("done");
    }
    assert_eq!(lives.wait(), Ok(()));
    assert_eq!(now(id), [0, 0]);
}

/// The victim waits until it is killed, or until its time is up.
fn waits(sops: Vec<Sembuf>, timeout: Option<Duration>) {
    let id = new_set(&[0, 0]);
    let result = crash(Process::new(), move |c| sem::op(c, id, &sops, timeout));
    assert!(result.is_none() || result == Some(Err(Errno::EAGAIN)));
    let p = Process::new();
    p.call(move |c| sem::op(c, id, &[op(0, 1)], None)).expect("done");
    crate::mend::mend();
    // Others who wait find records.
    let (_, one) = waiter(id, vec![op(0, -2)]);
    let (_, two) = waiter(id, vec![op(0, -2)]);
    p.call(move |c| sem::op(c, id, &[op(0, 4)], None)).expect("done");
    assert_eq!((one.wait(), two.wait()), (Ok(()), Ok(())));
    assert_eq!(now(id), [1, 0], "the dead take nothing");
    assert_eq!(p.call(move |c| sem::getncnt(c, id, 0)), Ok(0));
}

/// The victim waits and is served by somebody else.
fn is_served(sops: Vec<Sembuf>) {
    let id = new_set(&[0, 0]);
    let undoes = sops.iter().any(|s| s.flg & sem::SEM_UNDO != 0);
    let other = Process::new();
    let helper = other.begin(move |c| {
        let nap = std::sync::atomic::AtomicU32::new(0);
        c.kernel.wait(&nap, 0, Some(Duration::from_millis(3)));
        sem::op(c, id, &[op(0, 1)], None)
    });
    let sops = if sops.len() > 20 {
        vec![op(0, -1); 1].into_iter().chain(vec![op(1, 0); 24]).collect()
    } else {
        sops
    };
    crash(Process::new(), move |c| sem::op(c, id, &sops, None));
    assert_eq!(helper.wait(), Ok(()));
    crate::mend::mend();
    let value = now(id)[0];
    assert!(value == 1 || (value == 0 && !undoes), "{value}");
}

fn setval() {
    let id = new_set(&[5, 7]);
    let (other, third) = (Process::new(), Process::new());
    other.call(move |c| sem::op(c, id, &[undone(0, -2), undone(1, -2)], None)).expect("done");
    third.call(move |c| sem::op(c, id, &[undone(0, -1), undone(1, -1)], None)).expect("done");
    let (_, task) = waiter(id, vec![op(0, -9)]);
    let result = crash(Process::new(), move |c| sem::setval(c, id, 0, 9));
    pass(500_000_000);
    let values = now(id);
    assert!(values == [0, 4] || (result.is_none() && values == [2, 4]), "{values:?}");
    assert_eq!(task.is_over(), values[0] == 0);
    other.kill();
    third.kill();
    let then = now(id);
    let right: [u16; 2] = if task.is_over() { [0, 7] } else { [5, 7] };
    assert_eq!(then, right);
}

fn setall() {
    let id = new_set(&[5, 7]);
    let (other, third) = (Process::new(), Process::new());
    other.call(move |c| sem::op(c, id, &[undone(0, -2), undone(1, -2)], None)).expect("done");
    third.call(move |c| sem::op(c, id, &[undone(0, -1), undone(1, -1)], None)).expect("done");
    let (_, task) = waiter(id, vec![op(0, -9)]);
    let result = crash(Process::new(), move |c| sem::setall(c, id, &mut |i| Some([9, 1][i])));
    pass(500_000_000);
    assert!(task.is_over() || result.is_none());
    other.kill();
    third.kill();
    let then = now(id);
    let right: [u16; 2] = if task.is_over() { [0, 1] } else { [5, 7] };
    assert_eq!(then, right);
}

fn getall() {
    let id = new_set(&[5, 7]);
    crash(Process::new(), move |c| values(c, id));
    assert_eq!(now(id), [5, 7]);
    Process::new().call(move |c| sem::op(c, id, &[op(0, -5)], None)).expect("done");
    assert_eq!(now(id), [0, 7]);
}

fn set() {
    let id = new_set(&[5]);
    crash(Process::new(), move |c| sem::set(c, id, 1000, 1000, 0o640));
    let mode = Process::new().call(move |c| sem::stat(c, id)).expect("it is there").perm.mode;
    assert!(mode == 0o666 || mode == 0o640);
}

fn remove() {
    // Who comes after a death cleans up after it first.
    let victim = Process::new();
    let id = Process::new().call(|c| sem::get(c, KEY, 2, CREATE)).expect("a set");
    Process::new().call(move |c| sem::setall(c, id, &mut |_| Some(5))).expect("values");
    let (other, third) = (Process::new(), Process::new());
    other.call(move |c| sem::op(c, id, &[undone(0, -2)], None)).expect("done");
    third.call(move |c| sem::op(c, id, &[undone(0, -1)], None)).expect("done");
    let (_, one) = waiter(id, vec![op(0, -9)]);
    let (_, many) = waiter(id, vec![op(1, -1); 25]);
    let (dead, _) = waiter(id, vec![op(1, -1); 25]);
    dead.kill();
    crash(victim, move |c| sem::remove(c, id));
    let _ = Process::new().call(move |c| sem::remove(c, id));
    assert_eq!((one.wait(), many.wait()), (Err(Errno::EIDRM), Err(Errno::EIDRM)));
    let p = Process::new();
    assert_eq!(p.call(|c| sem::get(c, KEY, 1, 0)), Err(Errno::ENOENT));
    assert_eq!(p.call(|c| sem::info(c).1), sem::SemInfo::default());
}

fn exit() {
    let id = new_set(&[5, 7]);
    let (other, p) = (Process::new(), Process::new());
    other.call(move |c| sem::op(c, id, &[undone(0, -2)], None)).expect("done");
    p.call(move |c| sem::op(c, id, &[undone(0, -1), undone(1, -5)], None)).expect("done");
    let (_, task) = waiter(id, vec![op(1, -6)]);
    crash(p, |c| {
        if leave(c) {
            c.pool.free_process(c.me);
        }
    });
    assert_eq!(task.wait(), Ok(()));
    assert_eq!(now(id), [3, 1]);
    other.kill();
    assert_eq!(now(id), [5, 1]);
}
