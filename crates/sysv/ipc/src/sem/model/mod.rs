//! `semop` under a model checker: a few processes at the same time, on one semaphore.

mod dying;
mod undoing;
mod waiting;

use super::set::{Set, SLOW};
use super::shortcut::{self, Shortcut};
use super::{Sembuf, SEM_UNDO};
use crate::modelled::is_in_order;
use crate::{sem, waiters, Ctx, Errno, IPC_NOWAIT, IPC_PRIVATE};
use core::time::Duration;
use vshmem_pool::atomic::AtomicU64;
use vshmem_pool::model::World;

/// An operation that waits until it can be done.
fn op(by: i16) -> Sembuf {
    Sembuf { num: 0, op: by, flg: 0 }
}

/// An operation that does not wait.
fn at_once(by: i16) -> Sembuf {
    Sembuf { flg: IPC_NOWAIT as i16, ..op(by) }
}

/// An operation that does not wait, and is taken back when its process dies.
fn undone(by: i16) -> Sembuf {
    Sembuf { flg: IPC_NOWAIT as i16 | SEM_UNDO, ..op(by) }
}

/// Processes forget what they remember of the runs before.
fn forget() {
    waiters::forget_last();
    super::repay::forget_turn();
}

/// Performs an operation as the library does it.
fn semop(c: &Ctx, id: i32, sop: Sembuf) -> Result<(), Errno> {
    let by_shortcut = |(set, _): (Shortcut, _)| {
        if sop.undo() {
            return set.op_undone(c, id, sop);
        }
        let words = set.words().map(AtomicU64::new);
        // SAFETY: of this shortcut.
        unsafe { shortcut::op(&words, || true, id, sop.num, || sop.op) }
    };
    if let Some(performed) = Shortcut::to(c, id).filter(|_| sop.op != 0).and_then(by_shortcut) {
        performed.at(c.kernel.now());
        Ok(())
    } else {
        sem::op(c, id, &[sop], None)
    }
}

/// One semaphore, of this value.
fn semaphore(actors: usize, naps: Duration, value: i32) -> (World, i32) {
    let world = World::new(actors, naps, forget);
    let c = &world.observer();
    let id = sem::get(c, IPC_PRIVATE, 1, 0o666).unwrap();
    sem::setval(c, id, 0, value).unwrap();
    (world, id)
}

/// The value, when all have come to their end, and all is in order.
fn value(world: &World, id: i32) -> i32 {
    let c = &world.observer();
    is_in_order(c);
    let value = sem::getval(c, id, 0).unwrap();
    // Nobody waits, and fast paths may go on, at the latest when somebody has come after the dead.
    let set = Set::find(c, id).unwrap();
    assert!(!set.has_waiters(), "somebody waits");
    semop(c, id, at_once(1)).unwrap();
    let (lo, hi) = set.cell(c, 0).unwrap().load();
    assert_eq!((lo & SLOW, hi), (0, 0), "nobody may go on");
    value
}
