//! The position *done* of a ring, before which all cells are free again: receivers move on as they finish.
//!
//! # Why it is correct
//! A receiver that has copied its message out and finds `done` at its own position moves it past its cells.
//! Otherwise a receiver before it has not finished: it leaves a CONSUMED mark, and then looks whether `done`
//! has come to stand at a CONSUMED mark, as does every receiver that has moved `done`. Mark and `done` are
//! written before the other one is read, in one total order, so one of two receivers that finish at the same
//! moment sees what the other did. `done` only grows and never passes the head, behind which every message
//! that is not finished names its receiver, or is the one whose receiver the head names.
//!
//! When the queue is about to leave its ring, `done` is *held*: no receiver can move it, so each that
//! finishes marks its cells, and a receiver that the list of those at work names ends with such a mark
//! ([`super::retired`]).
//!
//! Senders remember `done` on their own line. An old value errs on the safe side; it is replaced by
//! compare-and-swap, so that no sender that slept for long brings one back from before the positions wrapped
//! around.

use super::mark::{Mark, State};
use super::queue::Queue;
use super::ring::Ring;
use crate::Ctx;
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// The mark of cells that carry no message any more.
#[inline]
pub fn consumed(ring: &Ring, pos: u32, cells: u32) -> Mark {
    Mark { state: State::Consumed, lap: ring.lap(pos), len: cells, owner: 0 }
}

/// Says that the caller has copied out the message at a position.
#[inline(always)]
pub fn finish(queue: &Queue, ring: &Ring, pos: u32, cells: u32) {
    let moved = move_on(queue, pos, cells);
    if !moved || queue.entry.receive.at.lo.load(SeqCst) as u32 != at(queue) {
        finish_among_others(*queue, *ring, pos, cells, moved);
    }
}

/// Finishes where other receivers are at work, or `done` can't be moved.
#[inline(never)]
fn finish_among_others(queue: Queue, ring: Ring, pos: u32, cells: u32, moved: bool) {
    if !moved {
        let used = consumed(&ring, pos, cells).word();
        ring.mark_word(pos).swap(used, SeqCst);
    }
    move_over(&queue, &ring, || true);
}

/// Moves `done` over consumed cells, at most up to the head.
pub fn catch_up(c: &Ctx, queue: &Queue, ring: &Ring) {
    move_over(queue, ring, || c.pay(1).is_some());
}

/// Moves `done` over consumed cells as long as it `may` go on, at most once through the ring.
#[inline]
fn move_over(queue: &Queue, ring: &Ring, may: impl Fn() -> bool) {
    let mut left = ring.cells();
    while left > 0 {
        let pos = at(queue);
        if queue.entry.receive.at.lo.load(SeqCst) as u32 == pos {
            return;
        }
        let word = ring.mark_word(pos).load(SeqCst);
        match ring.valid(pos, word) {
            Some(mark) if mark.state == State::Consumed && (1..=left).contains(&mark.len) => {
                move_on(queue, pos, mark.len);
                left -= mark.len;
                if !may() {
                    return;
                }
            }
            _ => return,
        }
    }
}

#[inline]
fn move_on(queue: &Queue, pos: u32, cells: u32) -> bool {
    let next = pos.wrapping_add(cells);
    let done = &queue.entry.receive.done;
    done.compare_exchange(pos.into(), next.into(), SeqCst, Relaxed).is_ok()
}

/// The bit beside the position by which nobody may move it.
const HELD: u64 = 1 << 32;

/// Keeps receivers from moving `done`. The queue's lock is held.
pub fn hold(queue: &Queue) {
    queue.entry.receive.done.fetch_or(HELD, SeqCst);
}

/// Lets receivers move it again.
pub fn let_go(queue: &Queue) {
    let done = &queue.entry.receive.done;
    if done.load(Relaxed) & HELD != 0 {
        done.fetch_and(!HELD, SeqCst);
    }
}

/// The position before which everything is free.
#[inline]
pub fn at(queue: &Queue) -> u32 {
    queue.entry.receive.done.load(SeqCst) as u32
}

/// Are there `cells` free ones after the tail, as far as senders remember?
#[inline]
pub fn remembers_space(queue: &Queue, ring: &Ring, tail: u32, cells: u32) -> bool {
    let done = queue.entry.send.done.load(Acquire) as u32;
    has_space(ring, done, tail, cells)
}

/// Looks, and remembers it.
pub fn look_for_space(queue: &Queue, ring: &Ring, tail: u32, cells: u32) -> bool {
    let remembered = queue.entry.send.done.load(Relaxed);
    let done = at(queue);
    let _ = (queue.entry.send.done).compare_exchange(remembered, done.into(), SeqCst, Relaxed);
    has_space(ring, done, tail, cells)
}

#[inline]
fn has_space(ring: &Ring, done: u32, tail: u32, cells: u32) -> bool {
    let used = tail.wrapping_sub(done);
    used <= ring.cells() && cells <= ring.cells() - used
}
