//! Which pools are not cleaned up any more: those in which that comes to no end, again and again.
//!
//! Cleaning up an honest pool costs a small part of what a turn may cost ([`vshmem_pool::budget`]), so a turn that costs all of it was led
//! astray by what a member has written. It harms nobody but the processor, so one such turn is forgiven. After some of them the pool has
//! a rest, and then a longer one.

use std::time::{Duration, Instant};

/// So many turns that were led astray, of the last 32, are too many.
const TOO_MANY: u32 = 5;
const FIRST_REST: Duration = Duration::from_secs(60);
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The pool has a rest of so long.
    Begins(Duration),
    /// It is cleaned up as before.
    Ends,
}

/// Whether a pool is cleaned up.
#[derive(Debug, Default)]
pub struct Quarantine {
    /// A bit for each of the last turns: was it led astray?
    turns: u32,
    /// How long the last rest was, if that is not long ago.
    rest: Duration,
    until: Option<Instant>,
}

impl Quarantine {
    /// Is it time for a turn? In quarantine, one is tried after each rest.
    pub fn admits(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// A turn is over. Was it led astray?
    pub fn note(&mut self, astray: bool, now: Instant) -> Option<News> {
        let tried = self.until.is_some();
        if tried && !astray {
            // The rest is forgotten when this bit is.
            (self.until, self.turns) = (None, 1);
            return Some(News::Ends);
        }
        self.turns = self.turns << 1 | u32::from(astray);
        if self.turns == 0 {
            self.rest = Duration::ZERO;
        }
        if !tried && self.turns.count_ones() < TOO_MANY {
            return None;
        }
        self.rest = (self.rest * 2).clamp(FIRST_REST, LONGEST_REST);
        self.until = Some(now + self.rest);
        (!tried).then_some(News::Begins(self.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(quarantine: &mut Quarantine, turns: &[bool], now: Instant) -> Vec<News> {
        let note = |astray: &bool| quarantine.note(*astray, now);
        turns.iter().filter_map(note).collect()
    }

    #[test]
    fn a_few_turns_are_forgiven() {
        let (now, mut quarantine) = (Instant::now(), Quarantine::default());
        for _ in 0..10 {
            assert_eq!(after(&mut quarantine, &[true; 4], now), []);
            assert_eq!(after(&mut quarantine, &[false; 32], now), []);
        }
        assert!(quarantine.admits(now));
    }

    #[test]
    fn rests_become_longer_and_are_said_once() {
        let (mut now, mut quarantine) = (Instant::now(), Quarantine::default());
        let begins = after(
            &mut quarantine,
            &[true, false, true, true, false, true, true],
            now,
        );
        assert_eq!(begins, [News::Begins(FIRST_REST)]);
        let mut rest = FIRST_REST;
        for _ in 0..10 {
            assert!(!quarantine.admits(now + rest - Duration::from_millis(1)));
            now += rest;
            assert!(quarantine.admits(now));
            assert_eq!(quarantine.note(true, now), None);
            rest = (rest * 2).min(LONGEST_REST);
        }
        assert!(!quarantine.admits(now + LONGEST_REST - Duration::from_millis(1)));
    }

    #[test]
    fn a_turn_that_goes_well_ends_it_but_the_last_rest_is_remembered_for_a_while() {
        let (now, mut quarantine) = (Instant::now(), Quarantine::default());
        after(&mut quarantine, &[true; 5], now);
        assert_eq!(quarantine.note(false, now + FIRST_REST), Some(News::Ends));
        assert!(quarantine.admits(now));
        let again = after(&mut quarantine, &[true; 5], now);
        assert_eq!(again, [News::Begins(FIRST_REST * 2)]);
        assert_eq!(quarantine.note(false, now), Some(News::Ends));
        assert_eq!(after(&mut quarantine, &[false; 32], now), []);
        let long_after = after(&mut quarantine, &[true; 5], now);
        assert_eq!(long_after, [News::Begins(FIRST_REST)]);
    }
}
