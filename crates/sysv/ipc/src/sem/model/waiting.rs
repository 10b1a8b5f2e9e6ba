//! Waiting: nobody wakes by himself, so a lost wake-up is a deadlock, which the checker reports.

use super::{op, semaphore, semop, value};
use crate::modelled::{act, WOKEN};
use std::vec::Vec;
use vshmem_pool::atomic;
use vshmem_pool::model::Scene;

/// Each process does its operations one after the other; this is the value before and after.
fn play(preemptions: usize, before: i32, acts: &'static [&'static [i16]], after: i32) {
    let (world, id) = semaphore(acts.len(), WOKEN, before);
    let acts: Vec<_> = acts
        .iter()
        .map(|ops| act(move |c| ops.iter().for_each(|by| semop(c, id, op(*by)).unwrap())))
        .collect();
    Scene::new(world, acts, move |world, _| assert_eq!(value(world, id), after)).check(preemptions);
}

#[test]
fn a_taker_gets_a_token() {
    play(4, 0, &[&[-1], &[1]], 0);
}

#[test]
fn two_takers_get_two_tokens_given_one_by_one() {
    play(0, 0, &[&[-1], &[-1], &[1, 1]], 0);
    play(2, 0, &[&[-1, -1], &[1, 1]], 0);
}

#[test]
fn two_takers_get_two_tokens_given_at_once() {
    play(0, 0, &[&[-1], &[-1], &[2]], 0);
}

#[test]
fn two_givers_and_two_takers_leave_the_sum() {
    play(1, 1, &[&[-1], &[1], &[-1, 1]], 1);
    play(3, 1, &[&[-1, 1], &[-1, 1]], 1);
}

#[test]
fn who_waits_for_zero_sees_it() {
    play(3, 1, &[&[0], &[-1]], 0);
}

/// A semaphore of value 1 is a mutex: what it protects is never used by two at once.
#[test]
fn it_excludes() {
    let (world, id) = semaphore(2, WOKEN, 1);
    let at = world.pool().mem().bytes((world.memory().len() - 64) as u64, 8);
    assert!(at.is_none(), "only segments' pages lie there");
    let at = world.pool().mem().range((world.memory().len() - 64) as u64, 8).unwrap() as usize;
    let work = move |c: &crate::Ctx| {
        semop(c, id, op(-1)).unwrap();
        // SAFETY: eight bytes that nobody else uses, which is what is being tested.
        unsafe { atomic::copy_in([1; 8].as_ptr(), core::ptr::with_exposed_provenance_mut(at), 8) };
        semop(c, id, op(1)).unwrap();
    };
    let acts = std::vec![act(work), act(work)];
    Scene::new(world, acts, move |world, _| assert_eq!(value(world, id), 1)).check(3);
}
