//! A death in the middle of a message, before each change that its process makes.

use super::Call::{self, *};

/// The first process dies. What it was about to send may have come or not, one message that it was about to
/// receive may be lost.
fn play(preemptions: usize, cells: u32, before: &[Call], all: &'static [&'static [Call]]) {
    super::play(preemptions, cells, before, all, true);
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
