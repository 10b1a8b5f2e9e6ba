//! Memory for pages that a machine is about to touch: the host gives it, by its back end.
//!
//! Every wait here has an end: an answer that is lost, to a pause or a member that writes what it likes, is
//! requested again a few times only.

#[cfg(test)]
mod tests;

use super::Across;
use crate::spin;
use vshmem_pool::atomic::{fence, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};
use vshmem_pool::layout::PAGE;
use vshmem_pool::memory_requests::{Answer, Request, MAX_PAGES};
use vshmem_pool::tuning::{ANSWERS_LOST, ANSWER_NS, ANSWER_SLEEP};
use vshmem_pool::Pool;

/// The number of the host's doorbell.
const HOST: u16 = 0;
/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Given,
    Refused,
    /// There is no back end that could serve it.
    NoAnswer,
}

/// The way to the back end.
trait Host {
    /// The pool that the back end serves.
    fn pool(&self) -> &Pool;
    /// The member that requests.
    fn member(&self) -> u16;
    /// Is there a back end that lives and gives memory, and has it a doorbell?
    fn can_request(&self) -> bool;
    /// Rings its doorbell; false if that can't be done.
    fn ring_doorbell(&self) -> bool;
    /// Has it been silent for so long that it is dead?
    fn is_silent(&self, heartbeat: u64) -> bool;
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
    fn can_request(&self) -> bool {
        if !self.pool.gives() || self.handle.peer().is_none() {
            return false;
        }
        let heartbeat = self.pool.last_heartbeat().map(|(count, _)| count);
        heartbeat.is_some_and(|heartbeat| !self.pool.is_silent(heartbeat) && !self.is_silent(heartbeat))
    }
    fn ring_doorbell(&self) -> bool {
        self.handle.ring_doorbell(HOST)
    }
    fn is_silent(&self, heartbeat: u64) -> bool {
        !self.heartbeat.is_alive(heartbeat, spin::now())
    }
    fn now(&self) -> u64 {
        spin::now()
    }
    fn rest(&self, word: &AtomicU32, seen: u32) {
        self.wait(word, seen, Some(ANSWER_SLEEP));
    }
}

impl Across<'_> {
    /// Backs a range of the pool with memory, so that touching it can't fail; false if there is none. In a
    /// machine this requests it of the back end, and waits for nanoseconds of `patience` for each 2 MiB.
    /// Where no request can be made, the range is touched: then the pool's marks are true for members that
    /// can make requests, too. Of a large one nothing is marked; it is left to be touched by its user.
    ///
    /// The end comes first, as the pool's last pages are a segment's first choice: what a range has that
    /// could not be had as a whole is then the next segment's.
    pub fn reserve(&self, offset: u64, len: u64, patience: Option<u64>) -> bool {
        if !self.handle.reserve(offset, len) {
            return false;
        }
        if !self.handle.is_device() || len == 0 {
            return true;
        }
        // The range lies in the pool.
        let (first, mut end) = (offset / PAGE, (offset + len).div_ceil(PAGE));
        while first < end {
            let page = end.saturating_sub(MAX_PAGES).max(first);
            match request(self, page, end - page, patience.unwrap_or(ANSWER_NS).min(ANSWER_NS)) {
                Outcome::Given => end = page,
                Outcome::Refused => return false,
                Outcome::NoAnswer => {
                    if page == first {
                        touch(self.pool, page, end);
                    }
                    return true;
                }
            }
        }
        true
    }
}

/// Touches pages, so that they get their memory.
fn touch(pool: &Pool, first: u64, end: u64) {
    for word in (first..end).map_while(|page| pool.mem().word_anywhere(page * PAGE)) {
        word.fetch_or(0, Relaxed);
    }
}

fn request<H: Host>(host: &H, first: u64, count: u64, patience: u64) -> Outcome {
    let mut lost = 0;
    let mut begun = host.now();
    loop {
        let is_over = || host.now().saturating_sub(begun) > patience;
        if !host.can_request() {
            return Outcome::NoAnswer;
        }
        if is_over() {
            return given_up(host);
        }
        let Some(request) = host.pool().request_memory(host.member(), first, count) else {
            let word = host.pool().answers();
            host.rest(word, word.load(Acquire));
            continue;
        };
        // The request must be seen before the doorbell is.
        fence(SeqCst);
        if !host.ring_doorbell() {
            host.pool().withdraw_request(request);
            return Outcome::NoAnswer;
        }
        match wait_for_answer(host, request, is_over) {
            Answer::Given => return Outcome::Given,
            Answer::Refused => return Outcome::Refused,
            Answer::Pending => return given_up(host),
            Answer::Lost if lost < ANSWERS_LOST => (lost, begun) = (lost + 1, host.now()),
            Answer::Lost => {
                let word = host.pool().answers();
                host.rest(word, word.load(Acquire));
            }
        }
    }
}

/// The answer; none if the back end is dead or it took too long, and then there is no request any more.
fn wait_for_answer<H: Host>(host: &H, request: Request, is_over: impl Fn() -> bool) -> Answer {
    let word = host.pool().answers();
    loop {
        let count = word.load(Acquire);
        let answer = host.pool().answer_to_request(request);
        if answer != Answer::Pending {
            return answer;
        }
        if is_over() || !host.can_request() {
            // It may be answered at this moment.
            return if host.pool().withdraw_request(request) {
                Answer::Pending
            } else {
                host.pool().answer_to_request(request)
            };
        }
        host.rest(word, count);
    }
}

/// The outcome of a request without an answer. If there was no heartbeat, either, others need not wait for
/// one.
fn given_up<H: Host>(host: &H) -> Outcome {
    match host.pool().last_heartbeat() {
        Some((heartbeat, _)) if host.is_silent(heartbeat) => {
            host.pool().record_silence(heartbeat);
            Outcome::NoAnswer
        }
        Some(_) if host.can_request() => Outcome::Refused,
        _ => Outcome::NoAnswer,
    }
}
