//! The walk through a pool that makes all checks.

use super::finding::{demand, Finding, Location, Queued, Report};
use super::{allocations, participants};
use crate::{directory as dir, msg, sem, Ctx, Errno};
use vshmem_pool::layout::Kind;
use vshmem_pool::lock::SignalsBlocked;
use vshmem_pool::Pool;

/// Words of memory that [`inspect`] needs.
pub fn scratch_for(pool: &Pool) -> usize {
    let geometry = pool.geometry();
    let waiters = geometry.waiters.1.div_ceil(64) as usize;
    geometry.small.audit_words() + geometry.pages.audit_words() + waiters
}

/// Looks everything over; no other thread of the caller's process uses the pool. `scratch` has
/// [`scratch_for`] words; `found` is told what is wrong. An error says that a lock was not to be had, or the
/// budget is spent, so not all was seen.
pub fn inspect(c: &Ctx, scratch: &mut [u64], mut found: impl FnMut(Finding)) -> Result<(), Errno> {
    let report: Report = &mut |location, what, number| found(Finding { location, what, number });
    let geometry = c.pool.geometry();
    let (small, rest) = scratch.split_at_mut_checked(geometry.small.audit_words()).ok_or(Errno::EINVAL)?;
    let (pages, waiters) = rest.split_at_mut_checked(geometry.pages.audit_words()).ok_or(Errno::EINVAL)?;
    waiters.fill(0);
    let mut queued = Queued(waiters);
    // Signals are let through between one IPC object and the next.
    let signals = || SignalsBlocked::attentive(c.kernel);
    superblock(c, report);
    allocations::inspect(c, &signals(), small, pages, report)?;
    for index in 0..dir::high(c, Kind::Sem) {
        sem::check::inspect(c, &signals(), index, &mut queued, report)?;
    }
    for index in 0..dir::high(c, Kind::Msg) {
        msg::check::inspect(c, &signals(), index, &mut queued, report)?;
    }
    participants::waiters(c, report);
    participants::slots(c, report);
    participants::members(c, report);
    if c.budget.is_spent() {
        return Err(Errno::EIDRM);
    }
    Ok(())
}

/// The head says still what it said when the pool was opened, and no two tables overlap.
fn superblock(c: &Ctx, report: Report) {
    let now = Pool::open(*c.pool.mem());
    let said = |pool: &Pool| (*pool.geometry(), *pool.limits(), pool.uuid(), pool.ids());
    let same = now.is_ok_and(|now| said(&now) == said(c.pool));
    demand(report, same, Location::Superblock, "it has changed", 0);
    let geometry = c.pool.geometry();
    let table = |(at, count): (u64, u32), each: u64| (at, at + u64::from(count) * each);
    let heaps = [&geometry.small, &geometry.pages];
    let words = heaps.map(|heap| table((heap.table, heap.count), 8));
    // The page heap begins at or before the small one, which has what is the first of it.
    let blocks = [(geometry.small.base, geometry.pages.end())];
    let entries = Kind::ALL.map(|kind| table(geometry.entries[kind as usize], kind.entry_size()));
    let buckets = geometry.buckets.map(|buckets| table(buckets, 8));
    let participants =
        [table(geometry.members, 64), table(geometry.procs, 128), table(geometry.waiters, 256)];
    let all = || (words.iter().chain(&blocks)).chain(&entries).chain(&buckets).chain(&participants);
    for (i, one) in all().enumerate() {
        let apart = all().skip(i + 1).all(|other| one.1 <= other.0 || other.1 <= one.0);
        demand(report, apart, Location::Superblock, "two tables overlap at this offset", one.0);
    }
}
