//! Rings that a queue has left while somebody was stopped in the middle of a message.

use crate::calls::*;
use crate::image::{crash, stopped, stopped_then_crash};
use crate::queues::{brief, check_removed, count, nth, queue_with, take_all, works, HUGE, LONG};
use crate::world::{world, Process};
use crate::Scenario;
use vshmem_ipc::msg;

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    ("leaving a ring where a sender is stopped", 31, || retires(true, 0)),
    ("leaving a ring where a receiver is stopped", 31, || retires(false, 0)),
    ("going on after a ring was left", 9, goes_on),
    ("collecting a ring that was left", 9, || retires(true, 1)),
    ("collecting a ring that was left by the dead", 9, || retires(true, 2)),
    ("collecting a ring that a receiver was stopped in", 9, || retires(false, 1)),
    ("IPC_RMID of a queue that has left a ring", 9, || retires(true, 3)),
];

/// A queue that leaves a ring in which somebody is stopped. Who is killed: 0 who leaves it; 1 who collects it
/// after the stopped one has gone on; 2 the same after that one has died; 3 who removes the queue.
fn retires(sender: bool, which: u32) {
    let victim = Process::new();
    let id = queue_with(&[10, 20]);
    let p = Process::new();
    let task = if sender {
        stopped(p, 2, move |c| send(c, id, 40, &text(40, LONG), 0).map(|()| (0, Vec::new())))
    } else {
        stopped(p, 2, move |c| receive(c, id, 8192, 0, 0))
    };
    assert!(!task.is_over());
    let leave = move |c: &C| send(c, id, 50, &text(50, HUGE), 0);
    let began = if which == 0 { crash(victim, leave) } else { Some(Process::new().call(leave)) };
    match which {
        0 | 1 => task.go_on(),
        2 => p.kill(),
        _ => {}
    }
    world().rest();
    if which < 2 {
        assert!(task.is_over(), "nobody holds it up");
    }
    if which == 3 {
        crash(Process::new(), move |c| msg::remove(c, id));
        p.kill();
        return check_removed(id);
    }
    if which > 0 {
        crash(victim, move |c| msg::stat(c, id));
    }
    let mut wanted = vec![nth(0, 10), nth(1, 20)];
    if !sender {
        wanted.remove(0);
    }
    if sender && which != 2 {
        wanted.push((40, text(40, LONG)));
    }
    let n = count(id).0 as usize;
    if n > wanted.len() {
        wanted.push((50, text(50, HUGE)));
    } else {
        assert!(began.is_none());
    }
    let found = take_all(id);
    assert!(found == wanted, "{:?}, not {:?}", brief(&found), brief(&wanted));
    works(id);
}

/// Who was stopped in a ring that the queue has left goes on, and is killed on its way.
fn goes_on() {
    let id = queue_with(&[10, 20]);
    // As far as where it has its cells; from there on it is another's task to die.
    let p = Process::new();
    let task = stopped_then_crash(
        p,
        2,
        move |c| send(c, id, 40, &text(40, LONG), 0),
        move || {
            Process::new().call(move |c| send(c, id, 50, &text(50, HUGE), 0)).expect("sent");
        },
    );
    let found = take_all(id);
    let mut wanted = vec![nth(0, 10), nth(1, 20), (40, text(40, LONG)), (50, text(50, HUGE))];
    if found.len() < 4 {
        assert!(task.is_none());
        wanted.remove(2);
    }
    assert!(found == wanted, "{:?}", brief(&found));
    works(id);
}
