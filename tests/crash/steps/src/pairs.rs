//! Several calls at once, in an order that chance decides from store to store, and deaths that it decides,
//! too.

use crate::calls::*;
use crate::image::{fork, interleave, shared_counts, POOL};
use crate::mend::{finish, inspect_as, mend};
use crate::model::{explains, Answer, Call, End, State};
use crate::world::{make, world, Process, Task};
use core::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use vshmem_ipc::{msg, sem, shm, Errno, IPC_NOWAIT};
use vshmem_pool::Params;

/// What is there when a round begins.
#[derive(Clone, Copy)]
struct Things {
    set: i32,
    queue: i32,
    segment: i32,
}

/// Runs so many rounds, beginning with that seed.
pub fn run(rounds: u64, seed: u64) {
    let counts = shared_counts();
    fork(|| {
        make(POOL, &Params::default(), crate::image::before_store, crate::image::after_store);
        let things = set_up();
        let enough = counts.failed.load(SeqCst) + 3;
        for n in seed..seed + rounds {
            if !fork(|| round(things, n)) {
                counts.failed.fetch_add(1, SeqCst);
                eprintln!("pairs: round {n} failed; --pairs 1 --seed {n} runs it again");
            }
            counts.images.fetch_add(1, SeqCst);
            if counts.failed.load(SeqCst) >= enough {
                return;
            }
        }
    });
}

fn set_up() -> Things {
    let p = Process::new();
    p.call(|c| {
        let things = Things {
            set: set_of(c, &[5, 5, 0]),
            queue: queue(c),
            segment: shm::get(c, 0, 5000, CREATE).expect("a segment"),
        };
        for (kind, len) in BEFORE {
            send(c, things.queue, kind, &text(len as u32, len), 0).expect("sent");
        }
        things
    })
}

const BEFORE: [(i64, usize); 3] = [(1, 10), (2, 300), (1, 20)];

/// A call by chance.
fn draw(n: u64) -> Call {
    let w = world();
    let len = [8, 17 + n as usize, 300 + n as usize, 7000 + n as usize][w.draw(4) as usize];
    match w.draw(16) {
        0 => Call::Add([-1, 0, 0]),
        1 => Call::Add([-1, 2, 0]),
        2 => Call::Add([0, 0, 1]),
        3 => Call::Add([1, -1, 1]),
        4 | 5 => Call::Undone(-1),
        6 => Call::Set(9),
        7..=9 => Call::Send((1 + w.draw(3) as i64, len)),
        10 | 11 => Call::Receive(w.draw(4) as i64),
        12 => Call::Attach,
        13 => Call::Segment(5000),
        14 => Call::Semaphores(40),
        _ => Call::Look,
    }
}

/// After how many stores something happens to a process: often not many, or never.
fn fuse() -> u64 {
    let w = world();
    match w.draw(4) {
        0 => 0,
        1 => 1 + w.draw(8),
        2 => 1 + w.draw(40),
        _ => 1 + w.draw(250),
    }
}

type Under = (&'static Process, Task<Answer>);

fn round(things: Things, seed: u64) {
    // SAFETY: no handler is set, so it ends this process.
    unsafe { libc::alarm(60) };
    let w = world();
    w.leave_to_chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        w.draw(2);
    }
    let mut calls = Vec::new();
    let mut under: Vec<Under> = Vec::new();
    // Some wait before the others come.
    let waiting = [Call::Add([0, 0, -1]), Call::Await(3), Call::Add([0, -6, 0])];
    for call in waiting.into_iter().filter(|_| w.draw(3) == 0) {
        calls.push(call);
        let p = Process::new();
        under.push((p, p.start(move |p| perform(&p.context(), things, call))));
    }
    w.rest();
    for n in 0..2 + w.draw(2) {
        let call = draw(n);
        calls.push(call);
        let p = Process::new();
        p.set_fate(fuse(), fuse());
        under.push((p, p.start_stepped(move |p| perform(&p.context(), things, call))));
    }
    interleave(true);
    let end = w.now() + 400_000_000;
    w.run(|| w.now() > end);
    interleave(false);
    w.leave_to_chance(0);
    mend();
    w.run(|| w.now() > end + 1_500_000_000);
    let end_of = |(p, task): &Under| match task.result() {
        // Who died on its way out had returned; what it holds is taken back.
        _ if p.is_dead() => End::Died,
        Some(answer) => End::Returned(answer),
        None => End::Waits,
    };
    let ends: Vec<_> = under.iter().map(end_of).collect();
    for ((p, _), end) in under.iter().zip(&ends) {
        if matches!(end, End::Returned(_)) {
            inspect_as(p, "as one sees it who has returned");
        }
    }
    let before = State { values: [5, 5, 0], messages: BEFORE.to_vec(), attached: 0 };
    let seen = look(things);
    let right = explains(&before, &calls, &ends, &seen);
    assert!(right, "no order of {calls:?}, which ended as {ends:?}, comes to {seen:?}");
    finish();
}

fn look(things: Things) -> State {
    let p = Process::new();
    let values = p.call(move |c| values(c, things.set));
    let attached = p.call(move |c| attached(c, things.segment));
    let messages = p.call(move |c| {
        let (n, _) = counts(c, things.queue);
        let all = drain(c, things.queue);
        assert_eq!(n, all.len() as u64, "it counts its messages rightly");
        let whole = |(kind, found): (i64, Vec<u8>)| {
            assert!(found == text(found.len() as u32, found.len()), "a message is whole");
            (kind, found.len())
        };
        all.into_iter().map(whole).collect()
    });
    State { values: [0, 1, 2].map(|i| values[i].into()), messages, attached }
}

fn removed(error: Errno) -> Answer {
    assert_eq!(error, Errno::EIDRM);
    Answer::Removed
}

fn perform(c: &C, things: Things, call: Call) -> Answer {
    match call {
        Call::Add(by) => {
            let sops: Vec<_> = (0..3).filter(|i| by[*i] != 0).map(|i| op(i as u16, by[i])).collect();
            if let Err(error) = sem::op(c, things.set, &sops, None) {
                return removed(error);
            }
        }
        Call::Undone(by) => sem::op(c, things.set, &[undone(0, by)], None).expect("done"),
        Call::Set(value) => sem::setval(c, things.set, 0, value.into()).expect("set"),
        Call::Send((kind, len)) => {
            let text = text(len as u32, len);
            // Until there is room.
            while send(c, things.queue, kind, &text, IPC_NOWAIT).is_err() {
                let nap = core::sync::atomic::AtomicU32::new(0);
                c.kernel.wait(&nap, 0, Some(Duration::from_millis(1)));
            }
        }
        Call::Receive(kind) => match receive(c, things.queue, 8192, kind, IPC_NOWAIT) {
            Ok((kind, text)) => return Answer::Got((kind, text.len())),
            Err(_) => return Answer::Nothing,
        },
        Call::Await(kind) => {
            return match receive(c, things.queue, 8192, kind, 0) {
                Ok((kind, text)) => Answer::Got((kind, text.len())),
                Err(error) => removed(error),
            };
        }
        Call::Attach => drop(shm::attach(c, things.segment, 0).expect("attached")),
        Call::Segment(size) => {
            let id = shm::get(c, 0, size, CREATE).expect("a segment");
            shm::attach(c, id, 0).expect("attached");
            shm::remove(c, id).expect("removed");
            shm::detach(c, id);
        }
        Call::Semaphores(n) => {
            let id = sem::get(c, 0, n, CREATE).expect("a set");
            sem::op(c, id, &[op(0, 1), undone(1, 1)], None).expect("done");
            sem::remove(c, id).expect("removed");
        }
        Call::Look => {
            sem::stat(c, things.set).expect("a set");
            msg::stat(c, things.queue).expect("a queue");
            shm::stat(c, things.segment).expect("a segment");
        }
    }
    Answer::Done
}
