//! Leaving a ring: a sender that is in the middle of a message finishes, or dies, while others collect, and
//! its cells become somebody else's memory as soon as they are given back.
//!
//! This models [`super::super::retired`]: `is_finished`, `move_over` and `collect`, with the same orderings
//! on the sender's mark. The collector has the queue's lock. [`RIGHT`] is what these do; the tests that
//! must panic show what comes of the other way.

use super::super::mark::{Mark, State};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;

/// What may be otherwise than it is, to see what it is good for.
#[derive(Clone, Copy)]
struct Rules {
    /// The mark of the dead is swapped, not stored.
    swapped: bool,
    /// Whether a ring is finished is asked before the messages are moved over.
    asked_first: bool,
}

/// As it has to be.
const RIGHT: Rules = Rules { swapped: true, asked_first: true };

/// Where the sender dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    Never,
    BeforeItsText,
    BeforeItsMark,
    Afterwards,
}

/// What stands at the message's place in the new ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InNewRing {
    InRetired,
    Message,
    Nothing,
}

/// What the lock protects.
struct Inside {
    place: InNewRing,
    given_back: bool,
}

struct Old {
    mark: AtomicU64,
    text: UnsafeCell<u32>,
    dead: AtomicBool,
    lock: Mutex<Inside>,
    rules: Rules,
}

// SAFETY: loom runs one thread at a time, and reports text that two use at once.
unsafe impl Sync for Old {}
// SAFETY: as above.
unsafe impl Send for Old {}

const TEXT: u32 = 4711;

fn word(state: State) -> u64 {
    let (lap, len, owner) = (3, 1, 1);
    Mark { state, lap, len, owner }.word()
}

impl Old {
    /// `msgsnd`, from where the end was moved on. True: it returned.
    fn send(&self, death: Death) -> bool {
        if death != Death::BeforeItsText {
            // SAFETY: loom tells if somebody else is there.
            self.text.with_mut(|text| unsafe { *text = TEXT });
            if death != Death::BeforeItsMark {
                // A store: see the head of the ring's model.
                self.mark.swap(word(State::Ready), Release);
            }
        }
        self.dead.store(death != Death::Never, Release);
        matches!(death, Death::Never | Death::Afterwards)
    }

    fn is_finished(&self) -> bool {
        let reserved = word(State::Reserved);
        if self.mark.load(Acquire) != reserved {
            return true;
        }
        if !self.dead.load(Acquire) {
            return false;
        }
        let used = word(State::Consumed);
        if self.rules.swapped {
            let _ = self.mark.compare_exchange(reserved, used, AcqRel, Acquire);
        } else {
            self.mark.swap(used, Release);
        }
        true
    }

    fn move_over(&self, inside: &mut Inside) {
        if inside.place != InNewRing::InRetired {
            return;
        }
        let mark = Mark::of(self.mark.load(Acquire)).unwrap();
        inside.place = match mark.state {
            State::Reserved => return,
            State::Ready => {
                // SAFETY: loom tells if somebody writes to it.
                self.text.with(|text| assert_eq!(unsafe { *text }, TEXT));
                InNewRing::Message
            }
            _ => InNewRing::Nothing,
        };
    }

    fn collect(&self) {
        let mut inside = self.lock.lock().unwrap();
        if inside.given_back {
            return;
        }
        let asked = self.rules.asked_first && self.is_finished();
        self.move_over(&mut inside);
        if asked || !self.rules.asked_first && self.is_finished() {
            inside.given_back = true;
            // SAFETY: whose memory it is now writes to it; loom tells if somebody else is there.
            self.text.with_mut(|text| unsafe { *text = 0 });
            self.mark.swap(0, Release);
        }
    }
}

fn check(rules: Rules, death: Death) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(move || {
        let old = Arc::new(Old {
            mark: AtomicU64::new(word(State::Reserved)),
            text: UnsafeCell::new(0),
            dead: AtomicBool::new(false),
            lock: Mutex::new(Inside { place: InNewRing::InRetired, given_back: false }),
            rules,
        });
        let (sender, other) = (old.clone(), old.clone());
        let sender = thread::spawn(move || sender.send(death));
        let other = thread::spawn(move || other.collect());
        old.collect();
        other.join().unwrap();
        let returned = sender.join().unwrap();
        old.collect();
        let inside = old.lock.lock().unwrap();
        let right = if returned { InNewRing::Message } else { InNewRing::Nothing };
        assert_eq!(inside.place, right, "what was sent is lost, or what was not has come");
        assert!(inside.given_back, "memory is lost");
    });
}

#[test]
fn a_sender_that_goes_on_has_sent() {
    check(RIGHT, Death::Never);
}

#[test]
fn a_sender_that_dies_has_sent_if_it_returned() {
    check(RIGHT, Death::BeforeItsText);
    check(RIGHT, Death::BeforeItsMark);
    check(RIGHT, Death::Afterwards);
}

#[test]
#[should_panic(expected = "what was sent is lost")]
fn if_the_mark_of_the_dead_is_not_swapped_a_message_is_lost() {
    let swapped = false;
    check(Rules { swapped, ..RIGHT }, Death::Afterwards);
}

#[test]
#[should_panic(expected = "what was sent is lost")]
fn if_it_is_asked_later_a_message_is_lost() {
    let asked_first = false;
    check(Rules { asked_first, ..RIGHT }, Death::Never);
}
