//! Death while others wait: sleepers look around, for nobody wakes them then.

use super::{at_once, op, semaphore, semop, value};
use crate::modelled::{act, LOOKS};
use std::vec::Vec;
use vshmem_pool::model::Scene;

/// A process that dies while it gives a token has given it or not; a waiter gets the other giver's.
#[test]
fn a_giver_that_dies_gives_once_or_not_at_all() {
    let (world, id) = semaphore(3, LOOKS, 0);
    let acts = [1, -1, 1].map(|by| act(move |c| semop(c, id, op(by)).unwrap()));
    Scene::new(world, acts.into(), move |world, done: Vec<Option<()>>| {
        assert!(done[1].is_some() && done[2].is_some());
        let left = value(world, id);
        assert!(left == 1 || left == 0 && done[0].is_none(), "{left} tokens");
    })
    .check_deaths(0, 1);
}

/// A process that dies while it waits takes no token from others, or takes it to the grave if it was served
/// before.
#[test]
fn a_waiter_that_dies_leaves_the_token_to_others() {
    let (world, id) = semaphore(2, LOOKS, 0);
    let acts = std::vec![
        act(move |c| i32::from(semop(c, id, op(-1)).is_ok())),
        act(move |c| {
            semop(c, id, op(1)).unwrap();
            let taken = i32::from(semop(c, id, at_once(-1)).is_ok());
            semop(c, id, op(1)).unwrap();
            taken
        }),
    ];
    Scene::new(world, acts, move |world, taken: Vec<Option<i32>>| {
        let left = 2 - value(world, id) - taken[1].unwrap();
        assert!(taken[0] == Some(left) || taken[0].is_none() && (0..=1).contains(&left), "{left} {taken:?}");
    })
    .check_deaths(0, 2);
}

#[test]
fn a_waiter_that_dies_is_passed_by() {
    let (world, id) = semaphore(3, LOOKS, 0);
    let acts = [-1, -1, 2].map(|by| act(move |c| semop(c, id, op(by)).unwrap()));
    Scene::new(world, acts.into(), move |world, done: Vec<Option<()>>| {
        assert!(done[1].is_some() && done[2].is_some());
        let left = value(world, id);
        assert!(left == 0 || left == 1 && done[0].is_none(), "{left} tokens");
    })
    .check_deaths(0, 0);
}
