//! How long is waited before something is tried, or believed, again.

use std::time::{Duration, Instant};

/// A wait that is twice as long as the one before: another domain can make it necessary as often as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    end: Instant,
    length: Duration,
}

impl Pause {
    /// One of this length, from now on.
    pub fn of(length: Duration) -> Pause {
        Pause {
            end: Instant::now() + length,
            length,
        }
    }

    /// The next one, from now on: as long as `shortest` if there was none, or it ended so long ago that the longest one would be over.
    pub fn after(before: Option<Pause>, shortest: Duration, longest: Duration) -> Pause {
        let is_recent = |it: &Pause| it.end.elapsed() <= longest;
        let length = before
            .filter(is_recent)
            .map_or(shortest, |it| it.length * 2);
        Pause::of(length.clamp(shortest, longest))
    }

    /// Is it over?
    pub fn is_over(&self) -> bool {
        self.end <= Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST: Duration = Duration::from_secs(5);
    const LONGEST: Duration = Duration::from_secs(12);

    fn lengths(first: Option<Pause>) -> Vec<u64> {
        let next = |before: &Option<Pause>| Some(Some(Pause::after(*before, SHORTEST, LONGEST)));
        let all = std::iter::successors(Some(first), next).skip(1).take(3);
        all.map(|pause| pause.map_or(0, |it| it.length.as_secs()))
            .collect()
    }

    #[test]
    fn each_is_twice_as_long_as_the_one_before() {
        assert_eq!(lengths(None), [5, 10, 12]);
        assert_eq!(
            lengths(Some(Pause::of(Duration::from_secs(2)))),
            [5, 10, 12]
        );
        assert!(!Pause::of(SHORTEST).is_over());
        assert!(Pause::of(Duration::ZERO).is_over());
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let long_ago = Pause {
            end: Instant::now() - LONGEST - SHORTEST,
            length: LONGEST,
        };
        assert_eq!(lengths(Some(long_ago)), [5, 10, 12]);
    }
}
