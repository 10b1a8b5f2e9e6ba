//! The pools that this process has open.
//!
//! Everything lies in statics and in the page of [`crate::process::page`]; no heap, and no lock but the gate.

use crate::process::config::PoolName;
use crate::process::gate::Inside;
use crate::process::page::MAX_POOLS;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use vshmem_pool::{Budget, Ctx, Pool, ProcId};
use vshmem_transport::process::Fork;
use vshmem_transport::{Handle, Liveness, Source};
use vshmem_wait::{Across, Heartbeat};

/// A place for an open pool. The fields that are written at a fork come first, and lie on one page: each page
/// that is written to then is copied.
#[repr(C, align(128))]
pub struct OpenPool {
    /// The process's slot, packed as in its page, in memory that a child does inherit: a child that finds its
    /// page empty learns here whose attachments it has inherited.
    pub last_me: AtomicU64,
    /// The time at which the process became known to the pool, as its slot says it.
    pub started: AtomicU64,
    /// The place for a child: in the parent from before a fork until after it, in the child until it takes
    /// that over. Under the gate.
    pub claimed: UnsafeCell<Option<Claimed>>,
    /// The source by which the process with this pid maps segments. Under the gate.
    pub source: UnsafeCell<Option<(Source, u32)>>,
    /// [`CLOSED`] or [`OPEN`].
    pub phase: AtomicU32,
    /// Whether it was found to be revoked.
    pub revoked: AtomicBool,
    /// The pool; written while the place is closed.
    pub opened: UnsafeCell<MaybeUninit<Opened>>,
}

/// A place in a pool for the next child.
#[derive(Clone, Copy)]
pub struct Claimed {
    /// Its process slot.
    pub me: ProcId,
    /// Its liveness lock.
    pub liveness: Liveness,
    /// The fork, from which the child learns when it began.
    pub fork: Fork,
}

/// An open pool, and this kernel in it.
pub struct Opened {
    /// The mapping.
    pub handle: Handle,
    /// The structures in it.
    pub pool: Pool,
    /// This kernel's place in the member table.
    pub member: u16,
    /// The process's look-out for the back end's heartbeat.
    pub heartbeat: Heartbeat,
    /// Its name or path, as it was given.
    pub name: PoolName,
}

impl Opened {
    /// The pool as the crate `wait` takes it.
    pub fn across(&self) -> Across<'_> {
        Across { pool: &self.pool, handle: &self.handle, member: self.member, heartbeat: &self.heartbeat }
    }
}

/// The phase of a place where no pool is open.
pub const CLOSED: u32 = 0;

/// The phase of a place where a pool is open.
pub const OPEN: u32 = 1;

// SAFETY: `opened` is written under the gate while the phase is CLOSED, and read when it is OPEN. `claimed`
// and `source` are only touched under the gate.
unsafe impl Sync for OpenPool {}

/// All places for open pools. The first is the one that the environment names.
pub static POOLS: [OpenPool; MAX_POOLS] = [const {
    OpenPool {
        last_me: AtomicU64::new(0),
        started: AtomicU64::new(0),
        claimed: UnsafeCell::new(None),
        source: UnsafeCell::new(None),
        phase: AtomicU32::new(CLOSED),
        revoked: AtomicBool::new(false),
        opened: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; MAX_POOLS];

/// The place of the pool that the environment names.
pub const CONFIGURED: usize = 0;

impl OpenPool {
    /// The open pool.
    ///
    /// # Safety
    /// The pool is open.
    #[inline(always)]
    pub unsafe fn opened(&self) -> &'static Opened {
        // SAFETY: written before the phase became OPEN; POOLS is static.
        unsafe { (*self.opened.get()).assume_init_ref() }
    }

    /// Is a pool open here?
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OPEN
    }

    /// The source by which the process maps segments; opened if there is none. `None`: it can't be.
    pub fn source(&'static self, gate: &Inside) -> Option<Source> {
        let pid = gate.page().pid();
        // SAFETY: inside the gate.
        if let Some((source, _)) = unsafe { *self.source.get() }.filter(|(_, its)| *its == pid) {
            return Some(source);
        }
        self.close_source(gate);
        // SAFETY: callers have it open.
        let source = unsafe { self.opened() }.handle.open_source()?;
        // SAFETY: as above.
        unsafe { *self.source.get() = Some((source, pid)) };
        Some(source)
    }

    /// Closes the source by which the process maps segments: later attachments get another one. Those that
    /// are mapped by it keep it.
    pub fn close_source(&'static self, _gate: &Inside) {
        // SAFETY: inside the gate.
        let Some((source, _)) = (unsafe { *self.source.get() }) else { return };
        // Not written where there is none: after a fork, that would have the page copied.
        // SAFETY: as above.
        unsafe { *self.source.get() = None };
        if self.is_open() {
            // SAFETY: it is open.
            unsafe { self.opened() }.handle.close_source(&source);
        }
    }

    /// The name spaces in which the process's pid holds.
    #[inline(always)]
    pub fn namespace(&self) -> u32 {
        (self.started.load(Ordering::Relaxed) >> 32) as u32
    }

    /// A process in the pool, for the upper half.
    #[inline(always)]
    pub fn ctx(&'static self, me: ProcId, pid: u32) -> Ctx<'static> {
        // SAFETY: a process is known only to pools that are open.
        let opened = unsafe { self.opened() };
        Ctx {
            pool: &opened.pool,
            kernel: self,
            me,
            pid,
            namespace: self.namespace(),
            member: opened.member,
            budget: Budget::default(),
        }
    }
}

/// A place where no pool is open, other than [`CONFIGURED`].
pub fn free_place(_gate: &Inside) -> Option<usize> {
    (0..MAX_POOLS).find(|i| *i != CONFIGURED && !POOLS[*i].is_open())
}

/// Closes a pool that the process has left.
///
/// # Safety
/// No thread is inside a call on this pool.
pub unsafe fn close(gate: &Inside, index: usize) {
    let place = &POOLS[index];
    place.close_source(gate);
    if place.phase.swap(CLOSED, Ordering::AcqRel) == OPEN {
        // SAFETY: it was open, and is not any more, so this reads it for the last time; the caller vouches
        // for the rest.
        unsafe { (*place.opened.get()).assume_init_read().handle.close() };
    }
}

/// Closes the sources of all pools.
pub fn close_sources(gate: &Inside) {
    POOLS.iter().for_each(|place| place.close_source(gate));
}

/// The time at which the process became known to a pool, as its slot says it.
pub fn started_of(index: usize) -> u64 {
    POOLS[index].started.load(Ordering::Relaxed)
}
