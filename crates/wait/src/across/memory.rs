//! Memory for pages that a machine is about to touch: the host gives it, by its back end.
//!
//! Every wait here has an end: an answer that is lost, to a pause or a member that writes what it likes, is asked for again a few times only.

#[cfg(test)]
mod tests;

use super::Across;
use crate::spin;
use core::sync::atomic::{
    fence, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst,
};
use core::time::Duration;
use vshmem_pool::asks::{Answer, Question, AT_ONCE};
use vshmem_pool::layout::PAGE;
use vshmem_pool::Pool;

/// The number by which the host is rung.
const HOST: u16 = 0;
/// Nanoseconds in which a back end that lives answers.
const LONGEST: u64 = 3_000_000_000;
/// A lost answer is asked for again so often, each time for as long as the first: who is paused for long loses one.
const AGAIN: u32 = 2;
/// How long to sleep between looks.
const MOMENT: Duration = Duration::from_millis(1);

/// How asking ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Given,
    Refused,
    /// There is no back end that could be asked.
    NoAnswer,
}

/// The way to the back end.
trait Host {
    /// Where it is asked.
    fn pool(&self) -> &Pool;
    /// Which member asks.
    fn member(&self) -> u16;
    /// Is there a back end that lives and gives memory, and can it be rung?
    fn can_ask(&self) -> bool;
    /// Rings it; false if that can't be done.
    fn ring(&self) -> bool;
    /// Has it been silent for so long that it is dead?
    fn is_silent(&self, beat: u64) -> bool;
    /// Nanoseconds of a clock.
    fn now(&self) -> u64;
    /// Sleeps while `word` is `seen`, for a moment.
    fn rest(&self, word: &AtomicU32, seen: u32);
}

impl Host for Across<'_> {
    fn pool(&self) -> &Pool {
        self.pool
    }
    fn member(&self) -> u16 {
        self.member
    }
    fn can_ask(&self) -> bool {
        if !self.pool.gives() || self.handle.peer().is_none() {
            return false;
        }
        let beat = self.pool.last_beat().map(|(count, _)| count);
        beat.is_some_and(|beat| !self.pool.is_silent(beat) && !self.is_silent(beat))
    }
    fn ring(&self) -> bool {
        self.handle.ring(HOST)
    }
    fn is_silent(&self, beat: u64) -> bool {
        !self.pulse.is_felt(beat, spin::now())
    }
    fn now(&self) -> u64 {
        spin::now()
    }
    fn rest(&self, word: &AtomicU32, seen: u32) {
        self.wait(word, seen, Some(MOMENT));
    }
}

impl Across<'_> {
    /// Backs a range of the pool with memory, so that touching it can't fail; false if there is none. In a machine this asks the back end,
    /// and waits for it, for nanoseconds of `patience` for each 2 MiB. Where none can be asked, the range is touched: what is noted of it is true
    /// then, for those who could have asked, too. Of a large one nothing is noted; it is left to be touched by its user.
    pub fn reserve(&self, offset: u64, len: u64, patience: Option<u64>) -> bool {
        if !self.handle.reserve(offset, len) {
            return false;
        }
        if !self.handle.is_device() || len == 0 {
            return true;
        }
        // The range lies in the pool.
        let (mut page, end) = (offset / PAGE, (offset + len).div_ceil(PAGE));
        while page < end {
            let count = (end - page).min(AT_ONCE);
            match ask(self, page, count, patience.unwrap_or(LONGEST).min(LONGEST)) {
                Asked::Given => page += count,
                Asked::Refused => return false,
                Asked::NoAnswer => {
                    if end - page <= AT_ONCE {
                        touch(self.pool, page, end);
                    }
                    return true;
                }
            }
        }
        true
    }
}

/// Has pages get their memory.
fn touch(pool: &Pool, first: u64, end: u64) {
    for word in (first..end).map_while(|page| pool.mem().word_anywhere(page * PAGE)) {
        word.fetch_or(0, Relaxed);
    }
}

fn ask<H: Host>(host: &H, first: u64, count: u64, patience: u64) -> Asked {
    let mut lost = 0;
    let mut begun = host.now();
    loop {
        let is_over = || host.now().saturating_sub(begun) > patience;
        if !host.can_ask() {
            return Asked::NoAnswer;
        }
        if is_over() {
            return given_up(host);
        }
        let Some(question) = host.pool().ask_for_memory(host.member(), first, count) else {
            let word = host.pool().answers();
            host.rest(word, word.load(Acquire));
            continue;
        };
        // What is asked must be seen before the ring is.
        fence(SeqCst);
        if !host.ring() {
            host.pool().withdraw(question);
            return Asked::NoAnswer;
        }
        match wait_for_answer(host, question, is_over) {
            Answer::Given => return Asked::Given,
            Answer::Refused => return Asked::Refused,
            Answer::None => return given_up(host),
            Answer::Lost if lost < AGAIN => (lost, begun) = (lost + 1, host.now()),
            Answer::Lost => {
                let word = host.pool().answers();
                host.rest(word, word.load(Acquire));
            }
        }
    }
}

/// The answer; none if the back end is dead or it took too long, and then there is no question any more.
fn wait_for_answer<H: Host>(host: &H, question: Question, is_over: impl Fn() -> bool) -> Answer {
    let word = host.pool().answers();
    loop {
        let count = word.load(Acquire);
        let answer = host.pool().answer_to(question);
        if answer != Answer::None {
            return answer;
        }
        if is_over() || !host.can_ask() {
            // It may be answered at this moment.
            return if host.pool().withdraw(question) {
                Answer::None
            } else {
                host.pool().answer_to(question)
            };
        }
        host.rest(word, count);
    }
}

/// There was no answer. If there was no beat, either, others need not wait for one.
fn given_up<H: Host>(host: &H) -> Asked {
    match host.pool().last_beat() {
        Some((beat, _)) if host.is_silent(beat) => {
            host.pool().note_silence(beat);
            Asked::NoAnswer
        }
        Some(_) if host.can_ask() => Asked::Refused,
        _ => Asked::NoAnswer,
    }
}
