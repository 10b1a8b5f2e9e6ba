//! Is a pool whole? Every invariant that `docs/layout.md` promises, verified while others use the pool; and what the dead have left,
//! mended before ([`repair()`]).
//!
//! The books of the pool as a whole (heaps, directory, whose every block is) are gone through under the pool's lock, for everything in
//! them changes under it; then each set and each queue under its own. So nothing is seen half. What may be found on the way
//! without being wrong (a process died a moment ago, one is between two steps that no lock holds together) passes by itself:
//! what is found again and again is damage. Whoever dies here holds locks at the most, and has changed nothing.

mod books;
pub(crate) mod people;
mod repair;

pub use repair::{repair, Repaired};

use crate::{msg, sem, Ctx, Errno};
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use vshmem_pool::heap::audit::Fault;
use vshmem_pool::layout::Kind;
use vshmem_pool::lock::Quiet;
use vshmem_pool::Pool;

/// Where something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The head of the pool.
    Superblock,
    /// What changes in the head of the pool.
    Root,
    /// A block of the small heap.
    Block(u64),
    /// A page of the page heap.
    Page(u64),
    /// Pages on their way in or out.
    Limbo(u32),
    /// The hash table or the list of free entries of a kind.
    Table(Kind),
    /// A construct, by kind and index.
    Construct(Kind, u32),
    /// A waiter record.
    Waiter(u32),
    /// A process slot.
    Slot(u32),
    /// A member.
    Member(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |kind: &Kind| match kind {
            Kind::Shm => "segment",
            Kind::Sem => "semaphore set",
            Kind::Msg => "message queue",
        };
        match self {
            Place::Superblock => f.write_str("the head of the pool"),
            Place::Root => f.write_str("the root of the pool"),
            Place::Block(n) => write!(f, "small block {n}"),
            Place::Page(n) => write!(f, "page {n}"),
            Place::Limbo(n) => write!(f, "range {n} of pages on their way"),
            Place::Table(kind) => write!(f, "the table of {}s", name(kind)),
            Place::Construct(kind, n) => write!(f, "{} at index {n}", name(kind)),
            Place::Waiter(n) => write!(f, "waiter record {n}"),
            Place::Slot(n) => write!(f, "process slot {n}"),
            Place::Member(n) => write!(f, "kernel {n}"),
        }
    }
}

/// Something that is not as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// What.
    pub what: &'static str,
    /// A number that belongs to it: what stands there, as a rule.
    pub number: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.place, self.what, self.number)
    }
}

/// Takes findings down.
pub(crate) type Report<'a> = &'a mut dyn FnMut(Place, &'static str, u64);

/// Notes that something is wrong unless it `is_so`.
pub(crate) fn demand(report: Report, is_so: bool, place: Place, what: &'static str, number: u64) {
    if !is_so {
        report(place, what, number);
    }
}

/// Words of memory that [`inspect`] needs.
pub fn scratch_for(pool: &Pool) -> usize {
    let geometry = pool.geometry();
    let waiters = geometry.waiters.1.div_ceil(64) as usize;
    geometry.small.audit_words() + geometry.pages.audit_words() + waiters
}

/// Which waiter records stand in a queue.
pub(crate) struct Queued<'a>(&'a mut [u64]);

impl Queued<'_> {
    /// Notes that one does; false if it was found in a queue before.
    pub(crate) fn add(&mut self, index: u32) -> bool {
        let bit = 1 << (index % 64);
        self.0.get_mut((index / 64) as usize).is_some_and(|word| {
            let before = *word;
            *word |= bit;
            before & bit == 0
        })
    }
}

/// Looks everything over; no other thread of the caller's process uses the pool. `scratch` has [`scratch_for`] words; `found` is told what is wrong. An error says that a lock was not
/// to be had, or the budget is spent, so not all was seen.
pub fn inspect(c: &Ctx, scratch: &mut [u64], mut found: impl FnMut(Finding)) -> Result<(), Errno> {
    let report: Report = &mut |place, what, number| {
        found(Finding {
            place,
            what,
            number,
        })
    };
    let geometry = c.pool.geometry();
    let (small, rest) = scratch
        .split_at_mut_checked(geometry.small.audit_words())
        .ok_or(Errno::EINVAL)?;
    let (pages, waiters) = rest
        .split_at_mut_checked(geometry.pages.audit_words())
        .ok_or(Errno::EINVAL)?;
    waiters.fill(0);
    let mut queued = Queued(waiters);
    // Signals are let through between one construct and the next.
    let quiet = || Quiet::attentive(c.kernel);
    superblock(c, report);
    books::inspect(c, &quiet(), small, pages, report)?;
    for index in 0..high(c, Kind::Sem) {
        sem::check::inspect(c, &quiet(), index, &mut queued, report)?;
    }
    for index in 0..high(c, Kind::Msg) {
        msg::check::inspect(c, &quiet(), index, &mut queued, report)?;
    }
    people::waiters(c, report);
    people::slots(c, report);
    people::members(c, report);
    if c.budget.is_spent() {
        return Err(Errno::EIDRM);
    }
    Ok(())
}

/// Entries of a kind that were ever used.
pub(crate) fn high(c: &Ctx, kind: Kind) -> u32 {
    let high = c.pool.kind_root(kind).high.load(Relaxed);
    high.min(c.pool.capacity(kind).into()) as u32
}

/// The head says still what it said when the pool was opened, and no two tables overlap.
fn superblock(c: &Ctx, report: Report) {
    let now = Pool::open(*c.pool.mem());
    let same =
        now.is_ok_and(|p| p.geometry() == c.pool.geometry() && p.limits() == c.pool.limits());
    demand(report, same, Place::Superblock, "it has changed", 0);
    let geometry = c.pool.geometry();
    let table = |(at, count): (u64, u32), each: u64| (at, at + u64::from(count) * each);
    let heaps = [&geometry.small, &geometry.pages];
    let words = heaps.map(|heap| table((heap.table, heap.count), 8));
    let blocks = heaps.map(|heap| table((heap.base, heap.count), heap.block()));
    let entries = Kind::ALL.map(|kind| table(geometry.entries[kind as usize], kind.entry_size()));
    let buckets = geometry.buckets.map(|buckets| table(buckets, 8));
    let people = [
        table(geometry.members, 64),
        table(geometry.procs, 128),
        table(geometry.waiters, 256),
    ];
    let all = || {
        (words.iter().chain(&blocks))
            .chain(&entries)
            .chain(&buckets)
            .chain(&people)
    };
    for (i, one) in all().enumerate() {
        let apart = all()
            .skip(i + 1)
            .all(|other| one.1 <= other.0 || other.1 <= one.0);
        demand(
            report,
            apart,
            Place::Superblock,
            "two tables overlap at this offset",
            one.0,
        );
    }
}

/// What an audit of a heap says, in words.
pub(crate) fn in_words(fault: Fault) -> &'static str {
    match fault {
        Fault::Stray => "a free list leads to it, and it is no free piece of that size",
        Fault::Unlinked => "it is a free piece that does not lead back to the one before it",
        Fault::Twice => "it is in two free pieces",
        Fault::Unlisted => "so many pieces say that they are free and are in no list",
    }
}
