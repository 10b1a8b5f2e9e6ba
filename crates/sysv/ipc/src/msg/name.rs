//! Names beside messages that are not finished. An end names the process that moved it last; the next one to
//! move it writes that name into the message's mark first.

use super::done;
use super::end::At;
use super::mark::{Mark, State};
use super::queue::Queue;
use super::ring::Ring;
use crate::Ctx;
use vshmem_pool::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use vshmem_pool::layout::MsgEnd;

/// Writes the names of the processes that moved the ends last beside their messages, if these are not
/// finished.
pub fn name_the_last(c: &Ctx, queue: &Queue) {
    let (tail, head) = (queue.tail(), queue.head());
    if let Some(ring) = queue.ring(c) {
        name_sender(queue, &ring, tail);
        name_receiver(queue, &ring, head);
    }
}

/// Names the last sender, if its message is not there yet.
#[inline]
pub fn name_sender(queue: &Queue, ring: &Ring, tail: At) {
    if is_sender_named(queue, tail) {
        return;
    }
    let pos = tail.pos.wrapping_sub(tail.step.into());
    let word = ring.mark_word(pos);
    let mut old = word.load(Acquire);
    // A late process may yet name a receiver of the lap before, once or twice. Only one that scribbles goes
    // on for ever.
    for _ in 0..MOST_CHANGES {
        // A mark of another lap is of an earlier one only as long as the tail stands still. Of a later one,
        // it would be a message's.
        if ring.valid(pos, old).is_some() || has_moved(&queue.entry.send, tail) {
            return;
        }
        let named =
            Mark { state: State::Reserved, lap: ring.lap(pos), len: tail.step.into(), owner: tail.owner };
        // A mark of an earlier lap never comes back, so a late process does nothing here.
        match word.compare_exchange(old, named.word(), AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

/// Is the last sender's message there, as far as is said beside the tail? Its mark is in the receiver's
/// cache.
#[inline(always)]
pub fn is_sender_named(queue: &Queue, tail: At) -> bool {
    tail.step == 0 || queue.entry.send.finished.load(Acquire) as u32 == tail.pos
}

/// Most changes of a mark while its lap is over.
const MOST_CHANGES: u32 = 1000;

/// Names the last receiver, if it has not finished.
#[inline]
pub fn name_receiver(queue: &Queue, ring: &Ring, head: At) {
    let pos = head.pos.wrapping_sub(head.step.into());
    if is_receiver_named(queue, head) {
        return;
    }
    let old = ring.mark_word(pos).load(Acquire);
    let mark = (ring.valid(pos, old)).filter(|m| m.state == State::Ready);
    // If the head has moved, the ring may have become somebody's memory, who writes there what looks like a
    // mark.
    if let Some(mark) = mark.filter(|_| !has_moved(&queue.entry.receive, head)) {
        let named = Mark { state: State::Taken, owner: head.owner, ..mark };
        let _ = ring.mark_word(pos).compare_exchange(old, named.word(), AcqRel, Relaxed);
    }
}

/// Has the last receiver finished, and everybody before it? Then `done` is at the head.
#[inline(always)]
pub fn is_receiver_named(queue: &Queue, head: At) -> bool {
    head.step == 0 || done::at(queue) == head.pos
}

fn has_moved(end: &MsgEnd, at: At) -> bool {
    end.at.lo.load(Acquire) as u32 != at.pos
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use crate::tests::msg::{queue, receive, send};
    use crate::IPC_NOWAIT;

    #[test]
    fn names_that_come_a_lap_late_harm_no_message() {
        let world = World::new(4 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = queue(c);
        let pass = |text: &[u8]| {
            send(c, id, 1, text).unwrap();
            assert_eq!(receive(c, id, 100, 0, IPC_NOWAIT), Ok((1, text.to_vec())));
        };
        // The first makes the ring.
        pass(b"first");
        pass(b"second");
        let queue = Queue::find(c, id).unwrap();
        let ring = queue.ring(c).unwrap();
        for _ in 0..3 {
            let (tail, head) = (queue.tail(), queue.head());
            assert_eq!((tail.step, head.step), (1, 1));
            for _ in 1..ring.cells() {
                pass(b"between");
            }
            send(c, id, 1, b"where the first one was").unwrap();
            assert_eq!(queue.tail().pos, tail.pos + ring.cells());
            name_sender(&queue, &ring, tail);
            name_receiver(&queue, &ring, head);
            assert_eq!(receive(c, id, 100, 0, IPC_NOWAIT), Ok((1, b"where the first one was".to_vec())));
        }
    }

    #[test]
    fn a_new_queue_does_not_begin_with_what_another_had_finished() {
        let world = World::new(4 << 20);
        let process = world.process();
        let c = &process.ctx();
        let id = queue(c);
        for _ in 0..3 {
            send(c, id, 1, b"x").unwrap();
        }
        let old = Queue::find(c, id).unwrap();
        assert_eq!(old.entry.send.finished.load(Acquire) as u32, old.tail().pos);
        crate::msg::remove(c, id).unwrap();
        let new = Queue::find(c, queue(c)).unwrap();
        assert_eq!(new.index, old.index);
        assert_eq!(new.entry.send.finished.load(Acquire) as u32, new.tail().pos);
        assert_ne!(new.tail().pos, 0, "it begins where the old one did");
    }
}
