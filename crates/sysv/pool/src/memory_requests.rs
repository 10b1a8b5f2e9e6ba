//! Requests for memory. A pool's pages get memory when they are touched, and a machine that touches a page
//! for which its host has none left is killed. A machine can't ask the host's kernel, so before it touches
//! what it has taken it asks the back end, in the pool.
//!
//! # The slots
//! There are a few of them, for all members. Each is one word:
//!
//! | bits | |
//! | --- | --- |
//! | 0-1 | state: 0 free, 1 requested, 2 given, 3 refused |
//! | 2-7 | the requester: a member |
//! | 8-17 | pages |
//! | 18-51 | first page |
//! | 52-63 | turn: how often the slot was freed |
//!
//! The requester takes a slot from *free* to *requested*, the back end from there to *given* or *refused*,
//! and the requester back to *free* of the next turn; each by compare-and-swap. The back end then counts an
//! answer, on which the requester sleeps, and rings its machine's doorbell.
//!
//! # Why it is correct
//! * *An answer is for what was requested.* All of a request is in the word, so it can't be seen in part. A
//!   requester takes an answer only from the word that it wrote, with nothing but the state changed. Turns
//!   make two requests of the same pages different words. If they come round (4096 requests in one slot, of
//!   the same pages) while a requester does not look, it gets the answer to the same request.
//! * *What was given stays.* Pages are requested by a process that has taken them from the heap, or for
//!   tables and the small heap, of which nothing is given back. Only a process that frees pages releases
//!   them, and the back end those that are free, under the pool's lock.
//! * *Death.* A requester that dies leaves a slot whose answer nobody fetches. The back end frees a slot
//!   whose answer has not been fetched for some of its looks. A requester that was only slow finds another
//!   word, and asks again. A back end that dies leaves requests, which the next one answers; if there is
//!   none, the requester goes on without, as with a pool that no back end serves.
//! * *No answer is missed*: the state is changed before answers are counted, and a requester reads the count
//!   before the state.
//! * *Malice*: a member that writes words can have memory given to pages of the pool, no others; and make
//!   others believe that they were given some: so it was before there were requests. A requester that gets no
//!   answer while the back end lives gives up.
//!
//! `model` has this under a model checker.

#[cfg(all(test, feature = "model"))]
mod model;
#[cfg(test)]
mod tests;

use crate::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::SeqCst};
use crate::layout::{MAX_MEMBERS, MEMORY_REQUESTS, PAGE};
use crate::tuning::UNFETCHED_PASSES;
use crate::Pool;

/// Most pages of one request.
pub const MAX_PAGES: u64 = 512;
const FREE: u64 = 0;
const REQUESTED: u64 = 1;
const GIVEN: u64 = 2;
const REFUSED: u64 = 3;
const STATE: u64 = 3;
const MEMBER: u32 = 2;
const COUNT: u32 = 8;
const FIRST: u32 = 18;
const TURN: u32 = 52;
const FIRST_BITS: u64 = (1 << (TURN - FIRST)) - 1;
const COUNT_BITS: u64 = (1 << (FIRST - COUNT)) - 1;
const MEMBER_BITS: u64 = (1 << (COUNT - MEMBER)) - 1;
const _: () = assert!(MAX_MEMBERS as u64 == MEMBER_BITS + 1 && MAX_PAGES <= COUNT_BITS);
// As docs/layout.md has it.
const _: () = {
    assert!(FREE == 0 && REQUESTED == 1 && GIVEN == 2 && REFUSED == 3 && STATE == 3);
    assert!(MEMBER == 2 && COUNT == 8 && FIRST == 18 && TURN == 52 && MAX_PAGES == 512);
};

fn replace(slot: &AtomicU64, old: u64, new: u64) -> bool {
    slot.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is none yet.
    Pending,
    /// The pages have memory.
    Given,
    /// There is no memory for them.
    Refused,
    /// It is lost: request again.
    Lost,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    slot: usize,
    word: u64,
}

/// The word of a slot that is free again.
fn freed(word: u64) -> u64 {
    ((word >> TURN) + 1) << TURN | FREE
}

fn put(slots: &[AtomicU64], member: u16, first: u64, count: u64) -> Option<Request> {
    let request = u64::from(member) << MEMBER | count << COUNT | first << FIRST | REQUESTED;
    slots.iter().enumerate().find_map(|(slot, s)| {
        let old = s.load(SeqCst);
        let word = old >> TURN << TURN | request;
        (old & STATE == FREE && replace(s, old, word)).then_some(Request { slot, word })
    })
}

fn fetch(slots: &[AtomicU64], request: Request) -> Answer {
    let Some(slot) = slots.get(request.slot) else {
        return Answer::Lost;
    };
    let word = slot.load(SeqCst);
    if word == request.word {
        return Answer::Pending;
    }
    let answer = match word & STATE {
        GIVEN => Answer::Given,
        REFUSED => Answer::Refused,
        _ => return Answer::Lost,
    };
    if word & !STATE != request.word & !STATE || !replace(slot, word, freed(word)) {
        return Answer::Lost;
    }
    answer
}

fn withdraw(slots: &[AtomicU64], request: Request) -> bool {
    let slot = slots.get(request.slot);
    slot.is_none_or(|slot| replace(slot, request.word, freed(request.word)))
}

/// Answers the request in a slot; the requester, if there was one. `give` gets first page and pages.
fn serve(slot: &AtomicU64, give: impl FnOnce(u64, u64) -> bool) -> Option<u16> {
    let word = slot.load(SeqCst);
    if word & STATE != REQUESTED {
        return None;
    }
    let count = word >> COUNT & COUNT_BITS;
    let given = count <= MAX_PAGES && give(word >> FIRST & FIRST_BITS, count);
    let answer = if given { GIVEN } else { REFUSED };
    replace(slot, word, word & !STATE | answer).then_some((word >> MEMBER & MEMBER_BITS) as u16)
}

/// Frees a slot whose answer nobody fetches: it is the same as so many times before. `last` is what it was,
/// and how often.
fn forget(slot: &AtomicU64, last: &mut (u64, u8)) {
    let word = slot.load(SeqCst);
    if matches!(word & STATE, FREE | REQUESTED) || word != last.0 {
        *last = (word, 0);
        return;
    }
    last.1 += 1;
    if last.1 >= UNFETCHED_PASSES {
        replace(slot, word, freed(word));
        *last = (0, 0);
    }
}

/// The back end's memory of the slots between two looks.
#[derive(Debug, Default)]
pub struct Unfetched([(u64, u8); MEMORY_REQUESTS]);

impl Pool {
    /// The back end says that it serves requests, or that none need be made. It does so with each heartbeat:
    /// another one, that does not know of this, has a heartbeat alone.
    pub fn set_gives(&self, gives: bool) {
        let heartbeat = self.root().heartbeat.load(Acquire) as u32;
        let gives = if gives { heartbeat.max(1) } else { 0 };
        self.root().gives.store(gives, SeqCst);
    }

    /// Does the back end give memory, if it lives?
    pub fn gives(&self) -> bool {
        let (said, heartbeat) = (self.root().gives.load(Acquire), self.root().heartbeat.load(Acquire));
        said != 0 && (heartbeat as u32).wrapping_sub(said).wrapping_add(1) <= 3
    }

    /// Requests memory for pages, [`MAX_PAGES`] at the most. `None`: there are too many requests just now, or
    /// such pages can't be requested.
    pub fn request_memory(&self, member: u16, first: u64, count: u64) -> Option<Request> {
        let fits = u64::from(member) <= MEMBER_BITS && first <= FIRST_BITS && count <= MAX_PAGES;
        fits.then(|| put(&self.root().memory_requests, member, first, count))?
    }

    /// Fetches the answer. Once it is there, the slot is another's.
    pub fn answer_to_request(&self, request: Request) -> Answer {
        fetch(&self.root().memory_requests, request)
    }

    /// Takes a request back that was not answered; false if it is answered now.
    pub fn withdraw_request(&self, request: Request) -> bool {
        withdraw(&self.root().memory_requests, request)
    }

    /// The count of the back end's answers: it changes after each one.
    pub fn answers(&self) -> &'static AtomicU32 {
        &self.root().answers
    }

    /// For the back end: answers all requests. `give` gets offset and length, some of which may not be the
    /// pool's; `answered` each member that got an answer, whose doorbell is to be rung.
    pub fn serve_memory_requests(&self, give: impl Fn(u64, u64) -> bool, mut answered: impl FnMut(u16)) {
        let give = |first: u64, count: u64| give(first * PAGE, count * PAGE);
        for slot in &self.root().memory_requests {
            if let Some(member) = serve(slot, give) {
                self.root().answers.fetch_add(1, SeqCst);
                answered(member);
            }
        }
    }

    /// For the back end, from time to time: throws answers away that nobody fetches.
    pub fn forget_unfetched(&self, seen: &mut Unfetched) {
        for (slot, last) in self.root().memory_requests.iter().zip(&mut seen.0) {
            forget(slot, last);
        }
    }

    /// A member is dead: nobody fetches the answers to its requests.
    pub(crate) fn forget_memory_requests(&self, member: u16) {
        for slot in &self.root().memory_requests {
            let word = slot.load(SeqCst);
            if word & STATE != FREE && word >> MEMBER & MEMBER_BITS == member.into() {
                replace(slot, word, freed(word));
            }
        }
    }

    /// Somebody has waited for the back end in vain: until its next heartbeat, nobody need.
    pub fn record_silence(&self, heartbeat: u64) {
        self.root().silent.store(heartbeat, SeqCst);
    }

    /// Has somebody waited in vain since the heartbeat with this count?
    pub fn is_silent(&self, heartbeat: u64) -> bool {
        self.root().silent.load(Acquire) == heartbeat
    }
}
