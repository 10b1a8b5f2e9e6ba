//! The host was rung: somebody in a machine has served waiters of the host's processes, and can't wake them itself.

use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed};
use vshmem_pool::layout::{Waiter, WAITING};
use vshmem_pool::{Pool, ProcId};
use vshmem_port::Handle;
use vshmem_wait::Scope;

/// Records that are known to have memory behind them: touching others could fail where the pool's file system is full.
#[derive(Debug, Default)]
pub struct Backed(u32);

/// Wakes the threads of this kernel's processes, `member`, that were served, and whoever sleeps on the pool's lock. Who sleeps on
/// another lock looks again by itself, within 50 ms at the latest. Takes no lock; returns how many were woken.
pub fn wake_served(pool: &Pool, handle: &Handle, member: u16, backed: &mut Backed) -> u32 {
    let mut woken = vshmem_wait::wake(&pool.root().lock, 1, Scope::Kernel);
    let high = pool.root().waiter_high.load(Acquire);
    for index in 0..backed.up_to(pool, handle, high.min(pool.geometry().waiters.1)) {
        let Some(waiter) = pool.waiter(index) else {
            break;
        };
        if let Some(word) = due(pool, waiter, member) {
            woken += vshmem_wait::wake(word, u32::MAX, Scope::Kernel);
        }
    }
    woken
}

/// The word that a thread of `member` sleeps on though it was served.
fn due<'w>(pool: &Pool, waiter: &'w Waiter, member: u16) -> Option<&'w AtomicU32> {
    let owner = ProcId::of_word(waiter.owner.load(Relaxed))?;
    if waiter.status.load(Acquire) == WAITING {
        return None;
    }
    let (now, of, _) = pool.process(owner.slot)?;
    (now == owner && of == member).then_some(&waiter.status)
}

impl Backed {
    /// How many of the first `high` records may be touched.
    fn up_to(&mut self, pool: &Pool, handle: &Handle, high: u32) -> u32 {
        if high > self.0 {
            let from = pool.geometry().waiters.0 + u64::from(self.0) * size_of::<Waiter>() as u64;
            let len = u64::from(high - self.0) * size_of::<Waiter>() as u64;
            if handle.reserve(from, len) {
                self.0 = high;
            }
        }
        self.0.min(high)
    }
}
