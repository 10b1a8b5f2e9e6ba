//! The lock under a model checker: its owner changes two words, by a transaction, and bytes that nobody else
//! uses meanwhile.

use super::{Guard, SignalsBlocked};
use crate::layout::{POOL_LOG, POOL_LOG_ENTRIES};
use crate::log::Log;
use crate::model::{Act, Scene, World};
use crate::{atomic, Ctx};
use core::time::Duration;
use std::boxed::Box;
use std::vec::Vec;

/// Sleepers are woken, or sleep for ever.
const WOKEN: Duration = Duration::ZERO;
/// Sleeps end by themselves: death wakes nobody.
const LOOKS: Duration = Duration::MAX;

/// Offset of what the lock protects: two words that count, and as many bytes.
fn protected(c: &Ctx) -> u64 {
    c.pool.geometry().small.base
}

fn counts(world: &World) -> [u64; 3] {
    let at = protected(&world.observer());
    [0, 8, 64].map(|offset| world.word(at + offset).load(atomic::Ordering::Relaxed))
}

fn work(c: &Ctx) {
    let signals = SignalsBlocked::new(c.kernel);
    let log = || Log { at: POOL_LOG, entries: POOL_LOG_ENTRIES as u32 };
    let guard = Guard::lock(c, &signals, &c.pool.root().lock, log).unwrap();
    let at = protected(c);
    let mut txn = guard.txn();
    for word in [at, at + 8] {
        let old = txn.get(word).unwrap();
        txn.set(word, old + 1).unwrap();
    }
    txn.commit().unwrap();
    let (bytes, mut count) = (c.pool.mem().bytes(at + 64, 8).unwrap(), [0; 8]);
    // SAFETY: eight bytes here and there; that nobody else uses them is what is being tested.
    unsafe {
        atomic::copy_out(bytes, count.as_mut_ptr(), 8);
        count[0] += 1;
        atomic::copy_in(count.as_ptr(), bytes, 8);
    }
}

fn works(n: usize) -> Vec<Act<()>> {
    (0..n).map(|_| Box::new(work) as Act<()>).collect()
}

#[test]
fn excludes_and_loses_no_wake_up() {
    for (actors, preemptions) in [(2, 4), (3, 2)] {
        let after = move |world: &World, _| {
            assert_eq!(counts(world), [actors as u64; 3]);
            assert_eq!(world.pool().root().lock.load(atomic::Ordering::Relaxed), 0);
        };
        Scene::new(World::new(actors, WOKEN, || ()), works(actors), after).check(preemptions);
    }
}

/// Of two others exactly one takes the lock over, finishes or drops the dead owner's transaction, and both
/// get the lock.
#[test]
fn is_taken_over_from_the_dead_once() {
    let after = |world: &World, done: Vec<Option<()>>| {
        let all = done.iter().flatten().count() as u64;
        let [one, other, bytes] = counts(world);
        assert_eq!(one, other, "a transaction is half done");
        assert!([all, all + 1].contains(&one) && [all, all + 1].contains(&bytes));
    };
    Scene::new(World::new(3, LOOKS, || ()), works(3), after).check_deaths(0, 1);
}
