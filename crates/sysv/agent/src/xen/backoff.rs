//! Exponential back-off before a failed action is repeated, or another domain's claim is believed again.

use std::time::{Duration, Instant};

/// A wait that is twice as long as the previous one. Another domain can cause any number of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    end: Instant,
    length: Duration,
}

impl Backoff {
    /// A back-off of this length, from now on.
    pub fn of(length: Duration) -> Backoff {
        Backoff { end: Instant::now() + length, length }
    }

    /// The next back-off, from now on. It is `shortest` if there was none, or if that ended more than
    /// `longest` ago.
    pub fn after(before: Option<Backoff>, shortest: Duration, longest: Duration) -> Backoff {
        let is_recent = |it: &Backoff| it.end.elapsed() <= longest;
        let length = before.filter(is_recent).map_or(shortest, |it| it.length * 2);
        Backoff::of(length.clamp(shortest, longest))
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.end <= Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST: Duration = Duration::from_secs(5);
    const LONGEST: Duration = Duration::from_secs(12);

    fn lengths(first: Option<Backoff>) -> Vec<u64> {
        let next = |before: &Option<Backoff>| Some(Some(Backoff::after(*before, SHORTEST, LONGEST)));
        let all = std::iter::successors(Some(first), next).skip(1).take(3);
        all.map(|backoff| backoff.map_or(0, |it| it.length.as_secs())).collect()
    }

    #[test]
    fn each_is_twice_as_long_as_the_one_before() {
        assert_eq!(lengths(None), [5, 10, 12]);
        assert_eq!(lengths(Some(Backoff::of(Duration::from_secs(2)))), [5, 10, 12]);
        assert!(!Backoff::of(SHORTEST).is_over());
        assert!(Backoff::of(Duration::ZERO).is_over());
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let long_ago = Backoff { end: Instant::now() - LONGEST - SHORTEST, length: LONGEST };
        assert_eq!(lengths(Some(long_ago)), [5, 10, 12]);
    }
}
