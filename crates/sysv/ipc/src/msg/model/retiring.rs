//! Leaving a ring while somebody is in the middle of a message there, who then goes on, or dies.

use super::play;
use super::Call::*;

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
