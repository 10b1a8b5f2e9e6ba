//! The host was rung: somebody in a machine has served waiters of the host's processes, and can't wake them itself.

use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vshmem_pool::layout::{Waiter, WAITING};
use vshmem_pool::{Pool, ProcId};
use vshmem_wait::Scope;

/// How long others wait meanwhile: honest pools of all sizes are done by then, and who lies gets no more at once.
const AT_ONCE: Duration = Duration::from_millis(2);
/// Records that are looked at between looks at the clock.
const RECORDS: u32 = 64;

/// Looking, after a ring, which sleepers are due. Records are looked at round and round.
#[derive(Debug, Default)]
pub struct Rung {
    /// So many were ever used.
    high: u32,
    at: u32,
    left: u32,
}

impl Rung {
    /// The host was rung: all records are to be looked at, and whoever sleeps on the pool's lock is woken. Who sleeps on another lock
    /// looks again by itself, within 50 ms at the latest.
    pub fn begin(&mut self, pool: &Pool) {
        vshmem_wait::wake(&pool.root().lock, 1, Scope::Kernel);
        let high = pool.root().waiter_high.load(Acquire);
        self.high = high.min(pool.geometry().waiters.1);
        self.left = self.high;
    }

    /// Are there records to be looked at yet?
    pub fn is_busy(&self) -> bool {
        self.left > 0
    }

    /// Wakes the threads of this kernel's processes, `member`, that were served, as far as it gets in a short time. Takes no lock.
    pub fn go_on(&mut self, pool: &Pool, member: u16) {
        let begun = Instant::now();
        while self.left > 0 {
            if self.left % RECORDS == 0 && begun.elapsed() > AT_ONCE {
                return;
            }
            self.left -= 1;
            self.at = if self.at < self.high { self.at } else { 0 };
            let waiter = pool.waiter(self.at);
            if let Some(word) = waiter.and_then(|waiter| due(pool, waiter, member)) {
                vshmem_wait::wake(word, u32::MAX, Scope::Kernel);
            }
            self.at += 1;
        }
    }
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
