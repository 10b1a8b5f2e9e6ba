use super::*;
use core::cell::{Cell, RefCell};
use vshmem_pool::{Mem, Params};

const SECOND: u64 = 1_000_000_000;
/// A rest takes so long on the clock here.
const REST: u64 = 1_000_000;

/// What a back end, or somebody else, does whenever who asks rests.
type Deed<'a> = dyn FnMut(&Pool, u64) + 'a;

struct Place<'a> {
    pool: Pool,
    memory: *mut u8,
    clock: Cell<u64>,
    rings: Cell<u32>,
    beats_until: u64,
    deed: RefCell<&'a mut Deed<'a>>,
}

const LEN: usize = 1 << 20;

fn layout() -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(LEN, 4096).unwrap()
}

impl<'a> Place<'a> {
    fn new(deed: &'a mut Deed<'a>) -> Place<'a> {
        // SAFETY: the layout has a size, and what is allocated is freed when this is dropped.
        let memory = unsafe { std::alloc::alloc_zeroed(layout()) };
        // SAFETY: it is as long, aligned, and used as a pool only.
        let mem = unsafe { Mem::new(memory, LEN) };
        Pool::format(mem, &Params::default()).unwrap();
        let pool = Pool::open(mem).unwrap();
        pool.set_gives(true);
        pool.beat(1);
        Place {
            pool,
            memory,
            clock: Cell::new(0),
            rings: Cell::new(0),
            beats_until: u64::MAX,
            deed: RefCell::new(deed),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used any more.
        unsafe { std::alloc::dealloc(self.memory, layout()) };
    }
}

impl Host for Place<'_> {
    fn pool(&self) -> &Pool {
        &self.pool
    }
    fn member(&self) -> u16 {
        3
    }
    fn can_ask(&self) -> bool {
        let (beat, _) = self.pool.last_beat().unwrap();
        self.pool.gives() && !self.pool.is_silent(beat) && !self.is_silent(beat)
    }
    fn ring(&self) -> bool {
        self.rings.set(self.rings.get() + 1);
        true
    }
    fn is_silent(&self, _beat: u64) -> bool {
        self.now() > self.beats_until.saturating_add(2 * SECOND)
    }
    fn now(&self) -> u64 {
        self.clock.get()
    }
    fn rest(&self, _word: &AtomicU32, _seen: u32) {
        self.clock.set(self.now() + REST);
        (self.deed.borrow_mut())(&self.pool, self.now());
    }
}

fn seconds(place: &Place) -> f64 {
    place.now() as f64 / SECOND as f64
}

#[test]
fn an_answer_is_waited_for() {
    for given in [true, false] {
        let mut deed = |pool: &Pool, now: u64| {
            if now > SECOND {
                pool.answer_all(|_, _| given, |member| assert_eq!(member, 3));
            }
        };
        let place = Place::new(&mut deed);
        let expected = if given { Asked::Given } else { Asked::Refused };
        assert_eq!(ask(&place, 7, 2, LONGEST), expected);
        assert_eq!(place.rings.get(), 1);
    }
}

#[test]
fn a_back_end_that_is_busy_for_too_long_refuses() {
    let mut deed = |_: &Pool, _: u64| ();
    let place = Place::new(&mut deed);
    assert_eq!(ask(&place, 7, 2, LONGEST), Asked::Refused);
    assert!(seconds(&place) < 3.1, "{}", seconds(&place));
    assert!(place.can_ask(), "it lives");
    // The question was taken back.
    place.pool.answer_all(|_, _| panic!("it was not"), |_| ());
}

#[test]
fn a_dead_back_end_is_waited_for_once() {
    let mut deed = |_: &Pool, _: u64| ();
    let mut place = Place::new(&mut deed);
    place.beats_until = 0;
    assert_eq!(ask(&place, 7, 2, LONGEST), Asked::NoAnswer);
    assert!(seconds(&place) < 3.1, "{}", seconds(&place));
    let before = place.now();
    assert_eq!(ask(&place, 7, 2, LONGEST), Asked::NoAnswer);
    assert_eq!(place.now(), before, "nobody need wait again");
    place.beats_until = u64::MAX;
    assert!(!place.can_ask(), "nor anybody else");
    place.pool.beat(2);
    assert!(place.can_ask(), "until it is back");
}

#[test]
fn one_that_ends_in_good_order_is_not_waited_for() {
    let mut deed = |pool: &Pool, _: u64| pool.set_gives(false);
    let place = Place::new(&mut deed);
    assert_eq!(ask(&place, 7, 2, LONGEST), Asked::NoAnswer);
    assert!(seconds(&place) < 0.1);
}

#[test]
fn who_writes_into_the_slots_keeps_nobody_for_ever() {
    for word in [0, u64::MAX, 3, 1 << 52] {
        let mut deed = |pool: &Pool, _: u64| {
            let asks = &pool.root().asks;
            asks.iter().for_each(|slot| slot.store(word, SeqCst));
        };
        let place = Place::new(&mut deed);
        assert_eq!(ask(&place, 7, 2, LONGEST), Asked::Refused, "{word:#x}");
        assert!(seconds(&place) < 12.0, "{}", seconds(&place));
        assert!(place.rings.get() < 10_000);
    }
}

#[test]
fn a_lost_answer_is_asked_for_again() {
    let mut thrown_away = false;
    let mut deed = |pool: &Pool, _: u64| {
        if !thrown_away {
            thrown_away = true;
            pool.answer_all(|_, _| true, |_| ());
            let asks = &pool.root().asks;
            asks.iter().for_each(|slot| slot.store(1 << 52, SeqCst));
        } else {
            pool.answer_all(|_, _| true, |_| ());
        }
    };
    let place = Place::new(&mut deed);
    assert_eq!(ask(&place, 7, 2, LONGEST), Asked::Given);
    assert_eq!(place.rings.get(), 2);
}

#[test]
fn the_slots_of_the_dead_are_waited_for() {
    let mut seen = vshmem_pool::asks::Seen::default();
    let mut deed = |pool: &Pool, now: u64| {
        pool.answer_all(|_, _| true, |_| ());
        if now % SECOND == 0 {
            pool.forget_answers(&mut seen);
        }
    };
    let place = Place::new(&mut deed);
    while place.pool.ask_for_memory(9, 1, 1).is_some() {}
    assert_eq!(ask(&place, 7, 2, 4 * SECOND), Asked::Given);
    // A member that is known to be dead leaves none.
    let member = place.pool.join([9; 16], b"dead").unwrap();
    while place.pool.ask_for_memory(member, 1, 1).is_some() {}
    place.pool.bury_member(member);
    let before = place.now();
    assert_eq!(ask(&place, 7, 2, LONGEST), Asked::Given);
    assert!(place.now() - before < SECOND / 10);
}
