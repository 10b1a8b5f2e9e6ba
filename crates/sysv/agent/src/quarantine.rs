//! The quarantine of a pool in which the worker's passes run over budget: it is cleaned up rarely.
//!
//! Cleaning up an honest pool costs a small part of a pass's budget ([`vshmem_pool::budget`]), so a pass that
//! spends all of it was misled by a member's writes. That costs only processor time, so a few such
//! passes are tolerated. After that the pool has a rest, and each rest is longer than the one before.

use std::time::{Duration, Instant};

/// Passes over budget, of the last 32, after which a pool is quarantined.
const TOO_MANY: u32 = 5;
/// The first rest.
const FIRST_REST: Duration = Duration::from_secs(60);
/// The longest rest, to which rests grow.
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// A change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The quarantine begins, with a rest of this length.
    Begins(Duration),
    /// The quarantine is over.
    Ends,
}

/// The state of a pool's quarantine.
#[derive(Debug, Default)]
pub struct Quarantine {
    /// A bit for each of the last passes: did it run over budget?
    passes: u32,
    /// The length of the last rest, unless it is long ago.
    rest: Duration,
    until: Option<Instant>,
}

impl Quarantine {
    /// Whether it is time for a pass. In quarantine, one is tried after each rest.
    pub fn admits(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Records whether a pass ran over budget.
    pub fn record(&mut self, over_budget: bool, now: Instant) -> Option<Change> {
        let is_trial = self.until.is_some();
        if is_trial && !over_budget {
            // The rest is reset when this bit is shifted out.
            (self.until, self.passes) = (None, 1);
            return Some(Change::Ends);
        }
        self.passes = self.passes << 1 | u32::from(over_budget);
        if self.passes == 0 {
            self.rest = Duration::ZERO;
        }
        if !is_trial && self.passes.count_ones() < TOO_MANY {
            return None;
        }
        self.rest = (self.rest * 2).clamp(FIRST_REST, LONGEST_REST);
        self.until = Some(now + self.rest);
        (!is_trial).then_some(Change::Begins(self.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(quarantine: &mut Quarantine, passes: &[bool], now: Instant) -> Vec<Change> {
        let record = |over_budget: &bool| quarantine.record(*over_budget, now);
        passes.iter().filter_map(record).collect()
    }

    #[test]
    fn a_few_passes_over_budget_are_tolerated() {
        let (now, mut quarantine) = (Instant::now(), Quarantine::default());
        for _ in 0..10 {
            assert_eq!(after(&mut quarantine, &[true; 4], now), []);
            assert_eq!(after(&mut quarantine, &[false; 32], now), []);
        }
        assert!(quarantine.admits(now));
    }

    #[test]
    fn rests_become_longer_and_are_reported_once() {
        let (mut now, mut quarantine) = (Instant::now(), Quarantine::default());
        let begins = after(&mut quarantine, &[true, false, true, true, false, true, true], now);
        assert_eq!(begins, [Change::Begins(FIRST_REST)]);
        let mut rest = FIRST_REST;
        for _ in 0..10 {
            assert!(!quarantine.admits(now + rest - Duration::from_millis(1)));
            now += rest;
            assert!(quarantine.admits(now));
            assert_eq!(quarantine.record(true, now), None);
            rest = (rest * 2).min(LONGEST_REST);
        }
        assert!(!quarantine.admits(now + LONGEST_REST - Duration::from_millis(1)));
    }

    #[test]
    fn a_pass_within_budget_ends_it_but_the_last_rest_counts_for_a_while() {
        let (now, mut quarantine) = (Instant::now(), Quarantine::default());
        after(&mut quarantine, &[true; 5], now);
        assert_eq!(quarantine.record(false, now + FIRST_REST), Some(Change::Ends));
        assert!(quarantine.admits(now));
        let again = after(&mut quarantine, &[true; 5], now);
        assert_eq!(again, [Change::Begins(FIRST_REST * 2)]);
        assert_eq!(quarantine.record(false, now), Some(Change::Ends));
        assert_eq!(after(&mut quarantine, &[false; 32], now), []);
        let long_after = after(&mut quarantine, &[true; 5], now);
        assert_eq!(long_after, [Change::Begins(FIRST_REST)]);
    }
}
