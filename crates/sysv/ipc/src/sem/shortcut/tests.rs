//! Tests of shortcuts to sets.

use super::*;
use crate::sem::{self, SEM_UNDO};
use crate::testing::World;
use crate::{Cred, IPC_PRIVATE};

fn plain(num: u16, op: i16) -> Sembuf {
    Sembuf { num, op, flg: 0 }
}

/// One P or V, as the library makes it.
fn op(set: &Shortcut, id: i32, sop: Sembuf) -> Option<Performed> {
    let words = set.words().map(AtomicU64::new);
    // SAFETY: of this shortcut.
    unsafe { super::op(&words, || true, id, sop.num, || sop.op) }
}

fn to(c: &Ctx, id: i32) -> Shortcut {
    let (shortcut, _) = Shortcut::to(c, id).unwrap();
    // SAFETY: of one shortcut, of this process.
    unsafe { Shortcut::of_words(shortcut.words()) }
}

#[test]
fn it_does_what_the_call_does_or_nothing() {
    let world = World::new(1 << 20);
    let process = world.process();
    let c = &process.ctx();
    let id = sem::get(c, IPC_PRIVATE, 3, 0o600).unwrap();
    let set = to(c, id);
    assert!(op(&set, id, plain(2, 5)).is_some() && op(&set, id, plain(2, -4)).is_some());
    op(&set, id, plain(2, 1)).unwrap().at(77);
    assert_eq!((sem::getval(c, id, 2), sem::getpid(c, id, 2)), (Ok(2), Ok(process.pid())));
    assert_eq!(sem::stat(c, id).unwrap().otime, 77);
    for too_much in [plain(2, -3), plain(2, sem::SEMVMX as i16), plain(3, 1), plain(u16::MAX, 1)] {
        assert!(op(&set, id, too_much).is_none(), "{too_much:?}");
    }
    sem::op(c, id, &[Sembuf { flg: SEM_UNDO, ..plain(0, 1) }], None).unwrap();
    assert!(op(&set, id, plain(0, 1)).is_none(), "somebody may be dead");
    sem::setval(c, id, 1, 7).unwrap();
    sem::remove(c, id).unwrap();
    assert!(op(&set, id, plain(1, 1)).is_none(), "it is removed");
}

#[test]
fn a_value_is_awaited_as_long_as_the_caller_may() {
    let world = World::new(1 << 20);
    let process = world.process();
    let c = &process.ctx();
    let id = sem::get(c, IPC_PRIVATE, 2, 0o600).unwrap();
    let set = to(c, id);
    let give_in = |last| move |round| (round == last).then(|| sem::setval(c, id, 1, 1).unwrap()).is_none();
    assert!(set.awaits_value(plain(1, 1), |_| false) && !set.awaits_value(plain(1, -1), |round| round < 9));
    assert!(set.awaits_value(plain(1, -1), |round| give_in(3)(round) || round < 9));
    assert!(!set.awaits_value(plain(2, 1), |_| true), "no such semaphore");
    set.cell(1).unwrap().lo.fetch_or(SLOW, Relaxed);
    assert!(!set.awaits_value(plain(1, -1), |_| true), "others come first");
}

#[test]
fn an_adjustment_of_the_process_stays_beside_the_semaphore() {
    let world = World::new(1 << 20);
    let (process, other) = (world.process(), world.process());
    let c = &process.ctx();
    let id = sem::get(c, IPC_PRIVATE, 2, 0o600).unwrap();
    let (set, others) = (to(c, id), to(&other.ctx(), id));
    let undone = |op| Sembuf { flg: SEM_UNDO, ..plain(0, op) };
    assert!(set.op_undone(c, id, undone(5)).is_some() && set.op_undone(c, id, undone(-2)).is_some());
    assert!(set.op_undone(c, id, undone(-4)).is_none(), "a value in the way");
    assert!(others.op_undone(&other.ctx(), id, undone(1)).is_none(), "another's is there");
    assert_eq!(sem::getval(c, id, 0), Ok(3));
    assert!(set.op_undone(c, id, undone(-3)).is_some());
    assert!(others.op_undone(&other.ctx(), id, undone(1)).is_some(), "there is none any more");
    assert!(set.op_undone(c, id, undone(1)).is_none());
    other.kill();
    // A process in need finds it dead.
    assert_eq!(
        sem::op(c, id, &[Sembuf { flg: crate::IPC_NOWAIT as i16, ..plain(0, -1) }], None),
        Err(crate::Errno::EAGAIN)
    );
    assert_eq!(sem::getval(c, id, 0), Ok(0));
    for bad in [0, 1, u64::MAX] {
        let entry = c.pool.sem(c.pool.ids().index(id)).unwrap(); // unpaid
        let good = entry.nsems.swap(bad, Relaxed);
        assert!(set.op_undone(c, id, Sembuf { num: 2, ..undone(1) }).is_none());
        entry.nsems.store(good, Relaxed);
    }
    assert!(world.is_untouched_outside());
}

#[test]
fn it_ends_where_the_set_becomes_another() {
    let world = World::new(1 << 20);
    let process = world.process();
    let c = &process.ctx();
    let id = sem::get(c, IPC_PRIVATE, 3, 0o600).unwrap();
    let set = to(c, id);
    sem::set(c, id, 1000, 1000, 0o400).unwrap();
    assert!(op(&set, id, plain(0, 1)).is_none(), "another mode");
    sem::set(c, id, 1000, 1000, 0o600).unwrap();
    assert!(op(&set, id, plain(0, 1)).is_some());
    let entry = c.pool.sem(c.pool.ids().index(id)).unwrap(); // unpaid

    // As with an id that has come back after all others.
    entry.cells.fetch_add(16, Relaxed);
    assert!(op(&set, id, plain(0, 1)).is_none(), "another place");
    entry.cells.fetch_sub(16, Relaxed);
    entry.nsems.store(2, Relaxed);
    assert!(op(&set, id, plain(0, 1)).is_none(), "another size");
    entry.nsems.store(3, Relaxed);
    assert!(op(&set, id, plain(0, 1)).is_some());
}

#[test]
fn it_is_for_the_maker_or_for_all() {
    let world = World::new(1 << 20);
    let (process, other) = (world.process(), world.process());
    let (c, stranger) = (&process.ctx(), &other.ctx());
    other.set_cred(Cred { uid: 2000, gid: 2000, caps: 0 });
    let granted = |c: &Ctx, id| Shortcut::to(c, id).map(|(_, granted)| granted);
    let id = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
    assert_eq!((granted(c, id), granted(stranger, id)), (Some(Granted::User(1000)), None));
    sem::set(c, id, 2000, 1000, 0o600).unwrap();
    assert_eq!((granted(c, id), granted(stranger, id)), (Some(Granted::User(1000)), None), "for now");
    sem::set(c, id, 1000, 1000, 0o666).unwrap();
    assert_eq!((granted(c, id), granted(stranger, id)), (Some(Granted::All), Some(Granted::All)));
    sem::set(c, id, 1000, 1000, 0o466).unwrap();
    assert_eq!((granted(c, id), granted(stranger, id)), (None, None));
}

#[test]
fn it_never_leads_out_of_what_was_checked() {
    let world = World::new(1 << 20);
    let process = world.process();
    let c = &process.ctx();
    let id = sem::get(c, IPC_PRIVATE, 2, 0o600).unwrap();
    let set = to(c, id);
    let entry = c.pool.sem(c.pool.ids().index(id)).unwrap(); // unpaid
    let len = c.pool.mem().len() as u64;
    for bad in [0, 1, len, len - 8, u64::MAX, 1 << 63] {
        for word in [&entry.nsems, &entry.cells] {
            let good = word.swap(bad, Relaxed);
            for num in [0, 1, 2, 3, u16::MAX] {
                assert!(op(&set, id, plain(num, 1)).is_none());
            }
            word.store(good, Relaxed);
        }
    }
    assert!(op(&set, id, plain(1, 1)).is_some() && world.is_untouched_outside());
}

#[test]
fn an_adjustment_names_a_process_of_its_own_pool() {
    let (world, other) = (World::new(1 << 20), World::new(1 << 20));
    let (process, elsewhere) = (world.process(), other.process());
    let (c, e) = (&process.ctx(), &elsewhere.ctx());
    let id = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
    assert_eq!(sem::get(e, IPC_PRIVATE, 1, 0o600).unwrap(), id);
    let undone = Sembuf { flg: SEM_UNDO, ..plain(0, 1) };
    assert!(to(c, id).op_undone(e, id, undone).is_none());
    assert!(to(c, id).op_undone(c, id, undone).is_some());
}

#[test]
fn an_id_that_another_user_has_by_now_leads_nowhere() {
    let world = World::new(1 << 20);
    let (process, victim) = (world.process(), world.process());
    victim.set_cred(Cred { uid: 2000, gid: 2000, caps: 0 });
    let (c, v) = (&process.ctx(), &victim.ctx());
    let id = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
    let set = to(c, id);
    sem::remove(c, id).unwrap();
    for _ in 0..8191 {
        let other = sem::get(c, IPC_PRIVATE, 1, 0o600).unwrap();
        assert_ne!(other, id);
        sem::remove(c, other).unwrap();
    }
    let theirs = sem::get(v, IPC_PRIVATE, 1, 0o600).unwrap();
    assert_eq!(theirs, id);
    assert_eq!(sem::op(c, id, &[plain(0, 1)], None), Err(crate::Errno::EACCES));
    assert!(op(&set, id, plain(0, 1)).is_none(), "another user's set was changed");
}
