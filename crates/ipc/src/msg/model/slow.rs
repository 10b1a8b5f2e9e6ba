//! What is done to a ring under the queue's lock, which one at a time has.

use super::super::end::{At, SLOW};
use super::super::mark::{Mark, State};
use super::super::scan::cells_of;
use super::{after, newest, pack, put, read_end, Did, Queue};
use loom::sync::atomic::Ordering::*;

impl Queue {
    /// The lock is free, or its owner dead.
    pub fn lock(&self) {
        self.send.fetch_or(SLOW, AcqRel);
        self.receive.fetch_or(SLOW, AcqRel);
        let (tail, head) = (read_end(&self.send), read_end(&self.receive));
        self.name_sender(tail);
        self.name_receiver(head);
    }

    pub fn unlock(&self) {
        self.send.fetch_and(!SLOW, AcqRel);
        self.receive.fetch_and(!SLOW, AcqRel);
    }

    fn item(&self, pos: u32, left: u32) -> Option<(Mark, u32)> {
        let mark = self.valid(pos, self.mark_word(pos).load(Acquire))?;
        let cells = cells_of(mark)?;
        (cells >= 1 && cells <= left).then_some((mark, cells))
    }

    /// Calls `stop` with what is between two positions, until it returns true.
    fn find(&self, mut pos: u32, end: u32, mut stop: impl FnMut(u32, Mark, u32) -> bool) {
        while pos != end {
            let left = end.wrapping_sub(pos);
            let Some((mark, cells)) = self.item(pos, left) else {
                self.unsound.store(true, Relaxed);
                return;
            };
            if stop(pos, mark, cells) {
                return;
            }
            pos = pos.wrapping_add(cells);
        }
    }

    fn consume_at(&self, pos: u32, mark: Mark, cells: u32) {
        let used = self.consumed(pos, cells);
        let _ = self.mark_word(pos).compare_exchange(mark.word(), used, AcqRel, Relaxed);
    }

    fn is_dead(&self, owner: u16) -> bool {
        self.dead.load(Acquire) & 1 << owner != 0
    }

    pub fn reap(&self) -> Did {
        let (head, tail) = (read_end(&self.receive), read_end(&self.send));
        self.find(head.pos, tail.pos, |pos, mark, cells| {
            if mark.state == State::Reserved && self.is_dead(mark.owner) {
                self.consume_at(pos, mark, cells);
            }
            false
        });
        self.advance();
        self.catch_up();
        let head = read_end(&self.receive);
        self.find(newest(&self.done) as u32, head.pos, |pos, mark, cells| {
            if mark.state == State::Taken && self.is_dead(mark.owner) {
                self.consume_at(pos, mark, cells);
            }
            false
        });
        self.catch_up();
        Did::Nothing
    }

    fn advance(&self) {
        let (head, tail) = (read_end(&self.receive), read_end(&self.send));
        let mut pos = head.pos;
        self.find(head.pos, tail.pos, |at, mark, cells| {
            let used = mark.state == State::Consumed;
            if used {
                pos = at.wrapping_add(cells);
            }
            !used
        });
        if pos != head.pos {
            self.receive.store(pack(At { pos, ..after(head, 0, 0) }), Release);
            self.head.store(pos, Relaxed);
        }
        self.catch_up();
    }

    /// Both ends are frozen.
    pub fn send_slowly(&self, me: u16, id: u64, cells: u32) -> Did {
        let tail = read_end(&self.send);
        if !self.look_for_space(tail.pos, cells) {
            return Did::Nothing;
        }
        self.write(tail.pos, id, cells);
        put(self.mark_word(tail.pos), self.ready(tail.pos, cells, me));
        self.send.store(pack(after(tail, cells, 0)), Release);
        Did::Passed(tail.pos, id)
    }

    /// Both ends are frozen.
    pub fn take(&self) -> Did {
        let (head, tail) = (read_end(&self.receive), read_end(&self.send));
        let mut first = None;
        self.find(head.pos, tail.pos, |pos, mark, cells| {
            if mark.state == State::Ready {
                first = Some((pos, cells));
            }
            first.is_some()
        });
        let Some((pos, cells)) = first else {
            return Did::Nothing;
        };
        let id = self.kinds[self.index(pos)].load(Acquire);
        self.set_read(pos, cells, true);
        self.read(pos, id, cells);
        self.set_read(pos, cells, false);
        put(self.mark_word(pos), self.consumed(pos, cells));
        self.receive.store(pack(after(head, 0, 0)), Release);
        self.advance();
        Did::Passed(pos, id)
    }
}
