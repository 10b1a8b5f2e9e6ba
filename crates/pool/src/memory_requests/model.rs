//! Requests under loom: every interleaving of requesters, a back end, and its throwing away what nobody
//! fetches.
//!
//! What is given is a set of pages, which nobody takes away; a requester that was told that its pages were
//! given must find them in it. Sleeping and ringing are those of waiters, which `vshmem_wait` models: here, a
//! requester looks twice and gives up.

use super::{fetch, freed, put, serve, withdraw, Answer, Slot, FREE, REQUESTED, STATE};
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

struct World {
    slots: [AtomicU64; 1],
    /// A bit for each page that has memory.
    backed: AtomicU32,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World { slots: [AtomicU64::new(0)], backed: AtomicU32::new(0) })
    }

    /// Requests, and looks twice whether it was answered; what it may believe then is checked. True if it was
    /// given memory.
    fn request(&self, page: u64) -> bool {
        let Some(request) = put(&self.slots, 0, page, 1) else {
            return false;
        };
        for _ in 0..2 {
            match fetch(&self.slots, request) {
                Answer::Pending => thread::yield_now(),
                Answer::Lost | Answer::Refused => return false,
                Answer::Given => {
                    assert_ne!(self.backed.load(SeqCst) & 1 << page, 0, "page {page}");
                    return true;
                }
            }
        }
        withdraw(&self.slots, request);
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
        if word & STATE > REQUESTED {
            self.slots[0].replace(word, freed(word));
        }
    }
}

#[test]
fn who_is_told_that_it_has_memory_has_it() {
    loom::model(|| {
        let world = World::new();
        let request = |page| {
            let world = world.clone();
            thread::spawn(move || world.request(page))
        };
        let (first, second) = (request(1), request(2));
        world.answer();
        world.answer();
        first.join().unwrap();
        second.join().unwrap();
        // Nothing is stuck: whatever is left is answered, and then somebody else can request.
        world.answer();
        world.forget();
        assert_eq!(world.slots[0].read() & STATE, FREE);
    });
}

#[test]
fn an_answer_that_is_thrown_away_is_nobodys() {
    loom::model(|| {
        let world = World::new();
        let slow = {
            let world = world.clone();
            thread::spawn(move || world.request(1))
        };
        world.answer();
        world.forget();
        let other = world.request(2);
        assert!(!other, "nobody can have answered");
        world.answer();
        slow.join().unwrap();
    });
}
