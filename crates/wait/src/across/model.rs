//! Doorbells under loom: every interleaving of a waiter, a waker, an interrupt and a back end.
//!
//! This models what [`super::Across`] does around a waiter's record (`vshmem_ipc::waiters`) with the same
//! orderings, and what is beyond it: the table of sleepers in `kmod/sleep.c`, whose spinlock is loom's mutex
//! here, the futex of the host's kernel in the same way, and the back end's loop (`vshmem_agent`'s
//! `doorbell_sender`). The IPC object's lock is a mutex; its own algorithm is modelled in
//! `vshmem_pool::lock`. Sleeps have no deadline, so a lost wake-up is a deadlock, which loom reports.

use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering::*};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const WAITING: u32 = 1;
const DONE: u32 = 2;
/// The waiter's member, and its owner's word.
const MEMBER: u32 = 1;
const OWNER: u64 = 5;

/// A kernel that puts threads to sleep on words: the driver in a machine, futexes on the host.
#[derive(Default)]
struct Sleepers {
    asleep: Mutex<bool>,
    woken: Condvar,
}

impl Sleepers {
    /// Compares and becomes a sleeper under one lock.
    fn sleep_while(&self, is_expected: impl Fn() -> bool) {
        let mut asleep = self.asleep.lock().unwrap();
        if is_expected() {
            *asleep = true;
            while *asleep {
                asleep = self.woken.wait(asleep).unwrap();
            }
        }
    }

    /// An interrupt: whoever sleeps on a word that has changed is woken.
    fn look(&self, has_changed: impl Fn() -> bool) {
        let mut asleep = self.asleep.lock().unwrap();
        if *asleep && has_changed() {
            *asleep = false;
            self.woken.notify_one();
        }
    }
}

/// An interrupt line: doorbells melt into one.
#[derive(Default)]
struct Line {
    is_raised: Mutex<bool>,
    raised: Condvar,
}

impl Line {
    fn notify(&self) {
        *self.is_raised.lock().unwrap() = true;
        self.raised.notify_one();
    }

    fn wait(&self) {
        let mut is_raised = self.is_raised.lock().unwrap();
        while !std::mem::take(&mut *is_raised) {
            is_raised = self.raised.wait(is_raised).unwrap();
        }
    }
}

/// What a waker does in which order.
#[derive(Clone, Copy, PartialEq)]
enum Waker {
    /// As it is.
    Right,
    /// Rings the doorbell before it stores.
    RingsFirst,
    /// Changes the back end's word before it sets the member's bit.
    AsksFirst,
}

/// A semaphore, as far as it matters here.
#[derive(Default)]
struct Object {
    has_token: bool,
    /// The record stands in its queue.
    is_waited_for: bool,
}

/// A pool with one IPC object and one record, and the two kernels around it.
struct World {
    owner: AtomicU64,
    status: AtomicU32,
    peer: AtomicU32,
    /// The IPC object's lock.
    object: Mutex<Object>,
    machine: Sleepers,
    /// The line from the waker to the machine.
    line: Line,
    doorbells_to_ring: AtomicU64,
    asked: AtomicU32,
    host: Sleepers,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            owner: AtomicU64::new(0),
            status: AtomicU32::new(0),
            peer: AtomicU32::new(0),
            object: Mutex::default(),
            machine: Sleepers::default(),
            line: Line::default(),
            doorbells_to_ring: AtomicU64::new(0),
            asked: AtomicU32::new(0),
            host: Sleepers::default(),
        })
    }

    /// A thread of the machine: opens the pool, registers, sleeps, and gives its record back.
    fn wait(&self) {
        self.peer.store(MEMBER + 1, Release);
        {
            let mut object = self.object.lock().unwrap();
            if object.has_token {
                return;
            }
            self.register(&mut object);
        }
        self.sleep();
    }

    fn register(&self, object: &mut Object) {
        self.owner.store(OWNER, Relaxed);
        self.status.store(WAITING, Release);
        object.is_waited_for = true;
    }

    fn sleep(&self) {
        while self.status.load(Acquire) == WAITING {
            let is_expected = || self.status.load(Relaxed) == WAITING;
            self.machine.sleep_while(is_expected);
        }
        self.owner.store(0, Release);
    }

    /// A V. `ring` rings the machine's doorbell.
    fn serve(&self, waker: Waker, ring: impl Fn()) {
        {
            let mut object = self.object.lock().unwrap();
            if !object.is_waited_for {
                object.has_token = true;
                return;
            }
            object.is_waited_for = false;
            if waker == Waker::RingsFirst {
                ring();
            }
            self.status.store(DONE, Release);
        }
        if waker != Waker::RingsFirst && self.owner.load(Acquire) == OWNER {
            assert_ne!(self.peer.load(Acquire), 0, "the doorbell is known");
            fence(SeqCst);
            ring();
        }
    }

    /// The machine's interrupt handler, once.
    fn interrupt(&self) {
        self.line.wait();
        self.machine.look(|| self.status.load(Relaxed) != WAITING);
    }

    /// A process of the host has the machine's doorbell rung.
    fn ask(&self, waker: Waker) {
        let set = || self.doorbells_to_ring.fetch_or(1 << MEMBER, SeqCst);
        if waker != Waker::AsksFirst {
            set();
        }
        let before = self.asked.fetch_add(1, SeqCst);
        self.host.look(|| self.asked.load(Relaxed) != before);
        if waker == Waker::AsksFirst {
            set();
        }
    }

    /// The back end, until it has rung the machine's doorbell.
    fn send_doorbells(&self) {
        loop {
            let seen = self.asked.load(SeqCst);
            if self.doorbells_to_ring.swap(0, SeqCst) & 1 << MEMBER != 0 {
                return self.line.notify();
            }
            self.host.sleep_while(|| self.asked.load(Relaxed) == seen);
        }
    }
}

fn check(bound: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(bound);
    model.check(body);
}

/// Machine to machine: the waiter, the waker that serves it and rings, the interrupt.
fn between_machines(waker: Waker) {
    let world = World::new();
    let waiter = thread::spawn({
        let world = world.clone();
        move || world.wait()
    });
    let interrupt = thread::spawn({
        let world = world.clone();
        move || world.interrupt()
    });
    world.serve(waker, || world.line.notify());
    waiter.join().unwrap();
    // A waker that is late rings no doorbell; then this ends the interrupt's thread.
    world.line.notify();
    interrupt.join().unwrap();
}

/// Host to machine: the waiter, the host's process that serves, the back end, whose doorbell is taken for the
/// interrupt.
fn from_the_host(waker: Waker) {
    let world = World::new();
    let sender = thread::spawn({
        let world = world.clone();
        move || {
            world.send_doorbells();
            world.interrupt();
        }
    });
    world.peer.store(MEMBER + 1, Release);
    world.register(&mut world.object.lock().unwrap());
    let server = thread::spawn({
        let world = world.clone();
        move || world.serve(waker, || world.ask(waker))
    });
    world.sleep();
    server.join().unwrap();
    // A waker that is late asks for nothing; then this ends the back end's thread.
    world.ask(Waker::Right);
    sender.join().unwrap();
}

#[test]
fn a_machine_that_is_rung_wakes_its_waiter() {
    check(3, || between_machines(Waker::Right));
}

#[test]
fn a_machine_that_the_host_has_rung_wakes_its_waiter() {
    check(3, || from_the_host(Waker::Right));
}

/// That the model can fail.
#[test]
#[should_panic(expected = "deadlock")]
fn a_ring_before_the_change_is_lost() {
    check(3, || between_machines(Waker::RingsFirst));
}

/// That the model can fail.
#[test]
#[should_panic(expected = "deadlock")]
fn a_bit_set_after_the_word_is_lost() {
    check(3, || from_the_host(Waker::AsksFirst));
}
