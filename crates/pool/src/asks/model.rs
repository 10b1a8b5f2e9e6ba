//! Asking under loom: every interleaving of who asks, a back end, and its throwing away what nobody fetches.
//!
//! What is given is a set of pages, which nobody takes away; who was told that its pages were given must find them in it. Sleeping and ringing
//! are those of waiters, which `vshmem_wait` models: here, who asks looks twice and gives up.

use super::{fetch, freed, put, serve, withdraw, Answer, Slot, ASKED, FREE, STATE};
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use loom::sync::Arc;
use loom::thread;

impl Slot for AtomicU64 {
    fn read(&self) -> u64 {
        self.load(SeqCst)
    }
    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
    }
}

struct Place {
    slots: [AtomicU64; 1],
    /// A bit for each page that has memory.
    backed: AtomicU32,
}

impl Place {
    fn new() -> Arc<Place> {
        Arc::new(Place {
            slots: [AtomicU64::new(0)],
            backed: AtomicU32::new(0),
        })
    }

    /// Asks, and looks twice whether it was answered; what it may believe then is checked. True if it was given memory.
    fn ask(&self, page: u64) -> bool {
        let Some(question) = put(&self.slots, 0, page, 1) else {
            return false;
        };
        for _ in 0..2 {
            match fetch(&self.slots, question) {
                Answer::None => thread::yield_now(),
                Answer::Lost | Answer::Refused => return false,
                Answer::Given => {
                    assert_ne!(self.backed.load(SeqCst) & 1 << page, 0, "page {page}");
                    return true;
                }
            }
        }
        withdraw(&self.slots, question);
        false
    }

    fn answer(&self) {
        let give = |first: u64, _| {
            self.backed.fetch_or(1 << first, SeqCst);
            true
        };
        serve(&self.slots[0], give);
    }

    /// Throws an answer away, as if nobody had fetched it for long.
    fn forget(&self) {
        let word = self.slots[0].read();
        if word & STATE > ASKED {
            self.slots[0].replace(word, freed(word));
        }
    }
}

#[test]
fn who_is_told_that_it_has_memory_has_it() {
    loom::model(|| {
        let place = Place::new();
        let asks = |page| {
            let place = place.clone();
            thread::spawn(move || place.ask(page))
        };
        let (first, second) = (asks(1), asks(2));
        place.answer();
        place.answer();
        first.join().unwrap();
        second.join().unwrap();
        // Nothing is stuck: whatever is left is answered, and then somebody else can ask.
        place.answer();
        place.forget();
        assert_eq!(place.slots[0].read() & STATE, FREE);
    });
}

#[test]
fn an_answer_that_is_thrown_away_is_nobodys() {
    loom::model(|| {
        let place = Place::new();
        let slow = {
            let place = place.clone();
            thread::spawn(move || place.ask(1))
        };
        place.answer();
        place.forget();
        let other = place.ask(2);
        assert!(!other, "nobody can have answered");
        place.answer();
        slow.join().unwrap();
    });
}
