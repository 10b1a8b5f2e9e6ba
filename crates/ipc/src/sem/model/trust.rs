//! Serving on trust: waiters die, who serves them dies, and the dead are reaped meanwhile.
//!
//! This models [`super::super::trust`], `serve_one`, `take_out` and `drop_waiter` of [`super::super::serve`],
//! and `take`, `is_dead`, `give_back` and `reap_process` of [`crate::waiters`], with the same orderings on a
//! record's status, owner and IPC object. There is one semaphore, on which all take one and all give one, and
//! it stays SLOW, so its value is protected by the lock. Nobody dies inside of a transaction, so whoever was
//! served need not ask whether it is applied.
//!
//! [`RIGHT`] is what these do. The tests that must panic show what comes of it if one thing is left out: the owner is read relaxed, a waiter
//! is served without the name of the call that serves, or a record names its set before it says that its owner waits.

use super::check;
use loom::sync::atomic::{AtomicU64, Ordering, Ordering::*};
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;
use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::Vec;

const WAITING: u64 = 1;
const DONE: u64 = 1 << 31;
const ON_TRUST: u64 = 1 << 30;
const EINTR: u64 = 4;
/// The set, as a record says whose queue it stands in.
const SET: u64 = 7;

struct Record {
    owner: AtomicU64,
    object: AtomicU64,
    status: AtomicU64,
    /// Does its owner sleep?
    futex: Mutex<bool>,
    sleeper: Condvar,
}

/// A releasing store. It is a swap, because loom lets a compare-and-swap that was there before a plain store come after it.
fn put(word: &AtomicU64, value: u64) {
    word.swap(value, Release);
}

/// What the lock protects: the semaphore's value, and who waits.
struct Inside {
    value: u64,
    queue: VecDeque<usize>,
}

/// What may be otherwise than it is, to see what it is good for.
#[derive(Clone, Copy)]
struct Rules {
    /// How a record's owner is read, to ask whether it is dead.
    owner: Ordering,
    /// What is said of a waiter that is served on trust names who serves.
    named: bool,
    /// A record that is taken says that its owner waits before it says for what.
    status_first: bool,
}

/// As it has to be.
const RIGHT: Rules = Rules {
    owner: Acquire,
    named: true,
    status_first: true,
};

struct World {
    lock: Mutex<Inside>,
    records: Vec<Record>,
    /// Processes that the kernel says to be dead: bits.
    dead: AtomicU64,
    rules: Rules,
}

impl World {
    /// Record i waits for process i + 1.
    fn new(waiters: usize, rules: Rules) -> Arc<World> {
        let record = |_| Record {
            owner: AtomicU64::new(0),
            object: AtomicU64::new(0),
            status: AtomicU64::new(0),
            futex: Mutex::new(false),
            sleeper: Condvar::new(),
        };
        let queue = VecDeque::new();
        let world = World {
            lock: Mutex::new(Inside { value: 0, queue }),
            records: (0..waiters).map(record).collect(),
            dead: AtomicU64::new(0),
            rules,
        };
        (0..waiters).for_each(|i| world.register(i));
        Arc::new(world)
    }

    fn locked(&self) -> MutexGuard<'_, Inside> {
        self.lock.lock().unwrap()
    }

    fn register(&self, i: usize) {
        self.register_or_die(i, false);
    }

    /// Takes the record, which may be the last that its owner does, and stands at the end of the queue.
    fn register_or_die(&self, i: usize, dies: bool) {
        let mut inside = self.locked();
        let record = &self.records[i];
        let me = i as u64 + 1;
        let taken = record.owner.compare_exchange(0, me, AcqRel, Relaxed);
        assert!(taken.is_ok());
        if self.rules.status_first {
            put(&record.status, WAITING);
        }
        record.object.store(SET, Release);
        if dies {
            return self.die(i);
        }
        put(&record.status, WAITING);
        inside.queue.push_back(i);
    }

    fn give_back(&self, i: usize) {
        self.records[i].object.store(0, Relaxed);
        self.records[i].owner.store(0, Release);
    }

    /// Sleeps until served.
    fn wait(&self, i: usize) {
        let record = &self.records[i];
        while record.status.load(Acquire) == WAITING {
            let mut sleeps = record.futex.lock().unwrap();
            if record.status.load(Relaxed) == WAITING {
                *sleeps = true;
                drop(record.sleeper.wait(sleeps).unwrap());
            }
        }
        assert_eq!(
            record.status.load(Relaxed) & 0xff,
            0,
            "an error for the living"
        );
        self.give_back(i);
    }

    /// Returns whether somebody was woken.
    fn wake(&self, i: usize) -> bool {
        let mut sleeps = self.records[i].futex.lock().unwrap();
        self.records[i].sleeper.notify_one();
        core::mem::take(&mut *sleeps)
    }

    fn die(&self, i: usize) {
        self.dead.fetch_or(1 << i, Release);
    }

    fn is_dead(&self, i: usize) -> bool {
        if *self.records[i].futex.lock().unwrap() {
            return false;
        }
        match self.records[i].owner.load(self.rules.owner).checked_sub(1) {
            Some(process) => self.dead.load(Acquire) & 1 << process != 0,
            None => true,
        }
    }

    /// What is said of a waiter that `server` serves on trust.
    fn on_trust(&self, server: u64) -> u64 {
        DONE | ON_TRUST | if self.rules.named { server << 8 } else { 0 }
    }

    /// One is given, by somebody who may die before it is known who got it.
    fn give(&self, server: u64, dies: bool) {
        let mut trusted = Vec::new();
        {
            let mut inside = self.locked();
            inside.value += 1;
            self.serve(&mut inside, |i| {
                trusted.push(i);
                Some(self.on_trust(server))
            });
        }
        if dies {
            return;
        }
        for i in trusted {
            let status = &self.records[i].status;
            let said = self.on_trust(server);
            if !self.wake(i) && self.is_dead(i) && status.load(Acquire) == said {
                self.put_back(&mut self.locked(), i);
            } else {
                let _ = status.compare_exchange(said, DONE, AcqRel, Relaxed);
            }
        }
    }

    fn serve(&self, inside: &mut Inside, mut trust: impl FnMut(usize) -> Option<u64>) {
        while let Some(i) = (inside.value > 0)
            .then(|| inside.queue.pop_front())
            .flatten()
        {
            let status = &self.records[i].status;
            if let Some(said) = trust(i) {
                put(status, said);
            } else if self.is_dead(i) {
                put(status, DONE | EINTR);
                continue;
            } else {
                put(status, DONE);
                self.wake(i);
            }
            inside.value -= 1;
        }
    }

    fn put_back(&self, inside: &mut Inside, i: usize) {
        let record = &self.records[i];
        let trusted = record.status.load(Acquire) & ON_TRUST != 0;
        if trusted && record.object.load(Relaxed) == SET {
            inside.value += 1;
            put(&record.status, DONE | EINTR);
            self.serve(inside, |_| None);
        }
    }

    /// Reaps a process, if it is dead.
    fn reap(&self, i: usize) {
        let record = &self.records[i];
        if self.dead.load(Acquire) & 1 << i == 0 || record.owner.load(Relaxed) != i as u64 + 1 {
            return;
        }
        {
            let mut inside = self.locked();
            let len = inside.queue.len();
            inside.queue.retain(|w| *w != i);
            if inside.queue.len() < len {
                put(&record.status, DONE | EINTR);
            } else {
                self.put_back(&mut inside, i);
            }
        }
        self.give_back(i);
    }

    fn value(&self) -> u64 {
        self.locked().value
    }
}

/// The first waiter is dead, the second lives: it gets what is given, or would sleep for ever, which loom reports.
fn give_past_the_dead(dies: bool) {
    check(2, move || {
        let world = World::new(2, RIGHT);
        world.die(0);
        let (one, other) = (world.clone(), world.clone());
        let waiter = thread::spawn(move || one.wait(1));
        let reaper = thread::spawn(move || other.reap(0));
        world.give(1, dies);
        reaper.join().unwrap();
        if dies {
            // A sleep ends by itself.
            world.wake(1);
        }
        waiter.join().unwrap();
        assert_eq!(world.value(), 0);
    });
}

#[test]
fn what_the_dead_were_given_goes_to_the_next() {
    give_past_the_dead(false);
}

#[test]
fn who_reaps_a_waiter_puts_back_for_a_server_that_died() {
    give_past_the_dead(true);
}

#[test]
fn a_waiter_that_dies_meanwhile_gives_back_once_at_the_most() {
    check(3, || {
        let world = World::new(1, RIGHT);
        let other = world.clone();
        let dies = thread::spawn(move || {
            other.die(0);
            other.reap(0);
        });
        world.give(1, false);
        dies.join().unwrap();
        assert!(world.value() <= 1);
    });
}

#[test]
fn the_dead_take_nothing() {
    check(3, || {
        let world = World::new(1, RIGHT);
        world.die(0);
        let other = world.clone();
        let reaper = thread::spawn(move || other.reap(0));
        world.give(1, false);
        assert_eq!(world.value(), 1);
        reaper.join().unwrap();
        assert_eq!(world.value(), 1);
    });
}

/// A waiter is served, and gives its record back while the server asks after it.
fn serve_the_living(rules: Rules) {
    check(3, move || {
        let world = World::new(1, rules);
        let other = world.clone();
        let waiter = thread::spawn(move || other.wait(0));
        world.give(1, false);
        waiter.join().unwrap();
        assert_eq!(world.value(), 0, "what the living got was put back");
    });
}

#[test]
fn the_living_keep_what_they_got() {
    serve_the_living(RIGHT);
}

/// A process that sees that a record was given back must also see that it is the set's no more.
#[test]
#[should_panic(expected = "what the living got")]
fn an_owner_read_without_acquiring_duplicates() {
    let owner = Relaxed;
    serve_the_living(Rules { owner, ..RIGHT });
}

/// A waiter is served, waits again with the same record, and dies; then somebody else gives one, while the first server still has
/// to say that it trusts no longer.
fn reuse(rules: Rules) {
    check(3, move || {
        let world = World::new(1, rules);
        let other = world.clone();
        let waiter = thread::spawn(move || {
            other.wait(0);
            other.register(0);
            other.die(0);
            other.give(2, false);
            assert_eq!(other.value(), 1, "the dead took one");
        });
        world.give(1, false);
        waiter.join().unwrap();
    });
}

#[test]
fn late_trust_leaves_the_next_waiter_alone() {
    reuse(RIGHT);
}

/// What a late server says of a waiter that it served must not be taken for what another says of the next one.
#[test]
#[should_panic(expected = "the dead took one")]
fn late_trust_without_a_name_loses_one() {
    let named = false;
    reuse(Rules { named, ..RIGHT });
}

/// A waiter is served by somebody who dies, waits again with the same record, and dies as it takes it.
fn die_early(rules: Rules) {
    check(3, move || {
        let world = World::new(1, rules);
        let other = world.clone();
        let waiter = thread::spawn(move || {
            other.wait(0);
            other.register_or_die(0, true);
            other.reap(0);
        });
        world.give(1, true);
        // A sleep ends by itself.
        world.wake(0);
        waiter.join().unwrap();
        assert_eq!(world.value(), 0, "what the living got was put back");
    });
}

#[test]
fn what_a_record_said_before_counts_no_more() {
    die_early(RIGHT);
}

/// What stands in a record from before must not be taken for what is said of whoever takes it.
#[test]
#[should_panic(expected = "what the living got")]
fn a_record_that_names_the_set_first_duplicates() {
    let status_first = false;
    die_early(Rules {
        status_first,
        ..RIGHT
    });
}
