//! Participants that use a ring at the same time, and what must have become of their messages.

use super::{newest, read_end, Death, Did, Queue};
use loom::thread;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::vec::Vec;

/// The processes that acted before the others began.
const FIRST: u16 = 9;

/// What somebody has sent, and what received: where, and which.
#[derive(Default)]
struct Passed {
    sent: Vec<(u32, u64)>,
    got: Vec<(u32, u64)>,
    died: bool,
}

impl Passed {
    /// Returns whether one has passed.
    fn count(&mut self, did: Did, sends: bool) -> bool {
        let to = if sends { &mut self.sent } else { &mut self.got };
        match did {
            Did::Passed(pos, id) => to.push((pos, id)),
            Did::Died => self.died = true,
            Did::Nothing | Did::Slow => return false,
        }
        true
    }
}

/// What a participant does.
#[derive(Clone, Copy)]
enum Call {
    /// Sends a message of so many cells.
    Send(u32),
    Receive,
    /// Takes the lock, and reaps what the dead have left.
    Reap,
    /// Sends one under the lock.
    SendSlowly(u32),
    /// Receives one under the lock.
    Take,
}
use Call::*;

/// Messages are numbered by their sender.
fn act(queue: &Queue, me: u16, calls: &[Call]) -> Passed {
    let mut passed = Passed::default();
    for (call, n) in calls.iter().zip(1..) {
        let id = u64::from(me) * 100 + n;
        let locks = !matches!(call, Send(_) | Receive);
        if locks {
            queue.lock();
        }
        let did = match call {
            Send(cells) => queue.try_send(me, id, *cells),
            Receive => queue.try_receive(me),
            SendSlowly(cells) => queue.send_slowly(me, id, *cells),
            Take => queue.take(),
            Reap => queue.reap(),
        };
        passed.count(did, matches!(call, Send(_) | SendSlowly(_)));
        if locks {
            queue.unlock();
        }
        if passed.died {
            break;
        }
    }
    passed
}

/// Participants that act at the same time; the last is this thread, and what it does before the others begin
/// is `before`.
#[derive(Clone, Copy)]
struct Scene {
    cells: u32,
    before: &'static [Call],
    acts: &'static [&'static [Call]],
    fate: Option<(u16, Death)>,
    looks_again: bool,
}

impl Scene {
    /// Plays it; then what is left is received, and the accounts must agree. Returns whether all of what was
    /// sent has come.
    fn play(&self) -> bool {
        let mut queue = Queue::new(self.cells);
        let mut all = std::vec![act(&queue, FIRST, self.before)];
        queue.fate = self.fate;
        queue.looks_again = self.looks_again;
        let queue = Arc::new(queue);
        let (mine, theirs) = self.acts.split_last().unwrap();
        let threads: Vec<_> = (1..)
            .zip(theirs.iter())
            .map(|(me, calls)| {
                let queue = queue.clone();
                thread::spawn(move || act(&queue, me, calls))
            })
            .collect();
        all.push(act(&queue, theirs.len() as u16 + 1, mine));
        all.extend(threads.into_iter().map(|t| t.join().unwrap()));
        self.is_right(&queue, all)
    }

    /// Everything that was sent has come once and in order, but for what the dead took with them, and all
    /// cells are free.
    fn is_right(&self, queue: &Queue, mut all: Vec<Passed>) -> bool {
        let mut rest = Passed::default();
        let caught_up = newest(&queue.done) as u32 == read_end(&queue.receive).pos;
        queue.lock();
        queue.reap();
        while rest.count(queue.take(), false) {}
        all.push(rest);
        let in_order = |got: &[(u32, u64)]| {
            let later = |i: usize| got[i + 1..].iter().map(move |b| (got[i].1, b.1));
            let mut pairs = (0..got.len()).flat_map(later);
            pairs.all(|(a, b)| a < b || a / 100 != b / 100)
        };
        let mut right = all.iter().all(|one| in_order(&one.got));
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        for one in &all {
            sent.extend(&one.sent);
            got.extend(&one.got);
        }
        // Positions wrap around, but not by this.
        got.sort_by_key(|(pos, _)| pos.wrapping_add(self.cells));
        right &= in_order(&got) && got.windows(2).all(|two| two[0].0 != two[1].0);
        let missing = sent.iter().filter(|m| !got.contains(m)).count();
        let unknown = got.iter().filter(|m| !sent.contains(m)).count();
        let (head, tail) = (read_end(&queue.receive), read_end(&queue.send));
        right &= head.pos == tail.pos && newest(&queue.done) as u32 == head.pos;
        let (lost, more) = match self.fate {
            Some((me, at)) if all.iter().any(|one| one.died) => {
                let sends = matches!(self.acts[usize::from(me) - 1][0], Send(_));
                (!sends, sends && at == Death::Marked)
            }
            _ => {
                right &= caught_up;
                (false, false)
            }
        };
        right &= missing == usize::from(lost) && unknown == usize::from(more);
        right && !queue.unsound.load(Relaxed)
    }
}

/// Plays a scene in every order that has so many preemptions at the most.
fn check(bound: usize, scene: Scene) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(bound);
    model.check(move || assert!(scene.play(), "messages are lost, or found twice"));
}

/// The same, with somebody who dies here or there.
fn check_death(bound: usize, who: u16, scene: Scene) {
    for at in [Death::Moved, Death::Marked] {
        let fate = Some((who, at));
        check(bound, Scene { fate, ..scene });
    }
}

const fn scene(cells: u32, before: &'static [Call], acts: &'static [&'static [Call]]) -> Scene {
    Scene { cells, before, acts, fate: None, looks_again: true }
}

#[test]
fn two_senders_and_a_receiver() {
    let before = &[Send(1), Receive, Send(1)];
    check(2, scene(2, before, &[&[Send(1)], &[Send(1)], &[Receive]]));
}

#[test]
fn two_senders_who_remember_what_is_free() {
    check(2, scene(2, &[Send(1); 2], &[&[Send(1)], &[Send(1)], &[Receive]]));
}

#[test]
fn a_sender_and_two_receivers() {
    check(2, scene(2, &[Send(1); 2], &[&[Receive], &[Receive], &[Send(1)]]));
}

#[test]
fn a_sender_and_a_receiver_over_laps() {
    check(4, scene(2, &[Send(1)], &[&[Send(1); 3], &[Receive; 3]]));
}

#[test]
fn long_and_short_messages() {
    check(2, scene(4, &[Send(2), Send(1)], &[&[Receive], &[Receive], &[Send(2)]]));
    check(2, scene(2, &[Send(1); 2], &[&[Receive], &[Send(2)], &[Receive]]));
}

/// The process that is about to name the last sender is held up for a lap, which is short.
const LATE: Scene = scene(1, &[Send(1), Receive], &[&[Send(1)], &[Send(1), Receive]]);

#[test]
fn a_name_that_comes_a_lap_late_harms_no_message() {
    check(3, LATE);
    check(2, scene(1, &[], &[&[Send(1)], &[Send(1), Receive, Send(1)]]));
}

/// That the model can fail.
#[test]
#[should_panic(expected = "messages are lost")]
fn without_a_second_look_a_late_name_hides_a_message() {
    let looks_again = false;
    check(2, Scene { looks_again, ..LATE });
}

#[test]
fn a_dead_sender_is_named() {
    check_death(3, 1, scene(2, &[], &[&[Send(1)], &[Send(1), Receive]]));
}

#[test]
fn a_dead_receiver_is_named() {
    check_death(2, 1, scene(2, &[Send(1); 2], &[&[Receive], &[Receive, Send(1)]]));
}

#[test]
fn a_dead_sender_is_reaped_while_others_work() {
    check_death(2, 1, scene(2, &[Send(1)], &[&[Send(1)], &[Reap]]));
}

#[test]
fn a_dead_receiver_is_reaped_while_others_work() {
    let acts: &'static [&'static [Call]] = &[&[Receive], &[Receive, Reap]];
    check_death(1, 1, scene(2, &[Send(1); 2], acts));
}

#[test]
fn a_living_sender_is_left_alone_under_the_lock() {
    check(2, scene(2, &[Send(1)], &[&[Send(1)], &[Reap, Take]]));
    check(2, scene(2, &[Send(1)], &[&[Send(1)], &[SendSlowly(1)]]));
}

#[test]
fn a_living_receiver_is_left_alone_under_the_lock() {
    check(1, scene(2, &[Send(1); 2], &[&[Receive], &[Take, SendSlowly(1)]]));
    check(1, scene(2, &[Send(1); 2], &[&[Reap], &[Receive]]));
}
