use super::*;
use core::cell::{Cell, RefCell};
use vshmem_pool::{Mem, Params};

const SECOND: u64 = 1_000_000_000;
/// A rest takes so long on the clock here.
const REST: u64 = 1_000_000;

/// The deeds of a back end, or of another process, whenever the requester rests.
type Deed<'a> = dyn FnMut(&Pool, u64) + 'a;

struct World<'a> {
    pool: Pool,
    memory: *mut u8,
    clock: Cell<u64>,
    doorbells: Cell<u32>,
    alive_until: u64,
    deed: RefCell<&'a mut Deed<'a>>,
}

const LEN: usize = 1 << 20;

fn layout() -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(LEN, 4096).unwrap()
}

impl<'a> World<'a> {
    fn new(deed: &'a mut Deed<'a>) -> World<'a> {
        // SAFETY: the layout has a size, and what is allocated is freed when this is dropped.
        let memory = unsafe { std::alloc::alloc_zeroed(layout()) };
        // SAFETY: it is as long, aligned, and used as a pool only.
        let mem = unsafe { Mem::new(memory, LEN) };
        Pool::format(mem, &Params::default()).unwrap();
        let pool = Pool::open(mem).unwrap();
        pool.set_gives(true);
        pool.heartbeat(1);
        World {
            pool,
            memory,
            clock: Cell::new(0),
            doorbells: Cell::new(0),
            alive_until: u64::MAX,
            deed: RefCell::new(deed),
        }
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used any more.
        unsafe { std::alloc::dealloc(self.memory, layout()) };
    }
}

impl Host for World<'_> {
    fn pool(&self) -> &Pool {
        &self.pool
    }
    fn member(&self) -> u16 {
        3
    }
    fn can_request(&self) -> bool {
        let (heartbeat, _) = self.pool.last_heartbeat().unwrap();
        self.pool.gives() && !self.pool.is_silent(heartbeat) && !self.is_silent(heartbeat)
    }
    fn ring_doorbell(&self) -> bool {
        self.doorbells.set(self.doorbells.get() + 1);
        true
    }
    fn is_silent(&self, _beat: u64) -> bool {
        self.now() > self.alive_until.saturating_add(2 * SECOND)
    }
    fn now(&self) -> u64 {
        self.clock.get()
    }
    fn rest(&self, _word: &AtomicU32, _seen: u32) {
        self.clock.set(self.now() + REST);
        (self.deed.borrow_mut())(&self.pool, self.now());
    }
}

fn seconds(world: &World) -> f64 {
    world.now() as f64 / SECOND as f64
}

#[test]
fn an_answer_is_waited_for() {
    for given in [true, false] {
        let mut deed = |pool: &Pool, now: u64| {
            if now > SECOND {
                pool.serve_memory_requests(|_, _| given, |member| assert_eq!(member, 3));
            }
        };
        let world = World::new(&mut deed);
        let expected = if given { Outcome::Given } else { Outcome::Refused };
        assert_eq!(request(&world, 7, 2, ANSWER_NS), expected);
        assert_eq!(world.doorbells.get(), 1);
    }
}

#[test]
fn a_back_end_that_is_busy_for_too_long_refuses() {
    let mut deed = |_: &Pool, _: u64| ();
    let world = World::new(&mut deed);
    assert_eq!(request(&world, 7, 2, ANSWER_NS), Outcome::Refused);
    assert!(seconds(&world) < 3.1, "{}", seconds(&world));
    assert!(world.can_request(), "it lives");
    // The request was taken back.
    world.pool.serve_memory_requests(|_, _| panic!("it was not"), |_| ());
}

#[test]
fn a_dead_back_end_is_waited_for_once() {
    let mut deed = |_: &Pool, _: u64| ();
    let mut world = World::new(&mut deed);
    world.alive_until = 0;
    assert_eq!(request(&world, 7, 2, ANSWER_NS), Outcome::NoAnswer);
    assert!(seconds(&world) < 3.1, "{}", seconds(&world));
    let before = world.now();
    assert_eq!(request(&world, 7, 2, ANSWER_NS), Outcome::NoAnswer);
    assert_eq!(world.now(), before, "nobody need wait again");
    world.alive_until = u64::MAX;
    assert!(!world.can_request(), "nor anybody else");
    world.pool.heartbeat(2);
    assert!(world.can_request(), "until it is back");
}

#[test]
fn one_that_ends_in_good_order_is_not_waited_for() {
    let mut deed = |pool: &Pool, _: u64| pool.set_gives(false);
    let world = World::new(&mut deed);
    assert_eq!(request(&world, 7, 2, ANSWER_NS), Outcome::NoAnswer);
    assert!(seconds(&world) < 0.1);
}

#[test]
fn who_writes_into_the_slots_keeps_nobody_for_ever() {
    for word in [0, u64::MAX, 3, 1 << 52] {
        let mut deed = |pool: &Pool, _: u64| {
            let slots = &pool.root().memory_requests;
            slots.iter().for_each(|slot| slot.store(word, SeqCst));
        };
        let world = World::new(&mut deed);
        assert_eq!(request(&world, 7, 2, ANSWER_NS), Outcome::Refused, "{word:#x}");
        assert!(seconds(&world) < 12.0, "{}", seconds(&world));
        assert!(world.doorbells.get() < 10_000);
    }
}

#[test]
fn a_lost_answer_is_requested_again() {
    let mut thrown_away = false;
    let mut deed = |pool: &Pool, _: u64| {
        if !thrown_away {
            thrown_away = true;
            pool.serve_memory_requests(|_, _| true, |_| ());
            let slots = &pool.root().memory_requests;
            slots.iter().for_each(|slot| slot.store(1 << 52, SeqCst));
        } else {
            pool.serve_memory_requests(|_, _| true, |_| ());
        }
    };
    let world = World::new(&mut deed);
    assert_eq!(request(&world, 7, 2, ANSWER_NS), Outcome::Given);
    assert_eq!(world.doorbells.get(), 2);
}

#[test]
fn the_slots_of_the_dead_are_waited_for() {
    let mut seen = vshmem_pool::memory_requests::Unfetched::default();
    let mut deed = |pool: &Pool, now: u64| {
        pool.serve_memory_requests(|_, _| true, |_| ());
        if now % SECOND == 0 {
            pool.forget_unfetched(&mut seen);
        }
    };
    let world = World::new(&mut deed);
    while world.pool.request_memory(9, 1, 1).is_some() {}
    assert_eq!(request(&world, 7, 2, 4 * SECOND), Outcome::Given);
    // A member that is known to be dead leaves none.
    let member = world.pool.join([9; 16], b"dead").unwrap();
    while world.pool.request_memory(member, 1, 1).is_some() {}
    world.pool.declare_dead(member);
    let before = world.now();
    assert_eq!(request(&world, 7, 2, ANSWER_NS), Outcome::Given);
    assert!(world.now() - before < SECOND / 10);
}
