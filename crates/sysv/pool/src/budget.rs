//! The budget of a call: what it may spend on looking at a pool.
//!
//! Whatever a member has written into a pool, a call comes to an end soon: each look at pool memory by a
//! number or a link that was read there costs some of the call's budget, and so does each question to the
//! kernel that such a look leads to. [`crate::Ctx`] has the only ways to look, so no walk can be forgotten,
//! and no walk inside of another one can cost the product of both.
//!
//! A budget that is spent stays spent. From then on nothing can be looked at, nobody is found to be dead and
//! no transaction commits ([`crate::log::Txn::commit`]): what was not done yet remains undone, and the call
//! fails with `EIDRM`.
//!
//! The unit is about ten nanoseconds, the time for a word in a line that is read in order.

use crate::Kernel;
use core::cell::Cell;

/// The units that a call may spend: about a third of a second. Walking through all of a pool with 10^6 IPC
/// objects of each kind, a set of 32,000 semaphores, or a queue of 10^6 messages costs a part of it.
pub const CALL: u64 = 1 << 25;
/// A look at a word somewhere in the pool: as a rule it misses all caches.
pub const LOOK: u64 = 8;
/// A look at the next record of a table that is gone through in order, of which the processor has most by
/// then.
pub const STEP: u64 = 2;
/// A question to the kernel.
pub const ASK: u64 = 96;
/// A question to the kernel that a file in `/proc` answers.
pub const SEARCH: u64 = 10 * ASK;
/// Nanoseconds in a unit.
const UNIT: u64 = 10;
/// Most that a question costs above its price: a millisecond.
const SLOWEST: u64 = 100_000;

/// The part of a call's budget that is left, and the time that the call has waited for locks.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Cell<u64>,
    whole: u64,
    waited: Cell<u64>,
}

impl Default for Budget {
    #[inline(always)]
    fn default() -> Budget {
        Budget::new(CALL)
    }
}

impl Budget {
    /// A budget of so many units, one at the least.
    #[inline(always)]
    pub const fn new(units: u64) -> Budget {
        Budget { left: Cell::new(units), whole: units, waited: Cell::new(0) }
    }

    /// Takes units away. False: there were not so many, and now there are none.
    #[inline]
    pub fn spend(&self, units: u64) -> bool {
        let left = self.left.get().saturating_sub(units);
        self.left.set(left);
        left > 0
    }

    /// Was more asked for than there was?
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    /// Pays for a question to the kernel and asks it; `None` if the budget is spent. One that takes longer
    /// than its price costs more, for members with the pool's file can make those about its locks slow; but
    /// not much more, for the caller may only have lost its processor meanwhile.
    #[inline]
    pub fn ask<T>(&self, kernel: &dyn Kernel, price: u64, question: impl FnOnce() -> T) -> Option<T> {
        if !self.spend(price) {
            return None;
        }
        let begun = kernel.monotonic();
        let answer = question();
        let took = kernel.monotonic().saturating_sub(begun) / UNIT;
        self.spend(took.saturating_sub(price).min(SLOWEST));
        Some(answer)
    }

    /// Begins anew, for another call.
    pub fn renew(&self) {
        self.refill();
        self.waited.set(0);
    }

    /// Begins anew after the call has slept for so many nanoseconds, as its caller wanted. As long as that,
    /// it may wait for locks again.
    pub fn rest(&self, slept: u64) {
        self.refill();
        self.waited.set(self.waited.get().saturating_sub(slept));
    }

    /// Begins anew for the next piece of a tool's work on the same pool: waits for locks go on being counted.
    pub fn refill(&self) {
        self.left.set(self.whole);
    }

    /// A part of what is left, for work that the call can do without: half. [`Budget::charge`] takes what was
    /// spent of it.
    pub fn half(&self) -> Budget {
        let half = Budget::new((self.left.get() / 2).max(1));
        half.waited.set(self.waited.get());
        half
    }

    /// Takes away what was spent of a part.
    pub fn charge(&self, part: &Budget) {
        self.spend(part.whole - part.left.get());
        self.waited.set(self.waited.get().max(part.waited.get()));
    }

    /// Units that are left.
    pub fn left(&self) -> u64 {
        self.left.get()
    }

    /// Nanoseconds that the call has waited for locks.
    pub fn waited(&self) -> u64 {
        self.waited.get()
    }

    /// Counts a wait for a lock.
    pub fn add_wait(&self, nanoseconds: u64) {
        self.waited.set(self.waited.get().saturating_add(nanoseconds));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_stays_spent() {
        let budget = Budget::new(10);
        assert!(budget.spend(9) && !budget.is_spent());
        assert!(!budget.spend(5) && budget.is_spent());
        assert!(!budget.spend(0) && budget.is_spent());
        budget.renew();
        assert!(!budget.is_spent() && budget.spend(9));
    }

    #[test]
    fn who_slept_may_wait_as_long_again() {
        let budget = Budget::new(10);
        budget.spend(10);
        budget.add_wait(7);
        budget.rest(3);
        assert!(!budget.is_spent());
        assert_eq!(budget.waited(), 4);
        budget.rest(5);
        assert_eq!(budget.waited(), 0);
    }

    #[test]
    fn a_part_costs_what_was_spent_of_it() {
        let budget = Budget::new(100);
        let half = budget.half();
        assert!(half.spend(49) && !half.spend(1));
        half.add_wait(7);
        budget.charge(&half);
        assert!(budget.spend(49) && !budget.spend(1));
        assert_eq!(budget.waited(), 7);
    }
}
