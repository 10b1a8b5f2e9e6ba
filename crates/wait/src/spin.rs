//! How long spinning is worth it.
//!
//! A sleep and a wake-up cost some tens of microseconds; spinning for about as long at the most doubles the price of the worst
//! case (competitive spinning). Where it never helps, because the one who is waited for needs this processor, it is
//! given up: each failure halves the budget of this process, a success restores it, and now and then the full budget is tried again.

use crate::Scope;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Rounds of a pause each: some 30 us.
const MOST: u32 = 1000;
/// Rounds of a new try. Where both sides have come to sleep, the other one must first be woken before it can be fast, so a try
/// has to outlast a wake-up, or they would never find back.
const TRY: u32 = 5 * MOST;
/// So many times as long is worth it across machines.
const ACROSS: u32 = 10;
/// Below this many rounds it is not worth beginning.
const LEAST: u32 = 60;
/// After so many waits without spinning, spinning is tried again; after twice as many each time that it fails,
const TRY_AGAIN: u32 = 64;
/// up to this.
const TRY_SELDOM: u32 = 4096;

static BUDGET: AtomicU32 = AtomicU32::new(MOST);
static SKIPPED: AtomicU32 = AtomicU32::new(0);
static INTERVAL: AtomicU32 = AtomicU32::new(TRY_AGAIN);
static CPUS: AtomicU32 = AtomicU32::new(0);

/// Processors that this process may run on; looked up once.
fn cpus() -> u32 {
    match CPUS.load(Relaxed) {
        0 => {
            // SAFETY: a zeroed cpu_set_t is a value, and the call fills at most its size.
            let n = unsafe {
                let mut set: libc::cpu_set_t = core::mem::zeroed();
                let errno = *libc::__errno_location();
                let result = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
                *libc::__errno_location() = errno;
                if result == 0 {
                    online().min(2).max(libc::CPU_COUNT(&set) as u32)
                } else {
                    2
                }
            };
            CPUS.store(n.max(1), Relaxed);
            n
        }
        n => n,
    }
}

/// A process that is pinned to one processor still waits for processes on others.
fn online() -> u32 {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.clamp(1, 1 << 20) as u32
}

/// Rounds of looking at a word (and a pause) that are worth it now, by who may change the word; 0: sleep at once.
pub fn rounds(scope: Scope) -> u32 {
    match scope {
        Scope::Kernel if cpus() < 2 => 0,
        Scope::Kernel => on_one_kernel(),
        // Who is waited for has another processor, whatever this kernel has, and nobody rings: a nap costs far more.
        Scope::Machines => ACROSS * on_one_kernel(),
    }
}

fn on_one_kernel() -> u32 {
    let budget = BUDGET.load(Relaxed);
    if budget >= LEAST {
        return budget;
    }
    let interval = INTERVAL.load(Relaxed);
    if SKIPPED.fetch_add(1, Relaxed) >= interval {
        SKIPPED.store(0, Relaxed);
        INTERVAL.store((interval * 2).min(TRY_SELDOM), Relaxed);
        return TRY;
    }
    0
}

/// Tells whether the wait was over before the rounds were.
pub fn spun(worth_it: bool) {
    if worth_it {
        if BUDGET.load(Relaxed) != MOST {
            BUDGET.store(MOST, Relaxed);
            INTERVAL.store(TRY_AGAIN, Relaxed);
        }
    } else {
        BUDGET.store(BUDGET.load(Relaxed) / 2, Relaxed);
    }
}
