//! Asking for memory. A pool's pages get memory when they are touched, and a machine that touches one for which its host has none left is
//! killed. It can't ask the host's kernel, so before it touches what it has taken it asks the back end, in the pool.
//!
//! # The slots
//! There are a few of them, for all. Each is one word:
//!
//! | bits | |
//! | --- | --- |
//! | 0-1 | state: 0 free, 1 asked, 2 given, 3 refused |
//! | 2-7 | who asks: the member |
//! | 8-17 | pages |
//! | 18-51 | first page |
//! | 52-63 | turn: how often the slot was freed |
//!
//! *free → asked* by who asks, *asked → given* or *refused* by the back end, and back to *free* of the next turn by who asked; each by
//! compare-and-swap. Then the back end counts an answer, on which who asks sleeps, and rings its machine.
//!
//! # Why it is correct
//! * *An answer is for what was asked.* All of a question is in the word, so it can't be seen in part. Who asked takes an answer only from the word that it wrote, with
//!   nothing but the state changed. Turns make two questions of the same pages different words; that they have come round (4096 questions in one slot, of the same pages)
//!   while one who asked did not look would give it the answer to the same question.
//! * *What was given stays.* Pages are asked for by who has taken them from the heap, or for tables and the small heap, of which nothing is
//!   given back. Only who frees pages releases them, and the back end those that are free, under the pool's lock.
//! * *Death.* Who dies after it asked leaves a slot that nobody fetches the answer of. The back end frees a slot whose answer has
//!   not been fetched for some of its looks. Who was only slow finds another word, and asks again. A back end that dies leaves questions, which the
//!   next one answers; if there is none, who asks goes on without, as with a pool that none serves.
//! * *No answer is missed*: the state is changed before answers are counted, and who asks reads the count before the state.
//! * *Malice*: a member that writes words can have memory given to pages of the pool, no others; and make others believe that they were given
//!   some: that is how it was without asking. Who gets no answer while the back end lives gives up.
//!
//! `model` has this under loom.

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use crate::layout::{ASKS, MAX_MEMBERS, PAGE};
use crate::Pool;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::SeqCst};

/// Most pages that are asked for at once.
pub const AT_ONCE: u64 = 512;
/// An answer is for who asked; it is thrown away if it was not fetched for so many of [`Pool::forget_answers`].
const PATIENCE: u8 = 2;

const FREE: u64 = 0;
const ASKED: u64 = 1;
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
const _: () = assert!(MAX_MEMBERS as u64 == MEMBER_BITS + 1 && AT_ONCE <= COUNT_BITS);

/// What a slot must be able to do.
trait Slot {
    fn read(&self) -> u64;
    /// Replaces `old` by `new`; whether it was `old`.
    fn replace(&self, old: u64, new: u64) -> bool;
}

impl Slot for AtomicU64 {
    fn read(&self) -> u64 {
        self.load(SeqCst)
    }
    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
    }
}

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet.
    None,
    /// The pages have memory.
    Given,
    /// There is no memory for them.
    Refused,
    /// Nobody knows any more: ask again.
    Lost,
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    slot: usize,
    word: u64,
}

/// What a slot is when it is free again.
fn freed(word: u64) -> u64 {
    ((word >> TURN) + 1) << TURN | FREE
}

fn put<S: Slot>(slots: &[S], member: u16, first: u64, count: u64) -> Option<Question> {
    let question = u64::from(member) << MEMBER | count << COUNT | first << FIRST | ASKED;
    slots.iter().enumerate().find_map(|(slot, s)| {
        let old = s.read();
        let word = old >> TURN << TURN | question;
        (old & STATE == FREE && s.replace(old, word)).then_some(Question { slot, word })
    })
}

fn fetch<S: Slot>(slots: &[S], question: Question) -> Answer {
    let Some(slot) = slots.get(question.slot) else {
        return Answer::Lost;
    };
    let word = slot.read();
    if word == question.word {
        return Answer::None;
    }
    let answer = match word & STATE {
        GIVEN => Answer::Given,
        REFUSED => Answer::Refused,
        _ => return Answer::Lost,
    };
    if word & !STATE != question.word & !STATE || !slot.replace(word, freed(word)) {
        return Answer::Lost;
    }
    answer
}

fn withdraw<S: Slot>(slots: &[S], question: Question) -> bool {
    let slot = slots.get(question.slot);
    slot.is_none_or(|slot| slot.replace(question.word, freed(question.word)))
}

/// Answers what is asked in a slot; who asked, if there was a question. `give` gets first page and pages.
fn serve<S: Slot>(slot: &S, give: impl FnOnce(u64, u64) -> bool) -> Option<u16> {
    let word = slot.read();
    if word & STATE != ASKED {
        return None;
    }
    let count = word >> COUNT & COUNT_BITS;
    let given = count <= AT_ONCE && give(word >> FIRST & FIRST_BITS, count);
    let answer = if given { GIVEN } else { REFUSED };
    slot.replace(word, word & !STATE | answer)
        .then_some((word >> MEMBER & MEMBER_BITS) as u16)
}

/// Frees a slot whose answer nobody fetches: it is the same as so many times before. `last` is what it was, and how often.
fn forget<S: Slot>(slot: &S, last: &mut (u64, u8)) {
    let word = slot.read();
    if matches!(word & STATE, FREE | ASKED) || word != last.0 {
        *last = (word, 0);
        return;
    }
    last.1 += 1;
    if last.1 >= PATIENCE {
        slot.replace(word, freed(word));
        *last = (0, 0);
    }
}

/// What the back end remembers of the slots between two looks.
#[derive(Debug, Default)]
pub struct Seen([(u64, u8); ASKS]);

impl Pool {
    /// The back end says that it gives memory to who asks, or that nobody need ask. It does so with each beat: another one, that does not know of
    /// this, beats alone.
    pub fn set_gives(&self, gives: bool) {
        let beat = self.root().beat.load(Acquire) as u32;
        let gives = if gives { beat.max(1) } else { 0 };
        self.root().gives.store(gives, SeqCst);
    }

    /// Does the back end give memory, if it lives?
    pub fn gives(&self) -> bool {
        let (said, beat) = (
            self.root().gives.load(Acquire),
            self.root().beat.load(Acquire),
        );
        said != 0 && (beat as u32).wrapping_sub(said).wrapping_add(1) <= 3
    }

    /// Asks for memory for pages, [`AT_ONCE`] at the most. `None`: there are too many questions just now, or such pages can't be asked for.
    pub fn ask_for_memory(&self, member: u16, first: u64, count: u64) -> Option<Question> {
        let fits = u64::from(member) <= MEMBER_BITS && first <= FIRST_BITS && count <= AT_ONCE;
        fits.then(|| put(&self.root().asks, member, first, count))?
    }

    /// Fetches the answer. Once it is there, the slot is another's.
    pub fn answer_to(&self, question: Question) -> Answer {
        fetch(&self.root().asks, question)
    }

    /// Takes a question back that was not answered; false if it is answered now.
    pub fn withdraw(&self, question: Question) -> bool {
        withdraw(&self.root().asks, question)
    }

    /// How often the back end has answered: changes after each answer.
    pub fn answers(&self) -> &'static AtomicU32 {
        &self.root().answers
    }

    /// For the back end: answers all questions. `give` gets offset and length, some of which may not be the pool's; `answered` each member that got
    /// an answer, for it is to be rung.
    pub fn answer_all(&self, give: impl Fn(u64, u64) -> bool, mut answered: impl FnMut(u16)) {
        let give = |first: u64, count: u64| give(first * PAGE, count * PAGE);
        for slot in &self.root().asks {
            if let Some(member) = serve(slot, give) {
                self.root().answers.fetch_add(1, SeqCst);
                answered(member);
            }
        }
    }

    /// For the back end, from time to time: throws answers away that nobody fetches.
    pub fn forget_answers(&self, seen: &mut Seen) {
        for (slot, last) in self.root().asks.iter().zip(&mut seen.0) {
            forget(slot, last);
        }
    }

    /// A member is dead: nobody fetches what it has asked for.
    pub(crate) fn forget_questions(&self, member: u16) {
        for slot in &self.root().asks {
            let word = slot.read();
            if word & STATE != FREE && word >> MEMBER & MEMBER_BITS == member.into() {
                slot.replace(word, freed(word));
            }
        }
    }

    /// Somebody has waited for the back end in vain: until it beats again, nobody need.
    pub fn note_silence(&self, beat: u64) {
        self.root().silent.store(beat, SeqCst);
    }

    /// Has somebody waited in vain since the beat with this count?
    pub fn is_silent(&self, beat: u64) -> bool {
        self.root().silent.load(Acquire) == beat
    }
}
