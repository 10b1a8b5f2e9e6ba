//! Spinning at a queue, without its lock, until there is something to do.
//!
//! The owner of the lock keeps fast paths off both ends, for a moment. If all calls that come meanwhile
//! wanted the lock, too, it would never be free again where many use the queue, and each call would take the
//! slow path. So they wait until they may go on, unless a sleeper has to be served under the lock.

use super::choose::Wanted;
use super::done;
use super::end::At;
use super::mark::State;
use super::queue::Queue;
use super::ring::{cells_for, Ring};
use crate::Ctx;
use vshmem_pool::atomic::Ordering::{Acquire, Relaxed};

/// Does a receiver wait, to which a message has to be handed while fast paths are kept off the sending end?
/// Or is the queue gone, so that nobody will ever let them go on?
pub fn is_receiver_waiting(queue: &Queue) -> bool {
    queue.entry.first_receiver.load(Relaxed) != 0 || !queue.still()
}

/// Does a sender wait, which has to be woken while fast paths are kept off the receiving end? Or is the queue
/// gone?
fn is_sender_waiting(queue: &Queue) -> bool {
    queue.entry.first_sender.load(Relaxed) != 0 || !queue.still()
}

/// Spins until there may be space; returns the rounds that are left.
pub fn spin_for_space(c: &Ctx, queue: &Queue, len: usize, rounds: u32) -> u32 {
    let cells = cells_for(len);
    for round in 1..=rounds {
        let tail = At::of(queue.entry.send.at.load());
        if tail.slow {
            // Else the owner of the lock lets it go soon.
            if is_receiver_waiting(queue) {
                return 0;
            }
        } else {
            let Some(ring) = queue.ring(c) else {
                return 0;
            };
            if queue.admits(tail, len) && done::look_for_space(queue, &ring, tail.pos, cells) {
                return rounds - round;
            }
        }
        c.kernel.spinning();
    }
    0
}

/// The state of a queue for a receiver.
pub enum There {
    Nothing,
    /// Somebody has the lock, and lets it go soon.
    Locked,
    /// One message, and that is certainly not wanted. Where the ends are.
    OneUnwanted((u64, u64)),
    /// An end has just moved, so nothing can be told.
    Changed,
    /// Messages that have to be looked at under the lock.
    Other,
}

pub fn what_is_there(c: &Ctx, queue: &Queue, wanted: Wanted) -> There {
    let seen = ends(queue);
    let (tail, head) = (queue.tail(), queue.head());
    if head.slow && !is_sender_waiting(queue) {
        return There::Locked;
    }
    let Some(ring) = queue.ring(c).filter(|_| !head.slow && (!tail.slow || head.pos == tail.pos)) else {
        return There::Other;
    };
    let there = match ring.mark(head.pos) {
        None => There::Nothing,
        Some(mark) if mark.state == State::Ready => {
            let behind = head.pos.wrapping_add(cells_for(mark.len as usize));
            match wanted.accepts(ring.kind(head.pos)) {
                false if behind == tail.pos => There::OneUnwanted(seen),
                _ => There::Other,
            }
        }
        Some(_) => There::Other,
    };
    if ends(queue) == seen {
        there
    } else {
        There::Changed
    }
}

/// The positions of both ends.
pub fn ends(queue: &Queue) -> (u64, u64) {
    (queue.entry.send.at.lo.load(Acquire), queue.entry.receive.at.lo.load(Acquire))
}

/// Spins until something came or went: there are messages, but none that is wanted. Returns the rounds that
/// are left.
pub fn spin_for_change(c: &Ctx, queue: &Queue, seen: (u64, u64), rounds: u32) -> u32 {
    for round in 0..rounds {
        if ends(queue) != seen {
            return rounds - round - 1;
        }
        c.kernel.spinning();
    }
    0
}

/// Spins until fast paths may go on, or a sender waits for that. Returns the rounds that are left.
pub fn spin_for_thaw(c: &Ctx, queue: &Queue, rounds: u32) -> u32 {
    for round in 1..=rounds {
        if !queue.head().slow || is_sender_waiting(queue) {
            return rounds - round;
        }
        c.kernel.spinning();
    }
    0
}

/// Spins until there is something at the head. Returns the rounds that are left.
pub fn spin_for_message(c: &Ctx, queue: &Queue, rounds: u32) -> u32 {
    for round in 0..rounds {
        let head = At::of(queue.entry.receive.at.load());
        let is_there = |ring: Ring| ring.mark(head.pos).is_some();
        if head.slow || queue.ring(c).is_none_or(is_there) {
            return rounds - round - 1;
        }
        c.kernel.spinning();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg::end::{freeze, thaw};
    use crate::testing::World;
    use crate::tests::msg::{queue, receive, send};
    use crate::IPC_NOWAIT;
    use core::time::Duration;
    use std::thread;

    const LONG: u32 = 1 << 30;

    /// A queue with a ring and one message in it.
    fn with_a_message(c: &Ctx) -> Queue {
        let id = queue(c);
        send(c, id, 1, b"received").unwrap();
        receive(c, id, 100, 0, IPC_NOWAIT).unwrap();
        send(c, id, 1, b"here").unwrap();
        Queue::find(c, id).unwrap()
    }

    /// Does what keeps fast paths off for some time, while others spin.
    fn while_frozen(queue: &Queue, spin: impl FnOnce()) {
        let entry = queue.entry;
        freeze(&entry.send);
        freeze(&entry.receive);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                thaw(&entry.send);
                thaw(&entry.receive);
            });
            spin();
        });
    }

    #[test]
    fn a_lock_that_is_held_for_a_moment_is_waited_for() {
        let world = World::new(4 << 20);
        let process = world.process();
        let c = &process.ctx();
        let queue = with_a_message(c);
        let any = Wanted::new(0, 0);
        while_frozen(&queue, || {
            assert!(spin_for_space(c, &queue, 4, LONG) > 0);
            assert!(!queue.tail().slow, "it came back before");
        });
        while_frozen(&queue, || {
            assert!(matches!(what_is_there(c, &queue, any), There::Locked));
            assert!(spin_for_thaw(c, &queue, LONG) > 0 && !queue.head().slow);
        });
        freeze(&queue.entry.receive);
        freeze(&queue.entry.send);
        assert_eq!((spin_for_space(c, &queue, 4, 100), spin_for_thaw(c, &queue, 100)), (0, 0));
    }

    #[test]
    fn who_sleeps_is_served_at_once() {
        let world = World::new(4 << 20);
        let process = world.process();
        let c = &process.ctx();
        let queue = with_a_message(c);
        let entry = queue.entry;
        for (end, first) in [(&entry.send, &entry.first_receiver), (&entry.receive, &entry.first_sender)] {
            freeze(end);
            first.store(1, Relaxed);
        }
        assert_eq!(spin_for_space(c, &queue, 4, LONG), 0);
        assert_eq!(spin_for_thaw(c, &queue, LONG), LONG - 1);
        assert!(matches!(what_is_there(c, &queue, Wanted::new(0, 0)), There::Other));
    }
}
