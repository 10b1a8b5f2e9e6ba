//! Memory for pages that a machine is about to touch: the host gives it, by its back end.

use super::Across;
use crate::spin;
use core::sync::atomic::{fence, Ordering::Acquire, Ordering::SeqCst};
use core::time::Duration;
use vshmem_pool::asks::{Answer, Question, AT_ONCE};
use vshmem_pool::layout::PAGE;

/// The number by which the host is rung.
const HOST: u16 = 0;
/// Nanoseconds in which a back end that lives answers.
const LONGEST: u64 = 3_000_000_000;
/// How long to wait for a slot that is free.
const MOMENT: Duration = Duration::from_millis(1);

/// How asking ended.
enum Asked {
    Given,
    Refused,
    /// There is no back end that could be asked.
    NoAnswer,
}

impl Across<'_> {
    /// Backs a range of the pool with memory, so that touching it can't fail; false if there is none. In a machine this asks the back end,
    /// and waits for it, for nanoseconds of `patience` at the most. Where none serves the pool, or it can't be rung from here, memory is had when it is touched, and nothing is done.
    pub fn reserve(&self, offset: u64, len: u64, patience: Option<u64>) -> bool {
        if !self.handle.reserve(offset, len) {
            return false;
        }
        if !self.handle.is_device() || len == 0 {
            return true;
        }
        // The range lies in the pool.
        let (mut page, end) = (offset / PAGE, (offset + len).div_ceil(PAGE));
        while page < end && self.can_ask() {
            let count = (end - page).min(AT_ONCE);
            match self.ask(page, count, patience.unwrap_or(LONGEST).min(LONGEST)) {
                Asked::Given => page += count,
                Asked::Refused => return false,
                Asked::NoAnswer => return true,
            }
        }
        true
    }

    /// Is there a back end that lives and gives memory, and can it be rung?
    fn can_ask(&self) -> bool {
        if !self.pool.gives() || self.handle.peer().is_none() {
            return false;
        }
        let beat = self.pool.last_beat().map(|(count, _)| count);
        let beats = |count| !self.pool.is_silent(count) && self.pulse.is_felt(count, spin::now());
        beat.is_some_and(beats)
    }

    fn ask(&self, first: u64, count: u64, patience: u64) -> Asked {
        let begun = spin::now();
        let is_over = || spin::now().saturating_sub(begun) > patience;
        loop {
            let Some(question) = self.pool.ask_for_memory(self.member, first, count) else {
                if is_over() {
                    return Asked::Refused;
                }
                let word = self.pool.answers();
                self.wait(word, word.load(Acquire), Some(MOMENT));
                continue;
            };
            // What is asked must be seen before the ring is.
            fence(SeqCst);
            if !self.handle.ring(HOST) {
                self.pool.withdraw(question);
                return Asked::NoAnswer;
            }
            match self.wait_for_answer(question, is_over) {
                Answer::Given => return Asked::Given,
                Answer::Refused => return Asked::Refused,
                Answer::Lost => {}
                Answer::None if self.pool.withdraw(question) => return self.given_up(),
                // Answered at the last moment.
                Answer::None => {}
            }
        }
    }

    /// The answer, or none if the back end is dead or it took too long.
    fn wait_for_answer(&self, question: Question, is_over: impl Fn() -> bool) -> Answer {
        let word = self.pool.answers();
        loop {
            let count = word.load(Acquire);
            let answer = self.pool.answer_to(question);
            if answer != Answer::None || is_over() {
                return answer;
            }
            if !self.can_ask() {
                return Answer::None;
            }
            self.wait(word, count, Some(MOMENT));
        }
    }

    /// There was no answer. If there was no beat, either, others need not wait for one.
    fn given_up(&self) -> Asked {
        let Some((count, _)) = self.pool.last_beat() else {
            return Asked::NoAnswer;
        };
        if self.pulse.is_felt(count, spin::now()) {
            return Asked::Refused;
        }
        self.pool.note_silence(count);
        Asked::NoAnswer
    }
}
