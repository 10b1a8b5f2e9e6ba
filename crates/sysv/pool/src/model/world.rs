//! A pool and the processes that use it.

use super::kernel::Process;
use crate::atomic::AtomicU64;
use crate::{Budget, Ctx, Mem, Params, Pool, ProcId, MIN_POOL};
use core::time::Duration;
use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::vec::Vec;

const LAYOUT: Layout = match Layout::from_size_align(MIN_POOL as usize, 4096) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// A pool and the processes that use it: one more than act, which prepares what they find and looks at what
/// they leave.
pub struct World {
    base: *mut u8,
    pool: Pool,
    processes: Vec<ProcId>,
    kernel: Process,
    /// Has processes forget what they remember of the runs before.
    pub(super) forget: fn(),
    /// The actors whose processes are dead from the beginning: bits.
    pub(super) dead: u64,
}

// SAFETY: the pool in it is made of atomics, and of bytes that a scene is about.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    /// A pool for so many actors. Sleeps that are no longer than `naps` end by themselves, all others only
    /// when somebody wakes. `forget` has processes forget what they remember of the runs before.
    pub fn new(actors: usize, naps: Duration, forget: fn()) -> World {
        // SAFETY: the layout has a size above zero.
        let base = unsafe { alloc_zeroed(LAYOUT) };
        assert!(!base.is_null());
        base.expose_provenance();
        // SAFETY: aligned, of that length, and freed only with the world.
        let mem = unsafe { Mem::new(base, MIN_POOL as usize) };
        Pool::format(mem, &Params::default()).expect("a pool");
        let pool = Pool::open(mem).expect("a pool");
        let kernel = Process { naps, number: 0 };
        let member = pool.join([7; 16], b"model").expect("a member");
        let claim = |actor: usize| {
            let (budget, pid) = (Budget::default(), actor as u32 + 1);
            pool.claim_process(&kernel, &budget, member, pid, 1, &mut |_| true).expect("a slot")
        };
        let processes = (0..=actors).map(claim).collect();
        World { base, pool, processes, kernel, forget, dead: 0 }
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The addresses of its memory.
    pub fn memory(&self) -> core::ops::Range<usize> {
        self.base as usize..self.base as usize + MIN_POOL as usize
    }

    /// The context of an actor's calls. All of them have one pid, which others than the kernel are told.
    pub fn ctx(&self, actor: usize) -> Ctx<'_> {
        Ctx {
            pool: &self.pool,
            kernel: &self.kernel,
            me: self.processes[actor],
            pid: 1,
            namespace: 0,
            member: 0,
            budget: Budget::default(),
        }
    }

    /// The context of calls of the process that does not act.
    pub fn observer(&self) -> Ctx<'_> {
        self.ctx(self.processes.len() - 1)
    }

    /// Has a process without an act be dead from the beginning.
    pub fn bury(&mut self, actor: usize) {
        self.dead |= 1 << (actor + 1);
    }

    /// The kernel.
    pub fn kernel(&self) -> &Process {
        &self.kernel
    }

    /// A word at an offset.
    pub fn word(&self, offset: u64) -> &'static AtomicU64 {
        self.pool.mem().word(offset).expect("a word")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base, LAYOUT) }
    }
}
