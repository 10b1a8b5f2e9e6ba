//! Tests of the budget: a question to the kernel costs what it takes.

use super::Ready;
use crate::atomic::Ordering::Relaxed;
use crate::budget::{Budget, ASK, CALL};

/// The number of questions of so many nanoseconds that a call may ask.
fn questions(nanoseconds: u64) -> u64 {
    let kernel = Ready::default();
    let budget = Budget::default();
    let ask = || {
        budget.ask(&kernel, ASK, || {
            kernel.clock.fetch_add(nanoseconds, Relaxed);
        })
    };
    let mut asked = 0;
    while ask().is_some() {
        asked += 1;
    }
    assert!(budget.is_spent());
    asked
}

#[test]
fn slow_questions_are_dear() {
    let quick = questions(0);
    assert_eq!(quick, (CALL - 1) / ASK);
    assert_eq!(questions(ASK * 10), quick, "the price is for those that take so long");
    // However slow they are, all that a call asks takes a third of a second.
    for nanoseconds in [10_000, 100_000, 1_000_000] {
        assert!((300_000_000..350_000_000).contains(&(questions(nanoseconds) * nanoseconds)));
    }
    // But who only lost the processor in a few of them goes on.
    assert!(questions(1_000_000_000) > 300);
}
