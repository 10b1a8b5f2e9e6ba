//! The policy by which a virtual processor is kept from idling: a pure function of its state, and of the part
//! of its core that others took in a step.
//!
//! Whether others want the core shows only while the processor wants it itself. So a rest ends with a trial:
//! a step in which the processor is kept busy. If others want the core, the next rest is twice as long.

/// The limits at which a processor stops, and its rests.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The part of the core that others take at the least when a processor stops, in percent.
    pub stop: f64,
    /// The part of the core that others take at the most in a calm step, in percent.
    pub calm: f64,
    /// Steps of the first rest.
    pub shortest: u32,
    /// Steps of the longest one.
    pub longest: u32,
    /// Calm steps after which the next rest is short again.
    pub forgive: u32,
}

impl Default for Settings {
    /// The settings for steps of a second. Steal is counted in hundredths of one, so 3 % are more than a
    /// chance.
    fn default() -> Settings {
        Settings { stop: 3.0, calm: 1.0, shortest: 5, longest: 300, forgive: 60 }
    }
}

/// The state of a processor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum State {
    /// It is kept busy, and was calm for so many steps.
    Spins {
        /// Steps since others wanted the core.
        calm: u32,
        /// Steps of the next rest.
        rest: u32,
    },
    /// It is left to idle.
    Rests {
        /// Steps until the next trial.
        left: u32,
        /// Steps of this rest.
        rest: u32,
    },
}

/// The reason for which a processor stops, or begins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reason {
    /// Others took this part of the core, in percent.
    Taken(f64),
    /// It can't be told what others took.
    Unseen,
    /// The rest is over.
    Trial,
}

impl State {
    /// The first state: a trial.
    pub fn new(settings: &Settings) -> State {
        State::Spins { calm: 0, rest: settings.shortest }
    }

    /// True if it is kept busy in the next step.
    pub fn spins(&self) -> bool {
        matches!(self, State::Spins { .. })
    }

    /// The state after a step in which others took a part of the core (in percent; `None`: it can't be told),
    /// and the reason, if it is another state than before.
    pub fn step(self, taken: Option<f64>, settings: &Settings) -> (State, Option<Reason>) {
        match self {
            State::Spins { calm, rest } => match taken {
                None => (rests(rest, settings), Some(Reason::Unseen)),
                Some(part) if part >= settings.stop => (rests(rest, settings), Some(Reason::Taken(part))),
                // Between the two limits nothing changes, and nothing is forgiven.
                Some(part) if part > settings.calm => (self, None),
                Some(_) => {
                    let calm = calm.saturating_add(1);
                    let rest = if calm >= settings.forgive { settings.shortest } else { rest };
                    (State::Spins { calm, rest }, None)
                }
            },
            // The processor's own work shows that others still want the core.
            State::Rests { rest, .. } if taken.is_some_and(|part| part > settings.calm) => {
                (State::Rests { left: rest, rest }, None)
            }
            State::Rests { left, rest } if left > 1 => (State::Rests { left: left - 1, rest }, None),
            State::Rests { rest, .. } => {
                let rest = rest.saturating_mul(2).min(settings.longest);
                (State::Spins { calm: 0, rest }, Some(Reason::Trial))
            }
        }
    }
}

fn rests(rest: u32, settings: &Settings) -> State {
    let rest = rest.clamp(settings.shortest, settings.longest);
    State::Rests { left: rest, rest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTINGS: Settings = Settings { stop: 3.0, calm: 1.0, shortest: 2, longest: 16, forgive: 10 };

    /// The states, step by step, where `taken` says of a step and of spinning what others take.
    fn play(steps: usize, mut taken: impl FnMut(usize, bool) -> Option<f64>) -> Vec<bool> {
        let mut state = State::new(&SETTINGS);
        let mut done = Vec::new();
        for step in 0..steps {
            done.push(state.spins());
            state = state.step(taken(step, state.spins()), &SETTINGS).0;
        }
        done
    }

    /// The lengths of the rests between trials of one step.
    fn rests_of(done: &[bool]) -> Vec<usize> {
        done.split(|spins| *spins).map(<[bool]>::len).filter(|length| *length > 0).collect()
    }

    #[test]
    fn a_core_of_its_own_is_kept_and_a_shared_one_is_left() {
        assert!(play(1000, |_, _| Some(0.0)).iter().all(|spins| *spins));
        // Others show only while it spins, as steal does where nothing else runs.
        let done = play(200, |_, spins| Some(if spins { 40.0 } else { 0.0 }));
        assert_eq!(rests_of(&done)[..5], [2, 4, 8, 16, 16]);
    }

    #[test]
    fn what_can_not_be_told_is_no_leave() {
        assert!(!play(2, |_, _| None)[1]);
        // At rest there is nothing to see: the trial comes all the same.
        let done = play(4, |step, _| (step == 0).then_some(40.0));
        assert_eq!(done, [true, false, false, true]);
    }

    #[test]
    fn a_rest_lasts_while_the_processors_own_work_is_held_up() {
        let done = play(60, |step, _| Some(if step < 50 { 2.0 + 9.0 * f64::from(step == 0) } else { 0.0 }));
        assert!(done[1..51].iter().all(|spins| !spins), "{done:?}");
        assert!(done[52..].iter().all(|spins| *spins), "{done:?}");
    }

    #[test]
    fn reasons_are_given_at_each_change() {
        let state = State::new(&SETTINGS);
        let (state, why) = state.step(Some(50.0), &SETTINGS);
        assert_eq!((state, why), (State::Rests { left: 2, rest: 2 }, Some(Reason::Taken(50.0))));
        let (state, why) = state.step(Some(0.0), &SETTINGS);
        assert_eq!((state, why), (State::Rests { left: 1, rest: 2 }, None));
        let (state, why) = state.step(Some(0.0), &SETTINGS);
        assert_eq!((state, why), (State::Spins { calm: 0, rest: 4 }, Some(Reason::Trial)));
        assert_eq!(state.step(None, &SETTINGS).1, Some(Reason::Unseen));
    }

    #[test]
    fn a_long_calm_is_forgiven() {
        let busy = |step: usize, spins: bool| {
            let taken = !(40..80).contains(&step) && spins;
            Some(if taken { 40.0 } else { 0.0 })
        };
        let done = play(90, busy);
        let first = done[80..].iter().position(|spins| !spins).unwrap();
        assert_eq!(done[80 + first..].iter().take_while(|spins| !**spins).count(), 2, "{done:?}");
    }

    fn parts() -> impl Strategy<Value = Option<f64>> {
        prop_oneof![4 => (0.0f64..6.0).prop_map(Some), 1 => (0.0f64..100.0).prop_map(Some), 1 => Just(None)]
    }

    proptest! {
        /// After any steps: a taken or unseen core is left in the next step, rests have their bounds, a
        /// change has a reason, and between the limits nothing changes.
        #[test]
        fn it_leaves_at_once_and_keeps_its_bounds(seen in proptest::collection::vec(parts(), 1..400)) {
            let mut state = State::new(&SETTINGS);
            for taken in seen {
                let (next, why) = state.step(taken, &SETTINGS);
                if taken.is_none_or(|part| part >= SETTINGS.stop) && state.spins() {
                    prop_assert!(!next.spins());
                }
                prop_assert_eq!(why.is_some(), next.spins() != state.spins());
                let between = taken.is_some_and(|part| part > SETTINGS.calm && part < SETTINGS.stop);
                prop_assert!(!between || next.spins() == state.spins());
                let (State::Spins { rest, .. } | State::Rests { rest, .. }) = next;
                prop_assert!((SETTINGS.shortest..=SETTINGS.longest).contains(&rest));
                state = next;
            }
        }

        /// Once nobody else wants the core, it is kept after the longest rest, and from then on.
        #[test]
        fn a_free_core_is_found(seen in proptest::collection::vec(parts(), 0..200)) {
            let mut state = seen.iter().fold(State::new(&SETTINGS), |it, taken| it.step(*taken, &SETTINGS).0);
            for _ in 0..SETTINGS.longest {
                state = state.step(Some(0.0), &SETTINGS).0;
            }
            for _ in 0..50 {
                prop_assert!(state.spins());
                state = state.step(Some(0.0), &SETTINGS).0;
            }
        }

        /// A neighbour that shares the core always loses little of it: the trials.
        #[test]
        fn a_shared_core_is_tried_rarely(steps in 200usize..2000, part in 3.0f64..100.0) {
            let done = play(steps, |_, spins| Some(if spins { part } else { 0.0 }));
            let trials = done.iter().filter(|spins| **spins).count();
            prop_assert!(trials <= 5 + steps / SETTINGS.longest as usize, "{} of {}", trials, steps);
        }
    }
}
