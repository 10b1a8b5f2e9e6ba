//! Tests of retired rings: others go on beside those who are in the middle of a message, and lose nothing
//! when these go on or die.

use super::super::{receive, remove, send};
use super::*;
use crate::testing::World;
use crate::tests::death::{at_every_call, free_after_all};
use crate::tests::msg::{counts, queue, receive as take, send as put};
use crate::IPC_NOWAIT;
use std::boxed::Box;
use std::thread_local;
use std::vec::Vec;

const LONG: usize = 1000;

fn text(n: usize) -> Vec<u8> {
    let len = if n % 3 == 0 { n % 17 } else { LONG + n % 200 };
    (0..len).map(|i| (n * 31 + i) as u8).collect()
}

/// Sends messages and takes them again, `n` times, more than any ring has room for.
fn belt(c: &Ctx, id: i32, n: usize) {
    for i in 0..n {
        // Each is a call, with a budget of its own: a busy machine makes questions dear.
        c.budget.renew();
        put(c, id, 5, &text(i)).unwrap();
        let taken = take(c, id, 2 * LONG, 5, IPC_NOWAIT);
        assert!(taken == Ok((5, text(i))), "{i}: {:?}", taken.map(|_| ()));
    }
}

fn retired(c: &Ctx, id: i32) -> usize {
    rings(c, &Queue::find(c, id).unwrap()).count()
}

fn free(world: &World) -> u64 {
    crate::tests::death::free(world).0
}

/// A queue with a ring, and what is free without it.
fn begin(world: &World, c: &Ctx) -> (i32, u64) {
    // Marks that say how far the heap was used are set.
    for _ in 0..2 {
        let id = queue(c);
        belt(c, id, 300);
        remove(c, id).unwrap();
    }
    let before = free(world);
    let id = queue(c);
    belt(c, id, 10);
    (id, before)
}

fn ends_clean(world: &World, c: &Ctx, id: i32, before: u64) {
    assert_eq!(take(c, id, 2 * LONG, 0, IPC_NOWAIT), Err(Errno::ENOMSG));
    assert_eq!(counts(c, id), (0, 0));
    assert_eq!(retired(c, id), 0);
    belt(c, id, 100);
    remove(c, id).unwrap();
    assert_eq!(free(world), before);
}

#[test]
fn others_go_on_beside_senders_that_are_stopped() {
    let world = World::new(8 << 20);
    let (other, stopped) = (world.process(), [world.process(), world.process()]);
    let c = &other.ctx();
    let (id, before) = begin(&world, c);
    let ctx = stopped.each_ref().map(|p| p.ctx());
    let texts = [text(1), text(3)];
    let first = send::stopped_in_the_middle(&ctx[0], id, 1, &texts[0]);
    belt(c, id, 300);
    assert_eq!(retired(c, id), 1);
    let second = send::stopped_in_the_middle(&ctx[1], id, 2, &texts[1]);
    belt(c, id, 300);
    assert_eq!(retired(c, id), 2);
    put(c, id, 7, b"behind").unwrap();
    second();
    assert_eq!(take(c, id, 2 * LONG, 0, IPC_NOWAIT), Ok((2, texts[1].clone())));
    assert_eq!(take(c, id, 2 * LONG, 1, IPC_NOWAIT), Err(Errno::ENOMSG));
    assert_eq!(retired(c, id), 1);
    first();
    assert_eq!(take(c, id, 2 * LONG, 0, IPC_NOWAIT), Ok((1, texts[0].clone())));
    assert_eq!(take(c, id, 2 * LONG, 0, IPC_NOWAIT), Ok((7, b"behind".to_vec())));
    ends_clean(&world, c, id, before);
}

#[test]
fn others_go_on_beside_receivers_that_are_stopped() {
    let world = World::new(8 << 20);
    let (other, stopped) = (world.process(), world.process());
    let c = &other.ctx();
    let (id, before) = begin(&world, c);
    let ctx = stopped.ctx();
    for n in [1, 2] {
        put(c, id, 1, &text(n)).unwrap();
    }
    let first = receive::stopped_in_the_middle(&ctx, id);
    let second = receive::stopped_in_the_middle(&ctx, id);
    belt(c, id, 300);
    assert_eq!((retired(c, id), counts(c, id)), (1, (0, 0)));
    assert_eq!(second(), text(2));
    belt(c, id, 300);
    assert_eq!(retired(c, id), 1);
    assert_eq!(first(), text(1));
    ends_clean(&world, c, id, before);
}

/// A receiver in turn moves *done*, and leaves no mark. While a queue leaves it must.
#[test]
fn who_finishes_while_the_queue_leaves_says_so() {
    let world = World::new(8 << 20);
    let (other, stopped) = (world.process(), world.process());
    let c = &other.ctx();
    let (id, before) = begin(&world, c);
    let ctx = stopped.ctx();
    put(c, id, 1, &text(1)).unwrap();
    let (queue, head) = (Queue::find(c, id).unwrap(), Queue::find(c, id).unwrap().head());
    let ring = queue.ring(c).unwrap();
    let go_on = receive::stopped_in_the_middle(&ctx, id);
    done::hold(&queue);
    assert_eq!(go_on(), text(1));
    let mark = ring.mark(head.pos).unwrap();
    assert_eq!((mark.state, done::at(&queue)), (State::Consumed, head.pos));
    // The owner died; the next one goes on.
    belt(c, id, 300);
    ends_clean(&world, c, id, before);
}

fn begin_both<'a>(c: &'a Ctx, stopped: &'a Ctx, id: i32, sent: &'a [u8]) -> [Box<dyn FnOnce() + 'a>; 2] {
    put(c, id, 1, &text(1)).unwrap();
    let receiver = receive::stopped_in_the_middle(stopped, id);
    let sender = send::stopped_in_the_middle(stopped, id, 1, sent);
    belt(c, id, 300);
    assert_eq!(retired(c, id), 1);
    [Box::new(sender), Box::new(move || assert_eq!(receiver(), text(1)))]
}

#[test]
fn what_the_dead_held_up_is_given_back() {
    let world = World::new(8 << 20);
    let (other, dead) = (world.process(), world.process());
    let c = &other.ctx();
    let (id, before) = begin(&world, c);
    let ctx = dead.ctx();
    drop(begin_both(c, &ctx, id, b"never"));
    dead.kill();
    ends_clean(&world, c, id, before);
}

#[test]
fn who_finished_before_it_died_has_sent() {
    let world = World::new(8 << 20);
    let (other, dead) = (world.process(), world.process());
    let c = &other.ctx();
    let (id, before) = begin(&world, c);
    let ctx = dead.ctx();
    for go_on in begin_both(c, &ctx, id, &text(2)) {
        go_on();
    }
    dead.kill();
    assert_eq!(take(c, id, 2 * LONG, 0, IPC_NOWAIT), Ok((1, text(2))));
    ends_clean(&world, c, id, before);
}

#[test]
fn a_queue_is_removed_with_all_that_it_has_left() {
    let world = World::new(8 << 20);
    let (other, stopped) = (world.process(), world.process());
    let c = &other.ctx();
    for dies in [false, true] {
        let (id, before) = begin(&world, c);
        let ctx = stopped.ctx();
        let sent = text(2);
        let both = begin_both(c, &ctx, id, &sent);
        remove(c, id).unwrap();
        assert_eq!(put(c, id, 1, b""), Err(Errno::EINVAL));
        assert!(free(&world) < before, "the memory is given to others while somebody writes to it");
        if dies {
            stopped.kill();
        } else {
            both.into_iter().for_each(|go_on| go_on());
        }
        assert_eq!(free_after_all(&world).0, before, "dies: {dies}");
    }
}

#[test]
fn a_queue_leaves_only_so_many_rings() {
    let world = World::new(16 << 20);
    let (other, stopped) = (world.process(), world.process());
    let c = &other.ctx();
    let (id, before) = begin(&world, c);
    let ctx = stopped.ctx();
    let mut held = Vec::new();
    let has_space = || {
        let queue = Queue::find(c, id).unwrap();
        let (ring, tail) = (queue.ring(c).unwrap(), queue.tail().pos);
        done::look_for_space(&queue, &ring, tail, 1)
    };
    for _ in 0..MOST_RINGS {
        while !has_space() {
            belt(c, id, 1);
        }
        held.push(send::stopped_in_the_middle(&ctx, id, 1, b"late"));
        belt(c, id, 300);
    }
    assert_eq!(retired(c, id), MOST_RINGS);
    // Places that are kept hold up nobody, however often the ring is filled.
    belt(c, id, 3000);
    held.into_iter().rev().for_each(|go_on| go_on());
    for _ in 0..MOST_RINGS {
        assert_eq!(take(c, id, 2 * LONG, 1, 0), Ok((1, b"late".to_vec())));
    }
    ends_clean(&world, c, id, before);
}

/// Somebody is in the middle of a message and somebody else, who makes the queue leave, is killed at each of
/// its calls.
#[test]
fn who_leaves_a_ring_may_die() {
    type GoOn = Box<dyn FnOnce()>;
    thread_local! {
        static HELD: core::cell::RefCell<Vec<GoOn>> = const { core::cell::RefCell::new(Vec::new()) };
    }
    const SENT: usize = 12;
    let long = |n| text(3 * n + 1);
    at_every_call(
        |world| {
            let first = world.process();
            let (id, before) = begin(world, &first.ctx());
            let stopped: &'static _ = Box::leak(Box::new(world.process()));
            let c: &'static _ = Box::leak(Box::new(stopped.ctx()));
            let go_on = send::stopped_in_the_middle(c, id, 1, b"in the middle");
            HELD.set(Vec::from([Box::new(go_on) as GoOn]));
            (id, before)
        },
        move |c, (id, _)| {
            for n in 0..SENT {
                put(c, id, 2, &long(n)).unwrap();
            }
        },
        move |world, (id, before), finished| {
            let other = world.process();
            let c = &other.ctx();
            let mut came = 0;
            while let Ok(message) = take(c, id, 2 * LONG, 2, IPC_NOWAIT) {
                assert!(message.1 == long(came), "{came}");
                came += 1;
            }
            assert!(came == SENT || finished.is_none());
            assert!(finished.is_none() || retired(c, id) == 1);
            HELD.take().into_iter().for_each(|go_on| go_on());
            assert_eq!(take(c, id, 99, 1, IPC_NOWAIT), Ok((1, b"in the middle".to_vec())));
            ends_clean(world, c, id, before);
        },
    );
}
