//! The wake-up of the host's threads when its doorbell was rung: a machine has served waiters of the host's
//! processes, and can't wake them itself.

use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vshmem_pool::layout::{Waiter, WAITING};
use vshmem_pool::{Pool, ProcId};
use vshmem_wait::Scope;

/// Longest step, which keeps other pools waiting. It suffices for a whole scan in an honest pool of any size.
const MAX_STEP: Duration = Duration::from_millis(2);
/// Records that are looked at before the clock is read again.
const RECORDS_PER_CHECK: u32 = 64;

/// A scan of the waiter records for threads to wake. It goes through them in a circle.
#[derive(Debug, Default)]
pub struct HostWakeup {
    /// Records that were ever used.
    high: u32,
    next: u32,
    left: u32,
}

impl HostWakeup {
    /// Begins a scan of all records since the doorbell was rung, and wakes a thread that sleeps on the pool's
    /// lock. A thread that sleeps on another lock looks again by itself, within 50 ms.
    pub fn start(&mut self, pool: &Pool) {
        vshmem_wait::wake(&pool.root().lock, 1, Scope::Kernel);
        let high = pool.root().waiter_high.load(Acquire);
        self.high = high.min(pool.geometry().waiters.1);
        self.left = self.high;
    }

    /// Whether records are left to be scanned.
    pub fn is_pending(&self) -> bool {
        self.left > 0
    }

    /// Goes on with the scan for a short time, and wakes threads of this kernel (`member`) that were served.
    /// Takes no lock.
    pub fn step(&mut self, pool: &Pool, member: u16) {
        let begun = Instant::now();
        while self.left > 0 {
            if self.left % RECORDS_PER_CHECK == 0 && begun.elapsed() > MAX_STEP {
                return;
            }
            self.left -= 1;
            self.next = if self.next < self.high { self.next } else { 0 };
            let waiter = pool.waiter(self.next);
            if let Some(word) = waiter.and_then(|waiter| served(pool, waiter, member)) {
                vshmem_wait::wake(word, u32::MAX, Scope::Kernel);
            }
            self.next += 1;
        }
    }
}

/// The status word of a waiter that belongs to `member` and was served.
fn served<'w>(pool: &Pool, waiter: &'w Waiter, member: u16) -> Option<&'w AtomicU32> {
    let owner = ProcId::of_word(waiter.owner.load(Relaxed))?;
    if waiter.status.load(Acquire) == WAITING {
        return None;
    }
    let (now, of, _) = pool.process(owner.slot)?;
    (now == owner && of == member).then_some(&waiter.status)
}
