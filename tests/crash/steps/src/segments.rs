//! Segments, processes that come and go, and the books of the pool.

use crate::calls::*;
use crate::image::{crash, crash_in, stopped};
use crate::mend::mend;
use crate::world::{world, Process};
use crate::Scenario;
use core::sync::atomic::Ordering::Relaxed;
use vshmem_ipc::{check, leave, liveness, reclaim, sem, shm, Errno, IPC_CREAT, IPC_NOWAIT};
use vshmem_pool::layout::PAGE;
use vshmem_pool::lock::SignalsBlocked;

/// Of sizes below and above what is prepared under the pool's lock.
const SMALL: usize = 5000;
const LARGE: usize = 300_000;

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    ("shmget of a small segment", 9, || get(SMALL)),
    ("shmget of a large segment", 9, || get(LARGE)),
    ("shmget where something was removed", 9, get_used),
    ("shmget that finds one", 0, get_found),
    ("shmat, the first", 7, attach_first),
    ("shmat beside others", 7, attach_more),
    ("shmdt, one of two", 7, || detach(2)),
    ("shmdt, the last", 7, || detach(1)),
    ("shmdt where the dead are attached", 7, detach_beside_the_dead),
    ("taking off what was detached without the lock", 7, takes_off),
    ("IPC_RMID of a small segment", 7, || remove(SMALL)),
    ("IPC_RMID of a large segment", 7, || remove(LARGE)),
    ("IPC_RMID of an attached segment", 7, remove_attached),
    ("the last shmdt after IPC_RMID, small", 7, || detach_removed(SMALL)),
    ("the last shmdt after IPC_RMID, large", 7, || detach_removed(LARGE)),
    ("IPC_SET and SHM_LOCK", 0, set),
    ("fork with attachments", 7, fork),
    ("exit with attachments", 7, exit),
    ("joining", 0, join),
    ("joining where the dead are", 5, join_beside_the_dead),
    ("joining a full pool", 31, join_full),
    ("making room", 15, make_room),
    ("giving memory back", 15, give_back),
    ("reaping a machine", 9, reap_machine),
    ("vshmem check", 5, checks),
];

fn segment(size: usize) -> i32 {
    Process::new().call(move |c| shm::get(c, KEY, size, CREATE)).expect("a segment")
}

/// Fills a segment, so that its memory does not read as zeros.
fn soil(id: i32) {
    let extent = Process::new().call(move |c| shm::look(c, id, 0)).expect("a segment");
    let at = world().pool().mem().range(extent.offset, extent.len).expect("pages");
    // SAFETY: checked to be in the pool, and nobody else uses it now.
    unsafe { core::ptr::write_bytes(at, 0x5a, extent.len as usize) };
}

/// It can be made again or found, is of zeros, and can be removed.
fn check_get(size: usize, result: Option<Result<i32, Errno>>) {
    let p = Process::new();
    let id = p.call(move |c| shm::get(c, KEY, size, CREATE)).expect("it is there or can be made");
    assert!(result.is_none_or(|r| r == Ok(id)));
    let extent = p.call(move |c| shm::look(c, id, 0)).expect("it is there");
    for at in (extent.offset..extent.offset + extent.len).step_by(8) {
        let word = world().pool().mem().word_anywhere(at).expect("pages");
        assert_eq!(word.load(Relaxed), 0, "it reads as zeros");
    }
    p.call(move |c| shm::remove(c, id)).expect("it can be removed");
    assert_eq!(p.call(|c| shm::info(c).1), shm::ShmInfo::default());
}

fn get(size: usize) {
    let result = crash(Process::new(), move |c| shm::get(c, KEY, size, CREATE));
    check_get(size, result);
}

fn get_used() {
    let id = segment(SMALL);
    soil(id);
    Process::new().call(move |c| shm::remove(c, id)).expect("it is removed");
    let result = crash(Process::new(), move |c| shm::get(c, KEY, SMALL, CREATE));
    check_get(SMALL, result);
}

fn get_found() {
    segment(SMALL);
    let result = crash(Process::new(), move |c| shm::get(c, KEY, SMALL, IPC_CREAT));
    Process::new().call(|c| shm::get(c, KEY, SMALL, 0)).expect("it is there still");
    assert!(result.is_none_or(|r| r.is_ok()));
}

fn attach_first() {
    let id = segment(SMALL);
    crash(Process::new(), move |c| shm::attach(c, id, 0));
    assert_eq!(Process::new().call(move |c| attached(c, id)), 0);
}

fn attach_more() {
    let id = segment(SMALL);
    let (other, p) = (Process::new(), Process::new());
    other.call(move |c| shm::attach(c, id, 0)).expect("attached");
    p.call(move |c| shm::attach(c, id, 0)).expect("attached");
    crash(p, move |c| shm::attach(c, id, 0));
    assert_eq!(Process::new().call(move |c| attached(c, id)), 1);
    other.call(move |c| shm::detach(c, id));
    assert_eq!(Process::new().call(move |c| attached(c, id)), 0);
}

fn detach(times: u32) {
    let id = segment(SMALL);
    let p = Process::new();
    for _ in 0..times {
        p.call(move |c| shm::attach(c, id, 0)).expect("attached");
    }
    crash(p, move |c| shm::detach(c, id));
    assert_eq!(Process::new().call(move |c| attached(c, id)), 0);
}

fn detach_beside_the_dead() {
    let id = segment(SMALL);
    let (p, dead) = (Process::new(), [Process::new(), Process::new()]);
    for q in [dead[0], p, dead[1]] {
        q.call(move |c| shm::attach(c, id, 0)).expect("attached");
    }
    dead.iter().for_each(|p| p.kill());
    crash(p, move |c| shm::detach(c, id));
    assert_eq!(Process::new().call(move |c| attached(c, id)), 0);
}

fn takes_off() {
    let id = segment(SMALL);
    let (p, q) = (Process::new(), Process::new());
    for who in [p, p, q] {
        who.call(move |c| shm::attach(c, id, 0)).expect("attached");
    }
    let owner = stopped(Process::new(), 3, move |c| shm::lock(c, id, true));
    assert_ne!(world().pool().root().lock.load(Relaxed), 0, "it is held");
    for who in [p, q] {
        who.call(move |c| shm::detach(c, id));
    }
    owner.go_on();
    owner.wait().expect("it goes on");
    crash(Process::new(), move |c| shm::stat(c, id));
    assert_eq!(Process::new().call(move |c| attached(c, id)), 1);
    p.call(move |c| shm::detach(c, id));
    assert_eq!(Process::new().call(move |c| attached(c, id)), 0);
}

/// Nothing is left of it: not if its removal had begun, not after it is removed now.
fn check_removed(id: i32, size: usize) {
    let p = Process::new();
    if p.call(|c| shm::get(c, KEY, 0, 0)).is_ok() {
        p.call(move |c| shm::remove(c, id)).expect("it is removed");
    }
    mend();
    assert_eq!(p.call(|c| shm::info(c).1), shm::ShmInfo::default());
    check_get(size, None);
}

fn remove(size: usize) {
    let id = segment(size);
    soil(id);
    crash(Process::new(), move |c| shm::remove(c, id));
    check_removed(id, size);
}

fn remove_attached() {
    let id = segment(SMALL);
    let other = Process::new();
    other.call(move |c| shm::attach(c, id, 0)).expect("attached");
    let result = crash(Process::new(), move |c| shm::remove(c, id));
    assert_eq!(Process::new().call(move |c| attached(c, id)), 1);
    let found = Process::new().call(|c| shm::get(c, KEY, 0, 0));
    assert!(found == Err(Errno::ENOENT) || (found == Ok(id) && result.is_none()));
    other.call(move |c| shm::detach(c, id));
    check_removed(id, SMALL);
}

fn detach_removed(size: usize) {
    let id = segment(size);
    soil(id);
    let p = Process::new();
    p.call(move |c| shm::attach(c, id, 0)).expect("attached");
    Process::new().call(move |c| shm::remove(c, id)).expect("removed");
    crash(p, move |c| shm::detach(c, id));
    check_removed(id, size);
}

fn set() {
    let id = segment(SMALL);
    crash(Process::new(), move |c| {
        shm::lock(c, id, true).expect("locked");
        shm::set(c, id, 1000, 1000, 0o640).expect("set");
    });
    let mode = Process::new().call(move |c| shm::stat(c, id)).expect("it is there").perm.mode;
    assert!([0o666, 0o2666, 0o2640].contains(&mode), "{mode:o}");
}

fn fork() {
    let (one, other) = (segment(SMALL), segment(SMALL));
    let two = Process::new().call(|c| shm::get(c, 0, SMALL, CREATE)).expect("a segment");
    assert_eq!(one, other);
    let (p, child) = (Process::new(), Process::newcomer(7));
    for id in [one, one, two] {
        p.call(move |c| shm::attach(c, id, 0)).expect("attached");
    }
    // The child lives only if the fork comes about.
    child.kill();
    crash_in(p, |p| {
        child.child_of(p);
        let c = &p.context();
        shm::fork(c, &SignalsBlocked::hurried(c.kernel), c.me, child.id())
    });
    for id in [one, two] {
        assert_eq!(Process::new().call(move |c| attached(c, id)), 0);
    }
}

fn exit() {
    let one = segment(SMALL);
    let two = Process::new().call(|c| shm::get(c, 0, SMALL, CREATE)).expect("a segment");
    let p = Process::new();
    for id in [one, one, two] {
        p.call(move |c| shm::attach(c, id, 0)).expect("attached");
    }
    Process::new().call(move |c| shm::remove(c, two)).expect("removed");
    crash(p, |c| {
        if leave(c) {
            c.pool.free_process(c.me);
        }
    });
    assert_eq!(Process::new().call(move |c| attached(c, one)), 0);
    mend();
    assert_eq!(Process::new().call(|c| shm::info(c).1.used_ids), 1);
}

fn join() {
    // A kernel that is new to the pool.
    crash_in(Process::newcomer(8), Process::claim);
    Process::newcomer(8).start(Process::claim).wait();
    Process::newcomer(7).start(Process::claim).wait();
}

/// A process that died with something of each kind.
fn dies_with_things() -> [i32; 2] {
    let p = Process::new();
    let (segment, set) = p.call(|c| {
        let segment = shm::get(c, 0, SMALL, CREATE).expect("a segment");
        shm::attach(c, segment, 0).expect("attached");
        let set = set_of(c, &[5, 5]);
        sem::op(c, set, &[undone(0, -1)], None).expect("done");
        (segment, set)
    });
    p.begin(move |c| sem::op(c, set, &[op(0, -9)], None));
    world().rest();
    p.kill();
    [segment, set]
}

fn join_beside_the_dead() {
    let all: Vec<_> = (0..3).map(|_| dies_with_things()).collect();
    crash_in(Process::newcomer(7), Process::claim);
    let p = Process::new();
    for [segment, set] in all {
        assert_eq!(p.call(move |c| attached(c, segment)), 0);
        assert_eq!(p.call(move |c| values(c, set)), [5, 5]);
    }
}

fn join_full() {
    let things = dies_with_things();
    let slots = world().pool().proc_slots();
    // Each one that is here lives, but for the few that died.
    let mut all = Vec::new();
    while all.len() < slots as usize - 3 {
        let p = Process::new();
        all.push(p);
    }
    for p in all.iter().step_by(9) {
        p.kill();
    }
    crash_in(Process::newcomer(7), Process::claim);
    let p = Process::new();
    assert_eq!(p.call(move |c| attached(c, things[0])), 0);
    assert_eq!(p.call(move |c| values(c, things[1])), [5, 5]);
}

/// Leaves free pages in pieces, some of which may not read as zeros.
fn leave_pieces() {
    let p = Process::new();
    let all: Vec<_> = p.call(|c| {
        let get = |_| shm::get(c, 0, 3 * PAGE as usize, CREATE).expect("a segment");
        (0..8).map(get).collect()
    });
    all.iter().for_each(|id| soil(*id));
    for id in all.into_iter().step_by(2) {
        p.call(move |c| shm::remove(c, id)).expect("removed");
    }
}

fn make_room() {
    leave_pieces();
    let signals = |c: &C| {
        let signals = vshmem_pool::lock::SignalsBlocked::new(c.kernel);
        liveness::free_up(c, &signals);
    };
    crash(Process::new(), signals);
    Process::new().call(signals);
    let p = Process::new();
    let id = p.call(|c| shm::get(c, KEY, LARGE, CREATE)).expect("there is room");
    p.call(move |c| shm::remove(c, id)).expect("removed");
}

fn give_back() {
    let id = segment(LARGE);
    soil(id);
    // As if it were a machine that removed it, which can't punch holes: the pages are free and may not read
    // as zeros.
    Process::new().call(move |c| shm::attach(c, id, 0)).expect("attached");
    let p = Process::new();
    p.call(move |c| shm::attach(c, id, 0)).expect("attached");
    crash(p, move |c| {
        shm::remove(c, id).expect("removed");
        shm::detach(c, id);
        let mut cursor = reclaim::Cursor::default();
        while reclaim::step(c, 64 << 10, &mut cursor, |_, _| None) == Ok(reclaim::Step::Emptied(0)) {}
    });
    Process::new().call(|c| {
        let signals = vshmem_pool::lock::SignalsBlocked::new(c.kernel);
        liveness::free_up(c, &signals)
    });
    world().living().iter().for_each(|p| p.kill());
    let _ = IPC_NOWAIT;
    check_removed(id, LARGE);
}

fn reap_machine() {
    let machine = Process::newcomer(9);
    machine.start(Process::claim).wait();
    let id = segment(SMALL);
    machine.call(move |c| shm::attach(c, id, 0)).expect("attached");
    let (slot, member) = (machine.id().slot, machine.context().member);
    machine.kill();
    crash(Process::new(), move |c| {
        c.pool.declare_dead(member);
        liveness::reap(c, slot);
        let mut census = vshmem_ipc::census::Census::default();
        while census.step(c, 16).is_none() {}
    });
    Process::new().call(move |c| c.pool.declare_dead(member));
    assert_eq!(Process::new().call(move |c| attached(c, id)), 0);
}

fn checks() {
    // Who comes after a death cleans up after it first.
    let victim = Process::new();
    let [segment, set] = dies_with_things();
    let queue = Process::new().call(queue);
    let (sender, receiver) = (Process::new(), Process::new());
    stopped(sender, 2, move |c| send(c, queue, 1, &text(1, 300), 0));
    stopped(receiver, 3, move |c| sem::remove(c, set));
    stopped(Process::new(), 5, move |c| shm::get(c, 0, LARGE, CREATE));
    let others = world().living().into_iter();
    others.filter(|p| !core::ptr::eq(*p, victim)).for_each(|p| p.kill());
    crash(victim, |c| {
        let mut scratch = vec![0; check::scratch_for(c.pool)];
        check::repair(c).expect("every lock is to be had");
        let mut found = 0;
        check::inspect(c, &mut scratch, |_| found += 1).expect("every lock is to be had");
        assert_eq!(found, 0);
    });
    let p = Process::new();
    assert_eq!(p.call(move |c| attached(c, segment)), 0);
    assert_eq!(p.call(move |c| counts(c, queue)), (0, 0));
}
