//! Waiting for a message or for room. Nobody looks around by himself, so a lost wake-up is a deadlock, which
//! the checker reports; only what is done again soon, because somebody has begun and not finished, is.

use super::Call::{self, *};
use super::{acts, agree, drain, queue};
use crate::modelled::act;
use crate::msg;
use core::time::Duration;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::model::Scene;

const SOON: Duration = Duration::from_millis(1);

/// Processes do these things at the same time, in a queue that has room for so many bytes.
fn play(preemptions: usize, room: u64, all: &'static [&'static [Call]]) {
    let (world, id, _) = queue(all.len(), SOON, 4, &[]);
    world.pool().msg(super::index(id)).unwrap().qbytes.store(room, Relaxed);
    Scene::new(world, acts(id, all), move |world, outcomes| {
        let mut passed: std::vec::Vec<_> = outcomes.into_iter().flatten().collect();
        passed.push(drain(world, id));
        agree(&passed, 0, 0);
    })
    .check(preemptions);
}

#[test]
fn a_receiver_gets_a_message() {
    play(3, 100, &[&[Await], &[Wait]]);
}

#[test]
fn two_receivers_get_two_messages() {
    play(0, 100, &[&[Await], &[Await], &[Wait, Wait]]);
    play(1, 100, &[&[Await, Await], &[Wait, Wait]]);
}

#[test]
fn a_sender_gets_room() {
    play(1, 8, &[&[Wait, Wait], &[Await]]);
}

#[test]
fn both_wait_for_each_other() {
    play(0, 8, &[&[Wait, Wait], &[Await, Await]]);
}

/// A receiver that waits in a queue is told when that is removed.
#[test]
fn a_removal_ends_the_wait() {
    let (world, id, _) = queue(2, SOON, 4, &[]);
    let waiter = act(move |c| super::receive_one(c, id, Await).is_none());
    let remover = act(move |c| msg::remove(c, id).is_ok());
    Scene::new(world, std::vec![waiter, remover], move |world, outcomes| {
        assert_eq!(outcomes, [Some(true), Some(true)]);
        crate::modelled::is_in_order(&world.observer());
    })
    .check(1);
}
