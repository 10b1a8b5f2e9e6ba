//! The two ends of a ring, and the lock beside them.

use super::Call::{self, *};
use super::{acts, agree, drain, queue};
use crate::modelled::LOOKS;
use vshmem_pool::model::Scene;

/// Processes do these things at the same time, after others were done.
fn play(preemptions: usize, cells: u32, before: &[Call], all: &'static [&'static [Call]]) {
    let (world, id, first) = queue(all.len(), LOOKS, cells, before);
    Scene::new(world, acts(id, all), move |world, outcomes| {
        let mut passed: std::vec::Vec<_> = outcomes.into_iter().flatten().collect();
        passed.push(drain(world, id));
        passed.push(super::Passed { sent: first.sent.clone(), got: first.got.clone() });
        agree(&passed, 0, 0);
    })
    .check(preemptions);
}

#[test]
fn two_senders_and_a_receiver() {
    play(2, 2, &[Send(1), Receive, Send(1)], &[&[Send(1)], &[Send(1)], &[Receive]]);
}

#[test]
fn two_senders_who_remember_what_is_free() {
    play(2, 2, &[Send(1); 2], &[&[Send(1)], &[Send(1)], &[Receive]]);
}

#[test]
fn a_sender_and_two_receivers() {
    play(2, 2, &[Send(1); 2], &[&[Receive], &[Receive], &[Send(1)]]);
}

#[test]
fn a_sender_and_a_receiver_over_laps() {
    play(3, 2, &[Send(1)], &[&[Send(1); 3], &[Receive; 3]]);
}

#[test]
fn long_and_short_messages() {
    play(2, 4, &[Send(2), Send(1)], &[&[Receive], &[Receive], &[Send(2)]]);
    play(2, 2, &[Send(1); 2], &[&[Receive], &[Send(2)], &[Receive]]);
}

/// The process that is about to name the last sender is held up for a lap, which is short.
#[test]
fn a_name_that_comes_a_lap_late_harms_no_message() {
    play(3, 1, &[Send(1), Receive], &[&[Send(1)], &[Send(1), Receive]]);
    play(2, 1, &[], &[&[Send(1)], &[Send(1), Receive, Send(1)]]);
}

#[test]
fn a_sender_is_left_alone_under_the_lock() {
    play(2, 2, &[Send(1)], &[&[Send(1)], &[Reap, Take]]);
    play(2, 2, &[Send(1)], &[&[Send(1)], &[SendSlowly]]);
}

#[test]
fn a_receiver_is_left_alone_under_the_lock() {
    play(2, 2, &[Send(1); 2], &[&[Receive], &[Take, SendSlowly]]);
    play(2, 2, &[Send(1); 2], &[&[Reap], &[Receive]]);
}
