//! Findings of a check, in words.

use core::fmt;
use vshmem_pool::heap::audit::Fault;
use vshmem_pool::layout::Kind;

/// The place of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The head of the pool.
    Superblock,
    /// The part of the pool's head that changes.
    Root,
    /// A block of the small heap.
    Block(u64),
    /// A page of the page heap.
    Page(u64),
    /// Pending pages.
    PendingPages(u32),
    /// The hash table or the list of free entries of a kind.
    Table(Kind),
    /// An IPC object, by kind and index.
    Object(Kind, u32),
    /// A waiter record.
    Waiter(u32),
    /// A process slot.
    Slot(u32),
    /// A member.
    Member(u32),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |kind: &Kind| match kind {
            Kind::Shm => "segment",
            Kind::Sem => "semaphore set",
            Kind::Msg => "message queue",
        };
        match self {
            Location::Superblock => f.write_str("the head of the pool"),
            Location::Root => f.write_str("the root of the pool"),
            Location::Block(n) => write!(f, "small block {n}"),
            Location::Page(n) => write!(f, "page {n}"),
            Location::PendingPages(n) => write!(f, "range {n} of pending pages"),
            Location::Table(kind) => write!(f, "the table of {}s", name(kind)),
            Location::Object(kind, n) => write!(f, "{} at index {n}", name(kind)),
            Location::Waiter(n) => write!(f, "waiter record {n}"),
            Location::Slot(n) => write!(f, "process slot {n}"),
            Location::Member(n) => write!(f, "kernel {n}"),
        }
    }
}

/// A finding: something that is not as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The place.
    pub location: Location,
    /// The fault.
    pub what: &'static str,
    /// A number that belongs to it: what stands there, as a rule.
    pub number: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.location, self.what, self.number)
    }
}

/// Takes findings down.
pub(crate) type Report<'a> = &'a mut dyn FnMut(Location, &'static str, u64);

/// Reports that something is wrong unless it `is_so`.
pub(crate) fn demand(report: Report, is_so: bool, location: Location, what: &'static str, number: u64) {
    if !is_so {
        report(location, what, number);
    }
}

/// The waiter records that stand in a queue.
pub(crate) struct Queued<'a>(pub &'a mut [u64]);

impl Queued<'_> {
    /// Records that one does; false if it was found in a queue before.
    pub(crate) fn add(&mut self, index: u32) -> bool {
        let bit = 1 << (index % 64);
        self.0.get_mut((index / 64) as usize).is_some_and(|word| {
            let before = *word;
            *word |= bit;
            before & bit == 0
        })
    }
}

/// The fault that an audit of a heap has found, in words.
pub(crate) fn in_words(fault: Fault) -> &'static str {
    match fault {
        Fault::Stray => "a tree of free pieces leads to it, and it is no free piece of that length",
        Fault::Unlinked => "it is a free piece that does not lead back to the one before it",
        Fault::Twice => "it is in two free pieces",
        Fault::Ends => "it is a free piece that does not end where it says, or at another free one",
        Fault::Unlisted => "so many pieces say that they are free and are in no tree",
    }
}
