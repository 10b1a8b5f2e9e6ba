//! A death in the middle of a message, before each change that its process makes.

use super::Call::{self, *};
use super::{acts, agree, drain, queue};
use crate::modelled::LOOKS;
use vshmem_pool::model::Scene;

/// The first process dies. What it was about to send may have come or not, one message that it was about to
/// receive may be lost.
fn play(preemptions: usize, cells: u32, before: &[Call], all: &'static [&'static [Call]]) {
    let (world, id, first) = queue(all.len(), LOOKS, cells, before);
    Scene::new(world, acts(id, all), move |world, outcomes| {
        let died = usize::from(outcomes[0].is_none());
        let sends = usize::from(all[0][0].sends());
        let mut passed: std::vec::Vec<_> = outcomes.into_iter().flatten().collect();
        passed.push(drain(world, id));
        passed.push(super::Passed { sent: first.sent.clone(), got: first.got.clone() });
        agree(&passed, died * (1 - sends), died * sends);
    })
    .check_deaths(0, preemptions);
}

#[test]
fn a_sender_beside_one_that_sends() {
    play(2, 2, &[], &[&[Send(1)], &[Send(1), Receive]]);
}

#[test]
fn a_receiver_beside_one_that_receives() {
    play(2, 2, &[Send(1); 2], &[&[Receive], &[Receive, Send(1)]]);
}

#[test]
fn a_sender_beside_a_reaper() {
    play(2, 2, &[Send(1)], &[&[Send(1)], &[Reap]]);
}

#[test]
fn a_receiver_beside_a_reaper() {
    play(1, 2, &[Send(1); 2], &[&[Receive], &[Receive, Reap]]);
}

#[test]
fn one_that_sends_under_the_lock() {
    play(1, 2, &[Send(1)], &[&[SendSlowly], &[Receive, Send(1)]]);
}

#[test]
fn one_that_receives_under_the_lock() {
    play(1, 2, &[Send(1); 2], &[&[Take], &[Receive, Send(1)]]);
}
