//! Every call that there is, with what the input says. What they return is the enemy's business, that they
//! return is ours.

use super::buffer::{Buffer, Secret};
use super::kernel::{self, Fuzzed};
use super::memory;
use super::scene::{op, undone, MANY};
use super::steps;
use crate::input::Input;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use vshmem_ipc::census::Census;
use vshmem_ipc::msg::Outgoing;
use vshmem_ipc::sem::Sembuf;
use vshmem_ipc::{
    check, liveness, msg, reclaim, sem, shm, stats, Ctx, Pool, IPC_CREAT, IPC_EXCL, IPC_NOWAIT, IPC_PRIVATE,
};
use vshmem_pool::budget::CALL;
use vshmem_pool::layout::Kind;
use vshmem_pool::lock::SignalsBlocked;

/// Longest text of a message that is asked for.
const TEXT: usize = 9000;

/// For how many values a program has room that knows its set.
const VALUES: usize = 3;

/// Questions that are asked for each entry of a table, and not for what is found there.
pub fn tables(pool: &Pool) -> u64 {
    let entries = Kind::ALL.map(|kind| u64::from(pool.capacity(kind)));
    let geometry = pool.geometry();
    let people = u64::from(geometry.procs.1) + u64::from(geometry.waiters.1);
    4 * (people + entries.iter().sum::<u64>()) + 4096
}

/// Makes one call.
pub fn one(c: &Ctx, kernel: &Fuzzed, secret: Secret, input: &mut Input, ids: &mut Vec<i32>) {
    steps::count();
    let call = input.byte();
    match call % 4 {
        0 => set(c, secret, input, ids),
        1 => queue(c, secret, input, ids),
        2 => segment(c, input, ids),
        _ => everything(c, kernel, input),
    }
}

/// An IPC object that was there, or was made since, or any number.
fn id(input: &mut Input, ids: &[i32], first: usize) -> i32 {
    match input.byte() {
        0..=127 => ids.get(first).copied().unwrap_or(0),
        n @ 128..=250 => ids.get(usize::from(n - 128)).copied().unwrap_or(0),
        _ => input.u32() as i32,
    }
}

fn key(input: &mut Input) -> i32 {
    input.one_of(&[1, 2, 3, IPC_PRIVATE, 7])
}

fn flags(input: &mut Input) -> i32 {
    let more = input.one_of(&[IPC_CREAT, IPC_CREAT | IPC_EXCL, 0, IPC_CREAT]);
    more | input.one_of(&[0o600, 0o666, 0, 0o444])
}

fn any_index(input: &mut Input) -> (i32, bool) {
    let index = input.byte();
    (if index == 255 { input.u32() as i32 } else { index.into() }, index & 1 == 0)
}

fn operations(input: &mut Input) -> Vec<Sembuf> {
    let some = input.byte();
    match some % 8 {
        0 => MANY.to_vec(),
        1 => vec![undone(0, 1)],
        2 => vec![op(0, -1)],
        n => {
            let one = |_| {
                let (num, how) = (u16::from(input.byte() % 5), input.byte());
                let by = if how & 32 == 0 { i16::from(how as i8 % 8) } else { input.u16() as i16 };
                let mut s = if how & 64 == 0 { op(num, by) } else { undone(num, by) };
                s.flg |= if how & 16 == 0 { 0 } else { IPC_NOWAIT as i16 };
                s
            };
            (0..n).map(one).collect()
        }
    }
}

fn soon(input: &mut Input) -> Option<Duration> {
    input.one_of(&[Some(Duration::from_nanos(1)), None, Some(Duration::from_millis(30))])
}

fn set(c: &Ctx, secret: Secret, input: &mut Input, ids: &mut Vec<i32>) {
    let call = input.byte();
    let id = id(input, ids, 0);
    let num = i32::from(input.byte() as i8);
    match call % 20 {
        0..=4 => {
            let wanted = operations(input);
            let (_buffer, sops) = Buffer::with(secret, &wanted);
            done(sem::op(c, id, sops, soon(input)));
        }
        5 => {
            let sop = op(num as u16, input.byte() as i8 as i16);
            if let Some((set, _)) = sem::shortcut::Shortcut::to(c, id) {
                let words = set.words().map(AtomicU64::new);
                // SAFETY: of this shortcut.
                let performed = unsafe { sem::shortcut::op(&words, || true, id, sop.num, || sop.op) };
                done(performed.map(|performed| performed.at(1)));
            }
        }
        6 => done(sem::getval(c, id, num)),
        7 => done(sem::getpid(c, id, num)),
        8 => done((sem::getncnt(c, id, num), sem::getzcnt(c, id, num))),
        9 => {
            let mut all = Buffer::new(secret, 2 * VALUES, 0);
            let (mut values, mut next) = (all.bytes().chunks_exact_mut(2), 0);
            done(sem::getall(c, id, &mut |num, value| {
                assert_eq!(num, next, "values are given in order");
                next += 1;
                let place = values.next();
                place.map(|p| p.copy_from_slice(&value.to_ne_bytes())).is_some()
            }));
        }
        10 => {
            let mut all = Buffer::new(secret, 2 * VALUES, input.byte());
            let mut values = all.bytes().chunks_exact(2);
            done(sem::setall(c, id, &mut |_| values.next().map(|v| u16::from_ne_bytes([v[0], v[1]]))));
        }
        11 => done(sem::setval(c, id, num, input.u16().into())),
        12 => done((sem::stat(c, id), sem::nsems(c, id))),
        13 => {
            let (index, any) = any_index(input);
            done(sem::stat_index(c, index, any));
        }
        14 => done(sem::set(c, id, 1000, 1000, input.u16().into())),
        15 => done((sem::info(c), sem::highest(c))),
        16 | 17 => {
            let nsems = i32::from(input.byte()) * if num == 5 { 500 } else { 1 };
            ids.extend(sem::get(c, key(input), nsems, flags(input)));
        }
        18 => {
            // As a signal handler that calls does.
            if let Some(waiter) = c.pool.waiter(num.unsigned_abs() % 16) {
                waiter.owner.store(c.me.word(), Relaxed);
                vshmem_ipc::interrupt(c, &raw const waiter.status, call & 128 != 0);
            }
        }
        _ => done(sem::remove(c, id)),
    }
}

fn queue(c: &Ctx, secret: Secret, input: &mut Input, ids: &mut Vec<i32>) {
    let call = input.byte();
    let which = 1 + usize::from(call >> 7);
    let id = id(input, ids, which);
    match call % 20 {
        0..=4 => {
            let len = input.u16() as usize % TEXT;
            let mut text = Buffer::new(secret, len, input.byte());
            let kind = i64::from(input.byte());
            let flg = input.one_of(&[0, IPC_NOWAIT]);
            // SAFETY: the text has so many bytes.
            done(unsafe { msg::send(c, id, kind, text.as_mut_ptr(), len, flg) });
        }
        5 => {
            let len = input.byte() as usize;
            let mut text = Buffer::new(secret, len, 5);
            let message = Outgoing { kind: 1, text: text.as_mut_ptr(), len };
            if let Some((queue, _)) = msg::shortcut::Shortcut::to(c, id, true) {
                // SAFETY: the text has so many bytes.
                done(unsafe { queue.send(id, message, 1) });
            }
        }
        6..=10 => {
            let cap = input.u16() as usize % TEXT;
            let mut text = Buffer::new(secret, cap, 0);
            let kind = i64::from(input.byte() as i8);
            let flg = input.one_of(&[0, IPC_NOWAIT, msg::MSG_NOERROR, IPC_NOWAIT | msg::MSG_COPY])
                | input.one_of(&[0, msg::MSG_NOERROR, msg::MSG_EXCEPT]);
            // SAFETY: the buffer has so many bytes.
            if let Ok((n, _)) = unsafe { msg::receive(c, id, text.as_mut_ptr(), cap, kind, flg) } {
                assert!(n <= cap, "{n} bytes in {cap}");
            }
        }
        11 => {
            let cap = input.byte() as usize;
            let mut text = Buffer::new(secret, cap, 0);
            let kind = i64::from(input.byte() as i8);
            if let Some((queue, _)) = msg::shortcut::Shortcut::to(c, id, true) {
                // SAFETY: the buffer has so many bytes.
                let got = unsafe { queue.receive(id, text.as_mut_ptr(), cap, kind, 0, 1) };
                assert!(got.is_none_or(|(n, _)| n <= cap), "more than there is room for");
            }
        }
        12 => done(msg::stat(c, id)),
        13 => {
            let (index, any) = any_index(input);
            done(msg::stat_index(c, index, any));
        }
        14 | 15 => done(msg::set(c, id, 1000, 1000, 0o666, input.u16().into())),
        16 => done((msg::info(c), msg::highest(c))),
        17 | 18 => ids.extend(msg::get(c, key(input), flags(input))),
        _ => done(msg::remove(c, id)),
    }
}

fn segment(c: &Ctx, input: &mut Input, ids: &mut Vec<i32>) {
    let call = input.byte();
    let id = id(input, ids, 3);
    match call % 14 {
        0 | 1 => {
            let found = shm::attach(c, id, 0);
            if let Ok(extent) = found {
                touch(c, extent.offset, extent.len);
            }
        }
        2 => {
            if let Ok(extent) = shm::look(c, id, 0) {
                touch(c, extent.offset, extent.len);
            }
        }
        3 | 4 => shm::detach(c, id),
        5 => done((shm::stat(c, id), shm::size(c, id))),
        6 => {
            let (index, any) = any_index(input);
            done(shm::stat_index(c, index, any));
        }
        7 => done(shm::set(c, id, 1000, 1000, input.u16().into())),
        8 => done(shm::lock(c, id, call & 128 != 0)),
        9 => done((shm::info(c), shm::highest(c))),
        10..=12 => {
            let size = usize::from(input.u16()) << (input.byte() % 5);
            ids.extend(shm::get(c, key(input), size, flags(input)));
        }
        _ => done(shm::remove(c, id)),
    }
}

/// What a program may be given to map, it may write to.
fn touch(c: &Ctx, offset: u64, len: u64) {
    let at = c.pool.mem().range(offset, len);
    assert!(at.is_some(), "a segment outside of the pool: {offset:#x} and {len:#x} more");
}

/// As processes that come and go, displays, `vshmem check` and the back end do.
fn everything(c: &Ctx, kernel: &Fuzzed, input: &mut Input) {
    let back = &mut |at, len| c.kernel.reserve(at, len);
    match input.byte() % 14 {
        0 => {
            let _ = stats::totals(c.pool);
            stats::segments(c.pool, back, |_| {});
            stats::sets(c.pool, back, |_| {});
        }
        1 => {
            stats::queues(c.pool, back, |_| {});
            stats::processes(c.pool, back, |_, _| {});
            let mut seen = 0;
            stats::sleepers(c.pool, back, |_| seen += 1);
            assert!(seen <= c.pool.geometry().waiters.1, "a list without end");
        }
        2 => {
            let mut census = Census::default();
            let _ = (0..100).find_map(|_| census.step(c, 1000));
        }
        3 => done(reclaim::step(c, 1 << 16, &mut reclaim::Cursor::default(), |at, _| Some(at))),
        4 => done(reclaim::step(c, 1 << 16, &mut reclaim::Cursor::default(), |_, _| None)),
        5 | 6 => liveness::reap(c, input.byte().into()),
        8 => pass(c, kernel),
        7 => {
            let mut scratch = vec![0; check::scratch_for(c.pool)];
            let mut found = 0u64;
            let _ = check::inspect(c, &mut scratch, |_| found += 1);
        }
        9 => done(check::repair(c)),
        10 => done(liveness::free_up(c, &SignalsBlocked::new(c.kernel))),
        11 => newcomer(c, kernel),
        12 => people(c, input),
        _ => {
            let high = Kind::ALL.map(|kind| c.pool.capacity(kind));
            assert!(high.iter().all(|n| *n > 0));
            done(c.pool.last_heartbeat());
            c.pool.heartbeat(1);
        }
    }
}

/// A pass of the back end's worker. It asks where the pool's file has memory; this one has none.
fn pass(c: &Ctx, kernel: &Fuzzed) {
    // Each piece of memory that is given back has a budget of its own.
    kernel.may_spend(CALL);
    vshmem_agent::fuzz::pass(c, memory::hole(c.pool.mem().len()).into());
}

/// A process comes, is forked off, and goes.
fn newcomer(c: &Ctx, kernel: &Fuzzed) {
    let pid = kernel::LIVING;
    kernel.may_spend(CALL);
    if let Some(child) = liveness::claim(c.pool, c.kernel, c.member, pid, 1, &mut |_| true) {
        let _ = shm::fork(c, &SignalsBlocked::hurried(c.kernel), child, &|_, _| 0);
        let other = Ctx { me: child, pid, ..c.clone() };
        vshmem_ipc::leave(&other);
        c.pool.free_process(child);
    }
}

/// What came of a call is no matter here.
fn done<T>(_: T) {}

/// Members join, are found, have doorbells, and are declared dead.
fn people(c: &Ctx, input: &mut Input) {
    let pool = c.pool;
    let joined = pool.join([input.byte() % 8; 16], b"another");
    let member = joined.unwrap_or(input.u16());
    pool.members(|_, name, _| assert!(name.len() <= 32));
    let _ = (pool.member_peer(member), pool.is_alone(member), pool.is_joined(member));
    pool.set_member_peer(member, input.u16(), 1);
    pool.join_doorbells(member, input.byte().into());
    let _ = pool.is_rung_by_all(member);
    pool.request_doorbell(member).fetch_add(1, Relaxed);
    pool.take_doorbell_requests(|_| {});
    for index in 0..4 {
        if let Some(waiter) = pool.waiter(index) {
            let _ = pool.sleeper_of(&waiter.status);
        }
    }
    pool.leave_doorbells(member);
    if member != c.member {
        pool.declare_dead(member);
        pool.vacate_member(member);
    }
}
