//! Leaving a ring while somebody is in the middle of a message there, who then goes on, or dies.

use super::Call::{self, *};
use super::{acts, agree, drain, queue};
use crate::modelled::LOOKS;
use vshmem_pool::model::Scene;

/// Processes do these things at the same time. The first `dies`, or not.
fn play(preemptions: usize, cells: u32, before: &[Call], all: &'static [&'static [Call]], dies: bool) {
    let (world, id, first) = queue(all.len(), LOOKS, cells, before);
    let scene = Scene::new(world, acts(id, all), move |world, outcomes| {
        let died = usize::from(outcomes[0].is_none());
        let sends = usize::from(all[0][0].sends());
        let mut passed: std::vec::Vec<_> = outcomes.into_iter().flatten().collect();
        passed.push(drain(world, id));
        passed.push(super::Passed { sent: first.sent.clone(), got: first.got.clone() });
        agree(&passed, died * (1 - sends), died * sends);
    });
    if dies {
        scene.check_deaths(0, preemptions);
    } else {
        scene.check(preemptions);
    }
}

#[test]
fn a_sender_that_goes_on_has_sent() {
    play(2, 1, &[], &[&[Send(1)], &[Leave, Take, Take]], false);
}

#[test]
fn a_sender_that_dies_has_sent_if_it_returned() {
    play(1, 1, &[], &[&[Send(1)], &[Leave, Take]], true);
    play(2, 1, &[], &[&[Send(1), Exit], &[Leave, Take]], false);
}

#[test]
fn a_receiver_that_goes_on_has_received() {
    play(2, 1, &[Send(1)], &[&[Receive], &[Leave, Take]], false);
}

#[test]
fn a_receiver_that_dies_takes_one_message_with_it() {
    play(1, 1, &[Send(1)], &[&[Receive], &[Leave, Take]], true);
}

#[test]
fn who_dies_while_it_leaves_loses_nothing() {
    play(0, 1, &[], &[&[Leave], &[Send(1), Take]], true);
}
