//! The most that a call may cost, whatever a member has written. Honest pools of all sizes are served for a
//! part of that.

use super::msg::{queue, send};
use super::sem::{op, set_of, undone};
use crate::sem::Sembuf;
use crate::testing::World;
use crate::{liveness, msg, sem, shm, Budget, Ctx, Errno, IPC_CREAT, IPC_NOWAIT, IPC_PRIVATE};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use std::vec::Vec;
use std::{thread, vec};
use vshmem_pool::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vshmem_pool::budget::{ASK, CALL};
use vshmem_pool::layout::{Kind, ID_BIT};
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::tuning::LOCK_NS;

/// Bytes of a pool with as many of everything as there may be.
const SIZE: usize = 256 << 20;
/// Semaphores in the largest set that Linux admits.
const MOST_SEMAPHORES: u32 = 32_000;
/// A call may take a second. A machine with much else to do gets three.
const SOON: Duration = Duration::from_secs(3);

/// The call must come back soon.
fn is_soon_back<T>(c: &Ctx, what: &str, call: impl FnOnce(&Ctx) -> T) -> T {
    c.budget.renew();
    let begun = Instant::now();
    let result = call(c);
    assert!(begun.elapsed() < SOON, "{what} took {:?}", begun.elapsed());
    result
}

/// The call must come back soon because its budget is spent.
fn is_cut_short<T>(c: &Ctx, what: &str, call: impl FnOnce(&Ctx) -> T) -> T {
    let result = is_soon_back(c, what, call);
    assert!(c.budget.is_spent(), "{what} was not led astray: nothing was tested");
    result
}

fn word(c: &Ctx, at: u64) -> &'static AtomicU64 {
    c.pool.mem().word(at).unwrap()
}

fn index(id: i32) -> u32 {
    id as u32 & 0x1ffff
}

/// A set with a dead process's adjustment at each semaphore, each one's another.
fn owed_by_many(c: &Ctx) -> i32 {
    let id = sem::get(c, IPC_PRIVATE, MOST_SEMAPHORES as i32, 0o600).unwrap();
    let cells = c.pool.sem(index(id)).unwrap().cells.load(Relaxed);
    for num in 0..u64::from(MOST_SEMAPHORES) {
        let adjustment = 1 << 32;
        word(c, cells + num * 16 + 8).store((num + 100) | adjustment, Relaxed);
    }
    id
}

#[test]
fn adjustments_of_very_many() {
    let world = World::new(SIZE);
    let me = world.process();
    let c = &me.ctx();
    let id = owed_by_many(c);
    for num in 0..3 {
        let value = is_cut_short(c, "GETVAL", |c| sem::getval(c, id, MOST_SEMAPHORES as i32 - 1 - num));
        assert!(value.is_err());
    }
    let all: Vec<Sembuf> = (0..500).map(|num| op(num * 64, -1)).collect();
    let soon = Some(Duration::ZERO);
    is_cut_short(c, "GETALL", |c| sem::getall(c, id, &mut |_, _| true)).unwrap_err();
    is_cut_short(c, "IPC_STAT", |c| sem::stat(c, id)).unwrap_err();
    let _ = is_soon_back(c, "semop", |c| sem::op(c, owed_by_many(c), &all, soon));
}

/// A list of adjustment records that leads back to its first one, whose owner is dead and owes something
/// again and again.
#[test]
fn a_circle_of_adjustments() {
    let world = World::new(SIZE);
    let (me, one, other) = (world.process(), world.process(), world.process());
    let c = &me.ctx();
    let id = set_of(c, &vec![5; MOST_SEMAPHORES as usize]);
    for process in [&one, &other] {
        sem::op(&process.ctx(), id, &[undone(3, -1)], None).unwrap();
    }
    let entry = c.pool.sem(index(id)).unwrap();
    let record = entry.undo.load(Relaxed);
    word(c, record + 8).store(record, Relaxed);
    // Its owner lives and has nothing there: a walk through the list never ends.
    let now = [Sembuf { num: 3, op: -30_000, flg: IPC_NOWAIT as i16 }];
    let result = is_cut_short(c, "semop", |c| sem::op(c, id, &now, None));
    assert!(result.is_err());
    // What it is for is done before it goes round.
    is_cut_short(c, "SETVAL", |c| sem::setval(c, id, 3, 1)).unwrap();
}

/// A queue of waiters that leads back to itself.
#[test]
fn a_circle_of_waiters() {
    let world = World::new(SIZE);
    let (me, waiting) = (world.process(), world.process());
    let c = &me.ctx();
    let id = set_of(c, &vec![0; MOST_SEMAPHORES as usize]);
    waiting.start(move |c| sem::op(c, id, &[op(7, -1)], None));
    crate::testing::until("it waits", || sem::getncnt(c, id, 7) == Ok(1));
    let entry = c.pool.sem(index(id)).unwrap();
    let first = entry.first_waiter.load(Relaxed);
    let waiter = c.pool.waiter(first as u32 - 1).unwrap();
    waiter.next.store(first, Relaxed);
    // It waits for what never comes.
    waiter.ops[0].store(u64::from(8u16) | 0x8001 << 16, Relaxed);
    let _ = is_soon_back(c, "GETNCNT", |c| sem::getncnt(c, id, 8));
    let _ = is_soon_back(c, "semop", |c| sem::op(c, id, &[op(9, 1), op(10, 1)], None));
    let _ = is_soon_back(c, "GETALL", |c| sem::getall(c, id, &mut |_, _| true));
    let _ = is_soon_back(c, "SETALL", |c| sem::setall(c, id, &mut |_| Some(1)));
    let _ = is_soon_back(c, "IPC_RMID", |c| sem::remove(c, id));
}

/// A ring of 2^20 messages that somebody is at work on who lives.
#[test]
fn a_ring_full_of_work() {
    let world = World::new(SIZE * 8);
    let (me, busy) = (world.process(), world.process());
    let c = &me.ctx();
    let id = queue(c);
    send(c, id, 1, b"makes the ring").unwrap();
    let entry = c.pool.msg(index(id)).unwrap();
    let (cells, heap) = (1u64 << 20, c.pool.geometry().small);
    let ring = heap.base + (64 << 20);
    assert!(ring + cells * 128 <= heap.base + u64::from(heap.count) * 256);
    for pos in 0..cells {
        let reserved = 1 | 1 << 24 | (u64::from(busy.id().slot) + 1) << 48;
        word(c, ring + pos * 32).store(reserved, Relaxed);
    }
    entry.ring.store(ring, Relaxed);
    entry.cells.store(cells, Relaxed);
    for (end, pos) in [(&entry.receive, 0), (&entry.send, cells)] {
        end.at.lo.store(pos, Relaxed);
        end.at.hi.store(0, Relaxed);
        end.done.store(0, Relaxed);
        end.sweep.store(1 << 30, Relaxed);
    }
    let begun = Instant::now();
    let text = [0u8; 100];
    c.budget.renew();
    // SAFETY: an array.
    let sent = unsafe { msg::send(c, id, 1, text.as_ptr(), text.len(), IPC_NOWAIT) };
    assert!(sent.is_err(), "{sent:?}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// A lock's word that names another owner all the time.
#[test]
fn a_lock_that_never_stands_still() {
    let world = World::new(8 << 20);
    let (me, one, other) = (world.process(), world.process(), world.process());
    let c = &me.ctx();
    let id = set_of(c, &[0, 0]);
    let lock = &world.pool().sem(index(id)).unwrap().lock;
    let owners = [&one, &other].map(|p| 1 << 30 | u32::from(p.id().generation & 0x3fff) << 16 | p.id().slot);
    world.hurry(1 << 6);
    lock.store(owners[1], Relaxed);
    let over = Arc::new(AtomicBool::new(false));
    let liar = thread::spawn({
        let over = over.clone();
        move || {
            for round in 0.. {
                lock.store(owners[round % 2], Relaxed);
                if over.load(Relaxed) {
                    lock.store(0, Relaxed);
                    return;
                }
                thread::sleep(Duration::from_micros(50));
            }
        }
    });
    let begun = Instant::now();
    for _ in 0..3 {
        c.budget.renew();
        let waits_not = [op(0, 1), op(1, 1)];
        assert_eq!(sem::op(c, id, &waits_not, None), Err(Errno::EIDRM));
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    over.store(true, Relaxed);
    liar.join().unwrap();
}

/// A lock that is held from when a call begins to sleep: to look around and to leave the queue are one wait.
#[test]
fn a_lock_that_a_sleeper_does_not_get() {
    let world = World::new(8 << 20);
    let (me, other) = (world.process(), world.process());
    let id = set_of(&me.ctx(), &[0]);
    let lock = &world.pool().sem(index(id)).unwrap().lock;
    let owner = 1 << 30 | u32::from(other.id().generation & 0x3fff) << 16 | other.id().slot;
    const HURRY: u32 = 1 << 6;
    world.hurry(HURRY);
    let timeout = Duration::from_secs(10);
    let begun = Instant::now();
    let waits = me.start(move |c| sem::op(c, id, &[op(0, -1)], Some(timeout)));
    crate::testing::until("it waits", || sem::getncnt(&other.ctx(), id, 0) == Ok(1));
    lock.store(owner, Relaxed);
    assert_eq!(waits.result(), Err(Errno::EIDRM));
    let took = begun.elapsed() * HURRY;
    let most = timeout + Duration::from_nanos(LOCK_NS);
    assert!(took < most + Duration::from_secs(8), "{took:?}");
    lock.store(0, Relaxed);
}

/// A lock that somebody holds costs something also where nobody waits for it any more: there may be very
/// many.
#[test]
fn a_held_lock_is_paid_for() {
    let world = World::new(8 << 20);
    let (me, other) = (world.process(), world.process());
    let c = &Ctx { budget: Budget::new(ASK), ..me.ctx() };
    let id = other.id();
    let owner = 1 << 30 | u32::from(id.generation & 0x3fff) << 16 | id.slot;
    c.pool.root().lock.store(owner, Relaxed);
    c.budget.add_wait(u64::MAX / 2);
    assert!(crate::directory::lock(c, &SignalsBlocked::hurried(c.kernel)).is_err());
    assert!(c.budget.is_spent());
    c.pool.root().lock.store(0, Relaxed);
}

/// A dead process that may have something of every IPC object there could be.
#[test]
fn a_dead_process_that_may_have_been_everywhere() {
    let world = World::new(SIZE);
    let (me, dead) = (world.process(), world.process());
    let c = &me.ctx();
    for kind in Kind::ALL {
        let capacity = c.pool.capacity(kind);
        c.pool.kind_root(kind).high.store(capacity.into(), Relaxed);
        for index in 0..capacity {
            let head = c.pool.head(kind, index).unwrap();
            head.id.store(ID_BIT | index, Relaxed);
            // A lock is nobody's that is known, so it is taken over each time, with a log of some size.
            if let (Kind::Sem, Some(sem)) = (kind, c.pool.sem(index)) {
                sem.nsems.store(60_000, Relaxed);
                sem.cells.store(c.pool.geometry().small.base, Relaxed);
            }
        }
    }
    let slot = c.pool.proc(dead.id().slot).unwrap();
    slot.overflow.store(1, Relaxed);
    dead.kill();
    let begun = Instant::now();
    let _ = world.try_process();
    assert!(begun.elapsed() < SOON, "a first call took {:?}", begun.elapsed());
    is_cut_short(c, "making room", |c| {
        liveness::free_up(c, &SignalsBlocked::new(c.kernel));
        // Half is left for what room was needed for.
        assert!(!c.budget.is_spent());
        c.budget.spend(CALL / 2);
    });
}

/// An honest pool: a part of the budget is enough, in sets of all sizes and with many processes.
#[test]
fn honest_pools_are_within_the_budget() {
    let world = World::new(SIZE);
    let me = world.process();
    let c = &Ctx { budget: Budget::new(CALL / 4), ..me.ctx() };
    let cheap = |what: &str, call: &dyn Fn()| {
        c.budget.renew();
        call();
        assert!(!c.budget.is_spent(), "{what}");
    };
    let id = sem::get(c, IPC_PRIVATE, MOST_SEMAPHORES as i32, 0o600).unwrap();
    let others: Vec<_> = (0..100).map(|_| world.process()).collect();
    for (i, other) in others.iter().enumerate() {
        sem::op(&other.ctx(), id, &[undone(i as u16, 2), undone(0, 2)], None).unwrap();
    }
    cheap("SETALL", &|| sem::setall(c, id, &mut |_| Some(3)).unwrap());
    for (i, other) in others.iter().enumerate() {
        sem::op(&other.ctx(), id, &[undone(i as u16, 2), undone(0, 2)], None).unwrap();
        let waits = [op(31_000, -4), op(i as u16 * 50, -1)];
        other.start(move |c| sem::op(c, id, &waits, None));
    }
    crate::testing::until("all wait", || {
        c.budget.renew();
        sem::getncnt(c, id, 31_000) == Ok(100)
    });
    cheap("GETALL", &|| sem::getall(c, id, &mut |_, _| true).unwrap());
    cheap("GETVAL", &|| assert!(sem::getval(c, id, 0).is_ok()));
    let most: Vec<Sembuf> = (0..500).map(|i| undone(i * 60, 1)).collect();
    cheap("semop", &|| sem::op(c, id, &most, None).unwrap());
    cheap("semop that serves all", &|| sem::op(c, id, &[op(31_000, 500)], None).unwrap());
    others.iter().for_each(|other| other.kill());
    cheap("GETVAL after deaths", &|| assert!(sem::getval(c, id, 0).is_ok()));
    cheap("IPC_RMID", &|| sem::remove(c, id).unwrap());
    cheap("making room", &|| assert!(liveness::free_up(c, &SignalsBlocked::new(c.kernel))));
    let segments: Vec<i32> = (0..4096)
        .map(|key| {
            c.budget.renew();
            shm::get(c, key + 1, 4096, IPC_CREAT | 0o600).unwrap()
        })
        .collect();
    cheap("SHM_INFO", &|| assert_eq!(shm::info(c).0, 4095));
    for id in segments {
        cheap("shmctl", &|| shm::remove(c, id).unwrap());
    }
}
