//! The ring of a queue under loom: every interleaving of a few senders and receivers, up to a bound of
//! preemptions.
//!
//! A change of one of these changes its mirror here, with the same steps in the same order and with the same
//! orderings: `attempt` of [`super::send`] and [`super::receive`], `try_send` and `take` with `consume`
//! (where there is room and a message), `name_sender`, `name_receiver` and `Queue::lock` of [`super::queue`],
//! all of [`super::done`], and `find`, `reap`, `reap_behind` and `advance` of [`super::scan`]. Marks and ends
//! are the real ones, without counts of bytes and messages.
//!
//! What differs: an end is one word, read twice, first for its position and then for the rest, as the real
//! two are; so a read may be torn, and a swap of both is one of loom's. Loom takes sequentially consistent
//! loads for acquiring ones, so they are swaps that change nothing: these read the newest value, which is
//! what the real ones do among sequentially consistent writes. A store to a mark is a swap, too: otherwise
//! loom lets a name that was written before it come after it. One at a time takes the lock, and transactions
//! are the stores that they end in. Nobody sleeps: who finds no room or no message tries so often, and gives
//! up. Text is memory that loom watches: two who use it at once, or one who overwrites what is not read yet,
//! fail the test.

use super::end::At;
use super::mark::{Mark, State};
use super::ring::{cells_for, CELL};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::vec::Vec;

mod retired;
mod scene;
mod slow;

/// Where somebody dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    /// When it has moved the end.
    Moved,
    /// When the message is there, or `done` moved or the message marked as consumed, and nothing else.
    Marked,
}

/// What a call did.
enum Did {
    /// The message, and where it was.
    Passed(u32, u64),
    /// No room, or no message.
    Nothing,
    /// Not a matter for the fast path.
    Slow,
    /// It died.
    Died,
}

struct Queue {
    cells: u32,
    send: AtomicU64,
    finished: AtomicU64,
    remembered: AtomicU64,
    receive: AtomicU64,
    done: AtomicU64,
    marks: Vec<AtomicU64>,
    kinds: Vec<AtomicU64>,
    text: Vec<UnsafeCell<u64>>,
    /// Whom the kernel says to be dead: bits.
    dead: AtomicU64,
    /// The process that dies, and where.
    fate: Option<(u16, Death)>,
    /// Cells that are being read: known to the model alone, as what follows.
    read: Vec<AtomicBool>,
    /// The head.
    head: AtomicU32,
    /// Something had no name.
    unsound: AtomicBool,
    /// A process that names a sender looks whether the tail has moved, as it must. One test shows what
    /// happens otherwise.
    looks_again: bool,
}

// SAFETY: loom runs one thread at a time, and reports text that two use at once.
unsafe impl Sync for Queue {}

/// A load that is sequentially consistent: see the file's head.
fn newest(word: &AtomicU64) -> u64 {
    word.fetch_or(0, Acquire)
}

/// A releasing store: see the file's head.
fn put(word: &AtomicU64, value: u64) {
    word.swap(value, Release);
}

fn pack(at: At) -> u64 {
    let (lo, hi) = at.words();
    lo | hi
}

fn split(word: u64) -> (u64, u64) {
    (word & u64::from(u32::MAX), word & !u64::from(u32::MAX))
}

fn load(end: &AtomicU64) -> (u64, u64) {
    (split(end.load(Acquire)).0, split(end.load(Acquire)).1)
}

fn read_end(end: &AtomicU64) -> At {
    loop {
        let pair = load(end);
        if split(end.load(Acquire)).0 == pair.0 {
            return At::of(pair);
        }
    }
}

fn cas(end: &AtomicU64, (lo, hi): (u64, u64), new: At) -> bool {
    end.compare_exchange(lo | hi, pack(new), SeqCst, SeqCst).is_ok()
}

fn has_moved(end: &AtomicU64, at: At) -> bool {
    end.load(Acquire) as u32 != at.pos
}

/// An end that was moved by `cells` past `at`.
fn after(at: At, cells: u32, owner: u16) -> At {
    At { pos: at.pos.wrapping_add(cells), owner, step: if owner == 0 { 0 } else { cells as u16 }, ..at }
}

impl Queue {
    /// An empty ring. Positions begin a lap before they wrap around.
    fn new(cells: u32) -> Queue {
        let first = 0u32.wrapping_sub(cells);
        let word = |of: u32| AtomicU64::new(of.into());
        let queue = Queue {
            cells,
            send: word(first),
            finished: word(first),
            remembered: word(first),
            receive: word(first),
            done: word(first),
            marks: (0..cells).map(word).collect(),
            kinds: (0..cells).map(word).collect(),
            text: (0..cells).map(|_| UnsafeCell::new(0)).collect(),
            dead: word(0),
            fate: None,
            read: (0..cells).map(|_| AtomicBool::new(false)).collect(),
            head: AtomicU32::new(first),
            unsound: AtomicBool::new(false),
            looks_again: true,
        };
        for pos in (0..cells).map(|i| first.wrapping_add(i)) {
            let nothing = Mark::free(queue.lap(pos).wrapping_sub(1));
            queue.mark_word(pos).store(nothing.word(), Relaxed);
        }
        queue
    }

    fn lap(&self, pos: u32) -> u32 {
        pos >> self.cells.trailing_zeros() & super::mark::LAP
    }
    fn index(&self, pos: u32) -> usize {
        (pos & (self.cells - 1)) as usize
    }
    fn mark_word(&self, pos: u32) -> &AtomicU64 {
        &self.marks[self.index(pos)]
    }
    fn valid(&self, pos: u32, word: u64) -> Option<Mark> {
        Mark::of(word).filter(|m| m.lap == self.lap(pos))
    }
    fn mark(&self, state: State, pos: u32, len: u32, owner: u16) -> u64 {
        let lap = self.lap(pos);
        Mark { state, lap, len, owner }.word()
    }
    fn indices(&self, pos: u32, cells: u32) -> impl Iterator<Item = usize> + '_ {
        (0..cells).map(move |i| self.index(pos.wrapping_add(i)))
    }

    fn write(&self, pos: u32, id: u64, cells: u32) {
        for i in self.indices(pos, cells) {
            // SAFETY: the cells are the caller's, which is what is being tested: loom reports a concurrent
            // access.
            self.text[i].with_mut(|text| unsafe { *text = id });
        }
        self.kinds[self.index(pos)].store(id, Relaxed);
    }

    /// Reads text that must be this one.
    fn read(&self, pos: u32, id: u64, cells: u32) {
        for i in self.indices(pos, cells) {
            // SAFETY: as above.
            assert_eq!(self.text[i].with(|text| unsafe { *text }), id, "torn");
        }
    }

    fn set_read(&self, pos: u32, cells: u32, now: bool) {
        self.indices(pos, cells).for_each(|i| self.read[i].store(now, Relaxed));
    }

    fn dies(&self, me: u16, at: Death) -> bool {
        let dies = self.fate == Some((me, at));
        if dies {
            self.dead.fetch_or(1 << me, Release);
        }
        dies
    }

    fn ready(&self, pos: u32, cells: u32, me: u16) -> u64 {
        self.mark(State::Ready, pos, cells * CELL as u32, me)
    }

    fn try_send(&self, me: u16, id: u64, cells: u32) -> Did {
        loop {
            let pair = load(&self.send);
            let tail = At::of(pair);
            if tail.slow {
                return Did::Slow;
            }
            if !self.has_space(self.remembered.load(Acquire), tail.pos, cells)
                && !self.look_for_space(tail.pos, cells)
            {
                if read_end(&self.send) == tail {
                    return Did::Nothing;
                }
                continue;
            }
            self.name_sender(tail);
            if cas(&self.send, pair, after(tail, cells, me)) {
                if self.dies(me, Death::Moved) {
                    return Did::Died;
                }
                self.write(tail.pos, id, cells);
                put(self.mark_word(tail.pos), self.ready(tail.pos, cells, me));
                if self.dies(me, Death::Marked) {
                    return Did::Died;
                }
                self.finished.store(tail.pos.wrapping_add(cells).into(), Release);
                return Did::Passed(tail.pos, id);
            }
        }
    }

    fn try_receive(&self, me: u16) -> Did {
        loop {
            let pair = load(&self.receive);
            let head = At::of(pair);
            if head.slow {
                return Did::Slow;
            }
            let unchanged = || read_end(&self.receive) == head;
            let mark = match self.valid(head.pos, self.mark_word(head.pos).load(Acquire)) {
                Some(mark) if mark.state == State::Ready => mark,
                _ if !unchanged() => continue,
                Some(_) => return Did::Slow,
                None => return Did::Nothing,
            };
            let kind = self.kinds[self.index(head.pos)].load(Acquire);
            let cells = cells_for(mark.len as usize);
            self.name_receiver(head);
            let next = after(head, cells, me);
            if cas(&self.receive, pair, next) {
                self.head.store(next.pos, Relaxed);
                if self.dies(me, Death::Moved) {
                    return Did::Died;
                }
                self.set_read(head.pos, cells, true);
                self.read(head.pos, kind, cells);
                return match self.finish(me, head.pos, cells) {
                    true => Did::Passed(head.pos, kind),
                    false => Did::Died,
                };
            }
        }
    }

    fn name_sender(&self, tail: At) {
        if tail.step == 0 || self.finished.load(Acquire) as u32 == tail.pos {
            return;
        }
        let pos = tail.pos.wrapping_sub(tail.step.into());
        let mut old = self.mark_word(pos).load(Acquire);
        loop {
            let moved = || self.looks_again && has_moved(&self.send, tail);
            if self.valid(pos, old).is_some() || moved() {
                return;
            }
            let named = self.mark(State::Reserved, pos, tail.step.into(), tail.owner);
            match self.mark_word(pos).compare_exchange(old, named, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    fn name_receiver(&self, head: At) {
        let pos = head.pos.wrapping_sub(head.step.into());
        if head.step == 0 || newest(&self.done) as u32 == head.pos {
            return;
        }
        let old = self.mark_word(pos).load(Acquire);
        let mark = self.valid(pos, old).filter(|m| m.state == State::Ready);
        if let Some(mark) = mark.filter(|_| !has_moved(&self.receive, head)) {
            let named = self.mark(State::Taken, pos, mark.len, head.owner);
            let _ = self.mark_word(pos).compare_exchange(old, named, AcqRel, Relaxed);
        }
    }

    fn consumed(&self, pos: u32, cells: u32) -> u64 {
        self.mark(State::Consumed, pos, cells, 0)
    }

    fn finish(&self, me: u16, pos: u32, cells: u32) -> bool {
        let moved = self.move_on(pos, cells, true);
        if !moved {
            self.mark_word(pos).swap(self.consumed(pos, cells), SeqCst);
        }
        if self.dies(me, Death::Marked) {
            return false;
        }
        self.catch_up();
        true
    }

    fn catch_up(&self) {
        let mut left = self.cells;
        while left > 0 {
            let pos = newest(&self.done) as u32;
            if newest(&self.receive) as u32 == pos {
                return;
            }
            match self.valid(pos, newest(self.mark_word(pos))) {
                Some(mark) if mark.state == State::Consumed && (1..=left).contains(&mark.len) => {
                    self.move_on(pos, mark.len, false);
                    left -= mark.len;
                }
                _ => return,
            }
        }
    }

    /// `mine`: by who has just read what is there.
    fn move_on(&self, pos: u32, cells: u32, mine: bool) -> bool {
        let next = pos.wrapping_add(cells);
        let moved = self.done.compare_exchange(pos.into(), next.into(), SeqCst, Relaxed).is_ok();
        // Only now, since loom switches threads at such operations alone.
        if mine {
            self.set_read(pos, cells, false);
        }
        let is_read = |i: usize| self.read[i].load(Relaxed);
        assert!(!moved || !self.indices(pos, cells).any(is_read), "done passed a reader");
        let left = self.head.load(Relaxed).wrapping_sub(next);
        assert!(!moved || left <= self.cells, "done passed the head");
        moved
    }

    fn look_for_space(&self, tail: u32, cells: u32) -> bool {
        let remembered = self.remembered.load(Relaxed);
        let done = newest(&self.done);
        let _ = self.remembered.compare_exchange(remembered, done, SeqCst, Relaxed);
        self.has_space(done, tail, cells)
    }

    fn has_space(&self, done: u64, tail: u32, cells: u32) -> bool {
        let used = tail.wrapping_sub(done as u32);
        used <= self.cells && cells <= self.cells - used
    }
}
