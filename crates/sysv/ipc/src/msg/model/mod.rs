//! Queues under a model checker: a few processes at the same time, in a small ring whose positions are about
//! to wrap around.
//!
//! Each message says who sent it, and as which of its messages, all over its text. Then everything that was
//! sent must have come, once and in its sender's order, but for what the dead took with them.

mod dying;
mod ends;
mod retiring;
mod waiting;

use super::queue::Queue;
use super::shortcut::Shortcut;
use super::{receive, send, space, Outgoing};
use crate::modelled::{act, is_in_order, world, LOOKS};
use crate::{msg, Ctx, Errno, IPC_NOWAIT, IPC_PRIVATE};
use core::time::Duration;
use std::vec::Vec;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::model::{Act, Scene, World};

/// A call that a process makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    /// Sends a message of so many cells, if there is room and nobody has the lock.
    Send(u32),
    /// Receives one, if it is there and nobody has the lock.
    Receive,
    /// Sends one under the lock, if the queue's limits admit it.
    SendSlowly,
    /// Sends one as `SendSlowly` does, and leaves the ring where somebody is at work who seems to be stopped.
    Leave,
    /// Receives one, if it is there.
    Take,
    /// Takes what the dead have left.
    Reap,
    /// Sends one, and waits until the queue's limits admit it.
    Wait,
    /// Receives one, and waits for it.
    Await,
    /// Is dead from now on.
    Exit,
}
use Call::*;

impl Call {
    fn sends(self) -> bool {
        matches!(self, Send(_) | SendSlowly | Leave | Wait)
    }
}

/// The messages that a process has sent and received, by number.
#[derive(Default, Debug)]
struct Passed {
    sent: Vec<u64>,
    got: Vec<u64>,
}

/// Most bytes of a text.
const MOST_BYTES: usize = 2 * 64;

fn text(message: u64, cells: u32) -> Vec<u8> {
    let bytes = if cells == 1 { 8 } else { cells as usize * 64 - 56 };
    (0..bytes / 8).flat_map(|_| message.to_le_bytes()).collect()
}

/// The message whose text this is.
fn message(text: &[u8]) -> u64 {
    let words: Vec<_> = text.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert!(words.iter().all(|word| *word == words[0]), "two texts in one: {words:x?}");
    words[0]
}

/// The shortcut to the queue that the process remembers, once it has used it.
fn shortcut(c: &Ctx, id: i32) -> Option<Shortcut> {
    Shortcut::to(c, id, true).map(|(shortcut, _)| shortcut)
}

fn send_one(c: &Ctx, id: i32, call: Call, text: &[u8]) -> bool {
    let (at, len) = (text.as_ptr(), text.len());
    // SAFETY: a slice.
    let sent = unsafe {
        match call {
            Send(_) => {
                let message = Outgoing { kind: 1, text: at, len };
                let by_shortcut =
                    shortcut(c, id).is_some_and(|queue| queue.send(id, message, c.kernel.now()));
                return by_shortcut || send::send_at_once(c, id, message);
            }
            Wait => send::send(c, id, 1, at, len, 0),
            SendSlowly => send::send_under_lock(c, id, 1, text, false),
            _ => send::send_under_lock(c, id, 1, text, true),
        }
    };
    assert!(matches!(sent, Ok(()) | Err(Errno::EAGAIN | Errno::EIDRM)), "{sent:?}");
    sent.is_ok()
}

fn receive_one(c: &Ctx, id: i32, call: Call) -> Option<u64> {
    let mut text = [0; MOST_BYTES];
    let at = text.as_mut_ptr();
    // SAFETY: the array has so many bytes.
    let came = unsafe {
        match call {
            Receive => {
                let by_shortcut = |queue: Shortcut| queue.receive(id, at, MOST_BYTES, 0, 0, c.kernel.now());
                let received = shortcut(c, id).and_then(by_shortcut);
                received.or_else(|| receive::receive_at_once(c, id, at, MOST_BYTES))
            }
            Await => receive::receive(c, id, at, MOST_BYTES, 0, 0).ok(),
            _ => receive::receive(c, id, at, MOST_BYTES, 0, IPC_NOWAIT).ok(),
        }
    };
    came.map(|(len, _)| message(&text[..len]))
}

/// Makes the calls of a process, one after the other.
fn perform(c: &Ctx, id: i32, who: usize, calls: &[Call]) -> Passed {
    let mut passed = Passed::default();
    for (call, n) in calls.iter().zip(1..) {
        let number = who as u64 * 100 + n;
        let cells = if let Send(cells) = call { *cells } else { 1 };
        match *call {
            call if call.sends() => {
                let sent = send_one(c, id, call, &text(number, cells));
                passed.sent.extend(sent.then_some(number));
            }
            Exit => vshmem_pool::model::exit(),
            Reap => {
                let _ = msg::check::recover(c, &SignalsBlocked::new(c.kernel), index(id)).unwrap();
            }
            call => passed.got.extend(receive_one(c, id, call)),
        }
    }
    passed
}

fn index(id: i32) -> u32 {
    id as u32 & 0x1ffff
}

/// A queue with a ring of so many cells, in which the process that does not act has done something.
fn queue(actors: usize, naps: Duration, cells: u32, before: &[Call]) -> (World, i32, Passed) {
    let world = world(actors, naps);
    let c = &world.observer();
    let id = msg::get(c, IPC_PRIVATE, 0o666).unwrap();
    let queue = Queue::find(c, id).unwrap();
    let entry = queue.entry;
    let first = 0u32.wrapping_sub(2 * cells);
    for word in [&entry.send.at.lo, &entry.receive.at.lo] {
        word.store(first.into(), Relaxed);
    }
    for word in [&entry.send.done, &entry.receive.done, &entry.send.sweep, &entry.send.finished] {
        word.store(first.into(), Relaxed);
    }
    {
        let signals = SignalsBlocked::new(c.kernel);
        let slow = queue.lock(c, &signals).unwrap();
        space::enter(&slow, &signals, cells.into()).unwrap();
    }
    // As processes that have used the queue before.
    for actor in 0..=actors {
        world.pool().touch(world.ctx(actor).me, queue.reference());
    }
    let passed = perform(c, id, 9, before);
    (world, id, passed)
}

fn acts(id: i32, acts: &'static [&'static [Call]]) -> Vec<Act<Passed>> {
    let one = |(who, calls): (usize, &&'static [Call])| {
        let calls = *calls;
        act(move |c| perform(c, id, who + 1, calls))
    };
    acts.iter().enumerate().map(one).collect()
}

/// Receives the messages that were left, when all is in order.
fn drain(world: &World, id: i32) -> Passed {
    let c = &world.observer();
    is_in_order(c);
    let got: Vec<u64> = core::iter::from_fn(|| receive_one(c, id, Take)).collect();
    is_in_order(c);
    let ds = msg::stat(c, id).unwrap();
    assert_eq!((ds.qnum, ds.cbytes), (0, 0), "something is counted that is not there");
    // It goes on in the ring, and fast.
    assert_eq!(perform(c, id, 8, &[SendSlowly, Take, Send(1), Receive]).got.len(), 2, "nobody may go on");
    Passed { sent: Vec::new(), got }
}

/// Everything has come that was sent, once and in order. `lost` may be missing, and as many that somebody
/// died with who sent may have come.
fn agree(all: &[Passed], missing: usize, more: usize) {
    for one in all {
        let later = |i: usize| one.got[i + 1..].iter().map(move |b| (one.got[i], *b));
        let mut pairs = (0..one.got.len()).flat_map(later);
        assert!(pairs.all(|(a, b)| a < b || a / 100 != b / 100), "out of order: {all:?}");
    }
    let list = |of: fn(&Passed) -> &Vec<u64>| {
        let mut list: Vec<u64> = all.iter().flat_map(|one| of(one).iter().copied()).collect();
        list.sort_unstable();
        list
    };
    let (sent, got) = (list(|one| &one.sent), list(|one| &one.got));
    assert!(got.windows(2).all(|two| two[0] != two[1]), "it came twice: {all:?}");
    let lost = sent.iter().filter(|m| !got.contains(m)).count();
    let strange = got.iter().filter(|m| !sent.contains(m)).count();
    assert!(lost <= missing && strange <= more, "messages are lost, or nobody sent them: {all:?}");
}

/// Processes do these things at the same time. The first `dies`, or not.
fn play(preemptions: usize, cells: u32, before: &[Call], all: &'static [&'static [Call]], dies: bool) {
    let (world, id, first) = queue(all.len(), LOOKS, cells, before);
    let scene = Scene::new(world, acts(id, all), move |world, outcomes| {
        let died = usize::from(outcomes[0].is_none());
        let sends = usize::from(all[0][0].sends());
        let mut passed: Vec<_> = outcomes.into_iter().flatten().collect();
        passed.push(drain(world, id));
        passed.push(Passed { sent: first.sent.clone(), got: first.got.clone() });
        agree(&passed, died * (1 - sends), died * sends);
    });
    if dies {
        scene.check_deaths(0, preemptions);
    } else {
        scene.check(preemptions);
    }
}
