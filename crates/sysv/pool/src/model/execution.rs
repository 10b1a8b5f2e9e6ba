//! One run of a scene: the words that its threads share are loom's.
//!
//! # What stands for what
//! * Each 64-bit word of the pool is one atomic of loom's, whatever the size of the operations on it: a slow
//!   path stores both halves of a word that others use as two. The two words of a [`Pair`](crate::pair::Pair)
//!   are one, too, whose value is an index into a table of pairs.
//! * A *store* is a swap. Loom knows no order of a store and a compare-and-swap that came before it, and
//!   would let the store be the earlier one. The price: who reads it acquires what was released at that word
//!   before, too.
//! * A *sequentially consistent load* is a read-modify-write that changes nothing, since loom takes it for an
//!   acquiring one. It reads the newest value, as the real one does among sequentially consistent writes.
//! * *Bytes* that are copied are cells: loom tells if two use them at once, and one of them writes. An atomic
//!   operation on what is elsewhere copied as bytes counts as such a use.
//! * What one thread reads of another that has not released it may be old, as loom's atomics have it.
//!
//! Loom's objects must be made before the threads are. Which words there are comes out as the scene is
//! played: a run that finds others than were known uses them as plain memory, and is not counted; all begins
//! anew with those that are known then.
//!
//! Memory always holds the newest value of each word. It is put back after each run.

use super::life::{Died, Life};
use super::place::WORD;
pub use super::place::{Change, Place};
use super::turn::{self, switching};
use core::cell::RefCell;
use core::sync::atomic::Ordering;
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use std::boxed::Box;
use std::collections::{BTreeMap, HashMap};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::string::String;
use std::vec::Vec;

/// The kind of the memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A word.
    Word,
    /// A word whose bytes are copied.
    Bytes,
    /// Two words that change at once.
    Pair,
}

/// The object of loom's that stands for a word in this run.
enum Object {
    Word(AtomicU64),
    Bytes(UnsafeCell<()>),
    Pair(AtomicU64),
}

/// The manner in which operations are carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As loom has it.
    Concurrent,
    /// By one thread, whose changes are put back.
    Alone,
}

/// The words that a scene is known to use: address and kind.
pub type Known = BTreeMap<usize, Kind>;

/// A run.
pub struct Execution {
    mode: Mode,
    memory: core::ops::Range<usize>,
    /// The objects that stand for words, by address.
    objects: HashMap<usize, Rc<Object>, Addresses>,
    found: Known,
    /// Pairs that were ever written.
    pairs: Vec<(u64, u64)>,
    /// Words as they were.
    before: Vec<(usize, u64)>,
    /// The events of the run, for people.
    log: Vec<String>,
    logs: bool,
    /// The actor that dies, and before which of its changes.
    fate: Option<(usize, u32)>,
    struck: bool,
    life: Rc<Life>,
}

std::thread_local! {
    static NOW: RefCell<Option<Execution>> = const { RefCell::new(None) };
}

/// Addresses spread well enough by themselves.
#[derive(Clone, Copy, Default)]
struct Addresses;
struct Address(u64);
impl core::hash::BuildHasher for Addresses {
    type Hasher = Address;
    fn build_hasher(&self) -> Address {
        Address(0)
    }
}
impl core::hash::Hasher for Address {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("addresses are whole numbers");
    }
    fn write_usize(&mut self, at: usize) {
        self.0 = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

fn memory(at: usize) -> &'static core::sync::atomic::AtomicU64 {
    // SAFETY: callers pass words of the scene's pool, which outlives all of its runs.
    unsafe { &*core::ptr::with_exposed_provenance::<core::sync::atomic::AtomicU64>(at) }
}

fn newest(at: usize) -> u64 {
    memory(at).load(Ordering::Relaxed)
}

impl Execution {
    /// Begins a run in `memory`, whose `known` words are loom's.
    pub fn begin(memory: core::ops::Range<usize>, known: &Known, fate: Option<(usize, u32)>, life: Life) {
        let mut now = Execution {
            mode: Mode::Concurrent,
            memory,
            objects: HashMap::default(),
            found: Known::new(),
            pairs: Vec::new(),
            before: Vec::new(),
            log: Vec::new(),
            logs: std::env::var_os("MODEL_LOG").is_some(),
            fate,
            struck: false,
            life: Rc::new(life),
        };
        for (at, kind) in known {
            now.add(*at, *kind);
        }
        NOW.set(Some(now));
    }

    fn add(&mut self, at: usize, kind: Kind) {
        let object = Rc::new(match kind {
            Kind::Word => Object::Word(AtomicU64::new(newest(at))),
            Kind::Bytes => Object::Bytes(UnsafeCell::new(())),
            Kind::Pair => Object::Pair(AtomicU64::new(self.number((newest(at), newest(at + WORD))))),
        });
        if kind == Kind::Pair {
            self.objects.insert(at + WORD, object.clone());
        }
        self.objects.insert(at, object);
    }

    /// Ends it, and puts memory back as it was. Returns words that were not known.
    pub fn end() -> Known {
        let now = NOW.take().expect("a run");
        for (at, value) in now.before.iter().rev() {
            memory(*at).store(*value, Ordering::Relaxed);
        }
        now.found
    }

    /// The events of a run that did not come to its end.
    pub fn log() -> String {
        NOW.with_borrow(|now| now.as_ref().map_or_else(String::new, |now| now.log.join("\n")))
    }

    /// Has the run come upon words that were not known?
    pub fn has_found() -> bool {
        NOW.with_borrow(|now| now.as_ref().is_some_and(|now| !now.found.is_empty()))
    }

    /// Did somebody die?
    pub fn struck() -> bool {
        NOW.with_borrow(|now| now.as_ref().is_some_and(|now| now.struck))
    }

    /// Has operations carried out by one thread from now on.
    pub fn alone() {
        NOW.with_borrow_mut(|now| now.as_mut().expect("a run").mode = Mode::Alone);
    }

    /// The number of a pair of values.
    fn number(&mut self, pair: (u64, u64)) -> u64 {
        let known = self.pairs.iter().rposition(|known| *known == pair);
        known.unwrap_or_else(|| {
            self.pairs.push(pair);
            self.pairs.len() - 1
        }) as u64
    }

    fn find(&mut self, at: usize, kind: Kind) -> Option<Rc<Object>> {
        match self.objects.get(&at) {
            Some(object) if object.is(kind) => Some(object.clone()),
            _ => {
                let found = self.found.entry(at).or_insert(kind);
                *found = kind.max(*found);
                None
            }
        }
    }

    fn keep(&mut self, at: usize) {
        self.before.push((at, newest(at)));
    }
}

impl Object {
    /// Does it serve for an operation on this kind of thing?
    fn is(&self, kind: Kind) -> bool {
        match self {
            Object::Word(_) => kind == Kind::Word,
            Object::Bytes(_) => kind != Kind::Pair,
            Object::Pair(_) => true,
        }
    }
}

/// Adds words that were found. What one takes for bytes and another for a word is bytes; both words of a pair
/// are the pair's.
pub fn learn(known: &mut Known, found: Known) {
    for (at, kind) in found {
        let now = known.entry(at).or_insert(kind);
        *now = kind.max(*now);
    }
    let pairs: Vec<_> = known.iter().filter(|(_, kind)| **kind == Kind::Pair).map(|(at, _)| *at).collect();
    for at in pairs {
        known.remove(&(at + WORD));
    }
}

/// Fate has struck: the calling thread's process dies.
fn die(actor: usize) -> ! {
    let life = NOW.with_borrow_mut(|now| {
        let now = now.as_mut().expect("a run");
        now.struck = true;
        now.life.clone()
    });
    life.kill(actor);
    resume_unwind(Box::new(Died));
}

/// Does something in a run, if there is one that has this address.
fn with<T>(at: usize, act: impl FnOnce(&mut Execution) -> T) -> Option<T> {
    NOW.with_borrow_mut(|now| now.as_mut().filter(|now| now.memory.contains(&at)).map(act))
}

/// The kernel's part in a run of several threads: it knows the dead and the sleepers.
pub fn life() -> Option<Rc<Life>> {
    NOW.with_borrow(|now| now.as_ref().filter(|now| now.mode == Mode::Concurrent).map(|now| now.life.clone()))
}

/// Notes something for people.
pub fn note(at: usize, what: impl FnOnce() -> String) {
    let me = turn::actor();
    with(at, |now| {
        let offset = at - now.memory.start;
        if now.logs {
            now.log.push(std::format!("{me}: {offset:#x} {}", what()));
        }
    });
}

/// A change is about to be made by the calling thread: it may be its fate not to come to that.
fn step(at: usize) {
    let me = turn::actor();
    let dies = with(at, |now| match &mut now.fate {
        Some((who, 0)) if *who == me && now.mode == Mode::Concurrent => true,
        Some((who, left)) if *who == me && now.mode == Mode::Concurrent => {
            *left -= 1;
            false
        }
        _ => false,
    });
    if dies == Some(true) {
        die(me);
    }
}

/// The access of an operation to what stands for a word.
enum Access {
    /// It is not loom's.
    Plain,
    /// A thread that is dying, or whose test has failed, changes nothing.
    Nothing,
    Object(Rc<Object>),
}

fn access(at: usize, kind: Kind, changes: bool) -> Access {
    if changes && !std::thread::panicking() {
        step(at);
    }
    let access = with(at, |now| match now.mode {
        Mode::Concurrent if std::thread::panicking() => Access::Nothing,
        Mode::Concurrent => match now.find(at, kind) {
            Some(object) => Access::Object(object),
            None => Access::Plain,
        },
        Mode::Alone => Access::Plain,
    });
    if changes && !matches!(access, Some(Access::Nothing)) {
        with(at, |now| now.keep(at));
    }
    access.unwrap_or(Access::Plain)
}

/// Loads a value; `None` if that is not loom's.
pub fn load(place: Place, order: Ordering) -> Option<u64> {
    if order == Ordering::SeqCst && life().is_some() {
        let same = change_by(place, Change::Or(0), Ordering::Acquire, Ordering::Acquire, false)?;
        return Some(same.unwrap_or_else(|value| value));
    }
    let at = place.word();
    let Access::Object(object) = access(at, Kind::Word, false) else {
        return None;
    };
    let value = match &*object {
        Object::Word(word) => switching(|| word.load(order)),
        Object::Bytes(cell) => cell.with(|_| newest(at)),
        Object::Pair(number) => {
            let number = switching(|| number.load(order));
            with(at, |now| now.half(at, number))?
        }
    };
    let value = place.part(value);
    note(place.at, || std::format!("load {value:#x}"));
    Some(value)
}

/// Changes a value. Returns what it was, in `Err` if it was not changed; `None` if that is not loom's.
pub fn change(
    place: Place,
    change: Change,
    success: Ordering,
    failure: Ordering,
) -> Option<Result<u64, u64>> {
    change_by(place, change, success, failure, true)
}

fn change_by(
    place: Place,
    change: Change,
    success: Ordering,
    failure: Ordering,
    counts: bool,
) -> Option<Result<u64, u64>> {
    let at = place.word();
    let object = match access(at, Kind::Word, counts) {
        Access::Plain => return None,
        Access::Nothing => return Some(Err(place.part(newest(at)))),
        Access::Object(object) => object,
    };
    let result = match &*object {
        Object::Word(word) => place.change_word(word, change, success, failure),
        Object::Bytes(cell) => cell.with_mut(|_| {
            let old = place.part(newest(at));
            let new = change.apply(old);
            if let Some(new) = new {
                memory(at).store(place.with(newest(at), new), Ordering::Relaxed);
            }
            new.map(|_| old).ok_or(old)
        }),
        Object::Pair(number) => change_pair(number, at, success, failure, |pair| {
            let half = if pair.at == at { &mut pair.values.0 } else { &mut pair.values.1 };
            let old = place.part(*half);
            let new = change.apply(old).ok_or(old)?;
            *half = place.with(*half, new);
            Ok(old)
        }),
    };
    note(place.at, || std::format!("{change:x?} {result:x?}"));
    Some(result)
}

impl Place {
    fn change_word(
        self,
        word: &AtomicU64,
        change: Change,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let at = self.word();
        // Bits can be changed whatever the others are, and whole words by one operation.
        let whole = self.len == WORD;
        let old = switching(|| match change {
            Change::Swap(new) if whole => Some(Ok(word.swap(new, success))),
            Change::Replace(old, new) if whole => Some(word.compare_exchange(old, new, success, failure)),
            Change::Add(value) if whole => Some(Ok(word.fetch_add(value, success))),
            Change::And(value) => Some(Ok(word.fetch_and(self.with(u64::MAX, value), success))),
            Change::Or(value) => Some(Ok(word.fetch_or(self.with(0, value), success))),
            _ => None,
        });
        let old = old.unwrap_or_else(|| loop {
            let seen = newest(at);
            let next = change.apply(self.part(seen));
            let order = if next.is_some() { success } else { failure };
            let new = next.map_or(seen, |next| self.with(seen, next));
            if switching(|| word.compare_exchange(seen, new, order, Ordering::Relaxed)).is_ok() {
                break next.map(|_| seen).ok_or(seen);
            }
        });
        // Nobody else runs before this.
        if let Ok(old) = old {
            if let Some(new) = change.apply(self.part(old)) {
                memory(at).store(self.with(old, new), Ordering::Relaxed);
            }
        }
        old.map(|word| self.part(word)).map_err(|word| self.part(word))
    }
}

/// A pair's address and values.
struct PairNow {
    at: usize,
    values: (u64, u64),
}

fn pair_at(at: usize) -> usize {
    at & !(2 * WORD - 1)
}

fn change_pair<T>(
    number: &AtomicU64,
    at: usize,
    success: Ordering,
    failure: Ordering,
    mut change: impl FnMut(&mut PairNow) -> Result<T, T>,
) -> Result<T, T> {
    let at = pair_at(at);
    loop {
        let mut pair = PairNow { at, values: (newest(at), newest(at + WORD)) };
        let seen = pair.values;
        let result = change(&mut pair);
        let order = if result.is_ok() { success } else { failure };
        let numbers = with(at, |now| (now.number(seen), now.number(pair.values)));
        let (old, new) = numbers.expect("a run");
        if switching(|| number.compare_exchange(old, new, order, Ordering::Relaxed)).is_ok() {
            memory(at).store(pair.values.0, Ordering::Relaxed);
            memory(at + WORD).store(pair.values.1, Ordering::Relaxed);
            return result;
        }
    }
}

impl Execution {
    /// One of the values that a number stands for.
    fn half(&self, at: usize, number: u64) -> u64 {
        let (lo, hi) = self.pairs[number as usize];
        if pair_at(at) == at {
            lo
        } else {
            hi
        }
    }
}

/// Two words are used as a pair.
pub fn is_pair(at: usize) {
    if !std::thread::panicking() {
        with(at, |now| now.mode == Mode::Concurrent && now.find(at, Kind::Pair).is_none());
    }
}

/// Replaces a pair, and returns what it was; `None` if that is not loom's.
pub fn replace_pair(at: usize, old: (u64, u64), new: (u64, u64)) -> Option<(u64, u64)> {
    let object = match access(at, Kind::Pair, true) {
        Access::Plain => {
            with(at, |now| now.keep(at + WORD));
            return None;
        }
        Access::Nothing => return Some((newest(at), newest(at + WORD))),
        Access::Object(object) => object,
    };
    with(at, |now| now.keep(at + WORD));
    let Object::Pair(number) = &*object else {
        unreachable!("only a pair serves for a pair");
    };
    let result = change_pair(number, at, Ordering::SeqCst, Ordering::SeqCst, |pair| {
        let seen = pair.values;
        if seen == old {
            pair.values = new;
            Ok(seen)
        } else {
            Err(seen)
        }
    });
    note(at, || std::format!("pair {old:x?} {new:x?} {result:x?}"));
    Some(result.unwrap_or_else(|now| now))
}

fn words(at: usize, len: usize) -> impl Iterator<Item = usize> {
    (at & !(WORD - 1)..at + len).step_by(WORD)
}

/// Bytes are about to be read.
pub fn reads(at: usize, len: usize) {
    for word in words(at, len) {
        if let Access::Object(object) = access(word, Kind::Bytes, false) {
            if let Object::Bytes(cell) = &*object {
                cell.with(|_| ());
            }
        }
    }
    note(at, || std::format!("read {len}"));
}

/// Bytes are about to be written; false if they must not be.
pub fn writes(at: usize, len: usize) -> bool {
    let mut may = true;
    for word in words(at, len) {
        match access(word, Kind::Bytes, true) {
            Access::Plain => {}
            Access::Nothing => may = false,
            Access::Object(object) => {
                if let Object::Bytes(cell) = &*object {
                    cell.with_mut(|_| ());
                }
            }
        }
    }
    note(at, || std::format!("write {len}"));
    may
}

/// Zeros are about to be written; false if they must not be. Only words are told to loom: nobody reads bytes
/// there.
pub fn zeroes(at: usize, len: usize) -> bool {
    let mut may = true;
    for word in words(at, len) {
        let known = with(word, |now| {
            now.keep(word);
            now.objects.contains_key(&word)
        });
        if known == Some(true) && life().is_some() {
            let whole = Place { at: word, len: WORD };
            may &= !std::thread::panicking();
            change(whole, Change::Swap(0), Ordering::Relaxed, Ordering::Relaxed);
        }
    }
    may
}

/// Acts as [`core::sync::atomic::fence`].
pub fn fence(order: Ordering) {
    if life().is_none() {
        core::sync::atomic::fence(order);
    } else if !std::thread::panicking() {
        switching(|| loom::sync::atomic::fence(order));
    }
}
