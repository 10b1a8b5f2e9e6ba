//! Requests under a model checker: requesters, a back end, and its throwing away what nobody fetches.
//!
//! What is given is a set of pages, which nobody takes away; a requester that was told that its pages were
//! given must find them in it. There is one slot. Sleeping and ringing are those of waiters, which
//! `vshmem_wait` models: here, a requester looks twice and gives up.

use super::*;
use crate::model::{Act, Scene, World};
use crate::Ctx;
use core::time::Duration;
use std::boxed::Box;
use std::vec::Vec;

fn slots(c: &Ctx) -> &'static [AtomicU64] {
    &c.pool.root().memory_requests[..1]
}

/// A bit for each page that has memory.
fn backed(c: &Ctx) -> &'static AtomicU64 {
    c.pool.mem().word(c.pool.geometry().small.base).unwrap()
}

/// Requests, and looks twice whether it was answered; what it may believe then is checked. True if it was
/// given memory.
fn request(c: &Ctx, page: u64) -> bool {
    let Some(request) = put(slots(c), 0, page, 1) else {
        return false;
    };
    for _ in 0..2 {
        match fetch(slots(c), request) {
            Answer::Pending => c.kernel.spinning(),
            Answer::Lost | Answer::Refused => return false,
            Answer::Given => {
                assert!(page > 0 && backed(c).load(SeqCst) & 1 << page != 0, "page {page}");
                return true;
            }
        }
    }
    withdraw(slots(c), request);
    false
}

/// There is memory for all pages but the first.
fn answer(c: &Ctx) {
    let give = |first: u64, _| {
        backed(c).fetch_or(u64::from(first > 0) << first, SeqCst);
        first > 0
    };
    serve(&slots(c)[0], give);
}

/// Throws an answer away, as if nobody had fetched it for long.
fn forget_at_once(c: &Ctx) {
    let word = slots(c)[0].load(SeqCst);
    forget(&slots(c)[0], &mut (word, UNFETCHED_PASSES));
}

fn world() -> World {
    World::new(3, Duration::ZERO, || ())
}

#[test]
fn who_is_told_that_it_has_memory_has_it() {
    let acts: Vec<Act<bool>> = std::vec![
        Box::new(|c| request(c, 1)),
        Box::new(|c| request(c, 2)),
        Box::new(|c| {
            answer(c);
            answer(c);
            false
        }),
    ];
    let after = |world: &World, _| {
        // Nothing is stuck: whatever is left is answered, and then somebody else can request.
        let c = &world.observer();
        answer(c);
        forget_at_once(c);
        assert_eq!(slots(c)[0].load(SeqCst) & STATE, FREE);
    };
    Scene::new(world(), acts, after).check(3);
}

#[test]
fn an_answer_that_is_thrown_away_is_nobodys() {
    let acts: Vec<Act<bool>> = std::vec![
        Box::new(|c| request(c, 0)),
        Box::new(|c| {
            answer(c);
            forget_at_once(c);
            let other = put(slots(c), 0, 2, 1);
            answer(c);
            other.is_none_or(|other| fetch(slots(c), other) == Answer::Given)
        }),
    ];
    let after = |_: &World, outcomes: Vec<Option<bool>>| {
        assert_eq!(outcomes, [Some(false), Some(true)], "an answer has come to somebody else");
    };
    Scene::new(world(), acts, after).check(5);
}
