//! Spinning, and how long it is worth it.
//!
//! A sleep and a wake-up cost some tens of microseconds; spinning for about as long at the most doubles the
//! price of the worst case (competitive spinning). Where it never helps, because the process that is waited
//! for needs this processor, it is given up, by two signs:
//! * Each failure halves the budget of this process, a success restores it.
//! * A thread that has woken a sleeper since it last waited sleeps at once: the sleeper needs a processor
//!   now, and most often it is the one that is waited for (a token that goes round). Two that could spin, but
//!   have both come to sleep, find back by a long try now and then: the other one meets nobody asleep
//!   meanwhile, so it spins as well. And one that has not slept for long tries, too.

use vshmem_pool::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use vshmem_pool::tuning::*;
use vshmem_transport::syscall;

static BUDGET: AtomicU32 = AtomicU32::new(SPIN_ROUNDS);
static SKIPPED: AtomicU32 = AtomicU32::new(0);
static INTERVAL: AtomicU32 = AtomicU32::new(TRY_INTERVAL);
/// Whether the last rounds were a try.
static TRYING: AtomicBool = AtomicBool::new(false);
/// Whether this process has woken a sleeper since it last waited.
static WOKE: AtomicBool = AtomicBool::new(false);
/// The time at which this process was last woken here, in nanoseconds.
static SLEPT: AtomicU64 = AtomicU64::new(0);
static CPUS: AtomicU32 = AtomicU32::new(0);

/// Whether the last rounds were a try after a waking in a flow.
static AFTER_WAKING: AtomicBool = AtomicBool::new(false);
/// Wakings in a flow that are left without a try.
static WOKEN_SKIPS: AtomicU32 = AtomicU32::new(0);
/// Wakings that were left without one after the last try: twice as many each time that it fails.
static WOKEN_INTERVAL: AtomicU32 = AtomicU32::new(0);

/// The way of [`pause`]; 0: not known yet.
static PAUSE: AtomicU32 = AtomicU32::new(0);
const PAUSES: u32 = 1;
const HURRIES: u32 = 2;

/// A moment between two looks at a word. A processor is asked to leave its other thread more room meanwhile.
/// An emulated one leaves the translated code for that instruction and comes back 130 ns later, for nothing:
/// there it is left out.
#[inline]
pub fn pause() {
    match PAUSE.load(Relaxed) {
        PAUSES => core::hint::spin_loop(),
        HURRIES => {}
        _ => PAUSE.store(if is_emulated() { HURRIES } else { PAUSES }, Relaxed),
    }
}

/// Are the instructions translated, without a hypervisor in the processor? Then CPUID names the translator.
#[cfg(target_arch = "x86_64")]
#[cold]
#[allow(unused_unsafe)] // newer compilers take the instruction for safe
fn is_emulated() -> bool {
    use core::arch::x86_64::__cpuid;
    const HYPERVISOR_PRESENT: u32 = 1 << 31;
    const FIRST_OF_HYPERVISOR: u32 = 0x4000_0000;
    // SAFETY: every x86-64 processor has the instruction and leaf 1.
    let present = unsafe { __cpuid(1) }.ecx & HYPERVISOR_PRESENT != 0;
    if !present {
        return false;
    }
    // SAFETY: as above; a hypervisor that says it is there has its first leaf.
    let name = unsafe { __cpuid(FIRST_OF_HYPERVISOR) };
    [name.ebx, name.ecx, name.edx] == [*b"TCGT", *b"CGTC", *b"GTCG"].map(u32::from_le_bytes)
}
#[cfg(not(target_arch = "x86_64"))]
#[cold]
fn is_emulated() -> bool {
    false
}

/// Processors that this process may run on; looked up once.
fn cpus() -> u32 {
    match CPUS.load(Relaxed) {
        0 => {
            // SAFETY: a zeroed cpu_set_t is a value, and the call fills at most its size.
            let n = unsafe {
                let mut set: libc::cpu_set_t = core::mem::zeroed();
                let bytes = size_of::<libc::cpu_set_t>();
                match syscall!(libc::SYS_sched_getaffinity, 0, bytes, &raw mut set) {
                    0.. => online().min(2).max(libc::CPU_COUNT(&set) as u32),
                    _ => 2,
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

/// Rounds that are worth it where the process that is waited for is of this kernel.
pub(crate) fn rounds() -> u32 {
    if cpus() < 2 {
        0
    } else {
        budget(1)
    }
}

/// Rounds that tell whether a word changes all the time, by processes of this kernel.
pub(crate) fn glance() -> u32 {
    if cpus() < 2 {
        0
    } else {
        FEWEST_SPIN_ROUNDS
    }
}

/// Rounds that are worth it where the process that is waited for may be another kernel's. That has another
/// processor, whatever this kernel has, and a doorbell or a nap costs far more.
pub(crate) fn rounds_across() -> u32 {
    ROUNDS_ACROSS * budget(TRIES_ACROSS)
}

/// Rounds that are worth it on one kernel, whatever its processors. New tries come `sooner` times as often.
fn budget(sooner: u32) -> u32 {
    let budget = BUDGET.load(Relaxed);
    let woke = WOKE.load(Relaxed);
    if budget >= FEWEST_SPIN_ROUNDS && !woke {
        TRYING.store(false, Relaxed);
        return budget;
    }
    if woke && is_leisurely() {
        TRYING.store(true, Relaxed);
        return TRY_ROUNDS;
    }
    let interval = INTERVAL.load(Relaxed);
    if SKIPPED.fetch_add(1, Relaxed) >= interval / sooner {
        SKIPPED.store(0, Relaxed);
        INTERVAL.store((interval * 2).min(LONGEST_TRY_INTERVAL), Relaxed);
        TRYING.store(true, Relaxed);
        return TRY_ROUNDS;
    }
    0
}

/// Was the last wait over before the rounds were? Nothing else is looked at, so this costs next to nothing.
#[inline]
pub fn pays() -> bool {
    BUDGET.load(Relaxed) == SPIN_ROUNDS
}

/// Tells whether the wait was over before the rounds were.
pub fn spun(worth_it: bool) {
    if AFTER_WAKING.load(Relaxed) {
        AFTER_WAKING.store(false, Relaxed);
        tried_in_flow(worth_it);
    }
    if worth_it {
        if BUDGET.load(Relaxed) != SPIN_ROUNDS {
            BUDGET.store(SPIN_ROUNDS, Relaxed);
        }
        // A try that ends well may still have taken longer than sleeping: that alone is no reason to try more
        // often.
        if !TRYING.load(Relaxed) && INTERVAL.load(Relaxed) != TRY_INTERVAL {
            INTERVAL.store(TRY_INTERVAL, Relaxed);
        }
        waited();
    } else if !TRYING.load(Relaxed) {
        BUDGET.store(BUDGET.load(Relaxed) / 2, Relaxed);
    }
}

/// Has this process not slept here for long? Then there is no hurry on the processors, and the process that
/// it has just woken comes back while this one still looks, so that it is spared being woken in turn: a try
/// each time is little, compared with that time.
fn is_leisurely() -> bool {
    now().wrapping_sub(SLEPT.load(Relaxed)) > LEISURE_NS
}

/// Nanoseconds of a clock that is read without entering the kernel, as a rule.
pub(crate) fn now() -> u64 {
    vshmem_transport::time(libc::CLOCK_MONOTONIC).as_nanos() as u64
}

/// Notes the end of a sleep.
pub(crate) fn slept() {
    SLEPT.store(now(), Relaxed);
    waited();
}

/// Notes that a sleeper was woken.
pub(crate) fn woke() {
    if !WOKE.load(Relaxed) {
        WOKE.store(true, Relaxed);
    }
}

/// Rounds that are worth it where words change in a flow. A process that was woken is at work beside the
/// caller as a rule, so a try outlasts its wake-up; where that fails, the next tries come ever less often.
/// And a caller that would sleep at once looks around a little: the other process, if it is at work, takes no
/// longer for its next step. Else two that have both come to sleep would go on so, each waking the other when
/// that has just fallen asleep.
fn rounds_of(woke: bool, rounds: impl FnOnce() -> u32) -> u32 {
    if woke {
        let left = WOKEN_SKIPS.load(Relaxed);
        if left == 0 {
            TRYING.store(true, Relaxed);
            AFTER_WAKING.store(true, Relaxed);
            return TRY_ROUNDS;
        }
        WOKEN_SKIPS.store(left - 1, Relaxed);
    }
    rounds().max(FEWEST_SPIN_ROUNDS)
}

/// Notes the end of a try in a flow.
fn tried_in_flow(worth_it: bool) {
    let interval =
        if worth_it { 0 } else { (2 * WOKEN_INTERVAL.load(Relaxed) + 1).min(LONGEST_FLOW_INTERVAL) };
    WOKEN_INTERVAL.store(interval, Relaxed);
    WOKEN_SKIPS.store(interval, Relaxed);
}

/// Rounds that are worth it in a flow where the process that is waited for is of this kernel.
pub(crate) fn rounds_in_flow() -> u32 {
    let woke = WOKE.swap(false, Relaxed);
    if cpus() < 2 {
        0
    } else {
        rounds_of(woke, rounds)
    }
}

/// Rounds that are worth it in a flow where the process that is waited for may be another kernel's.
pub(crate) fn rounds_in_flow_across() -> u32 {
    rounds_of(WOKE.swap(false, Relaxed), rounds_across)
}

/// Notes the end of a wait.
pub(crate) fn waited() {
    if WOKE.load(Relaxed) {
        WOKE.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits that sleep until one spins, and how long that one spins.
    fn until_spinning() -> (u32, u32) {
        let mut slept = 0;
        loop {
            match budget(1) {
                0 => slept += 1,
                rounds => return (slept, rounds),
            }
        }
    }

    /// One test, because what is tested is the process's.
    #[test]
    fn spinning_is_given_up_where_it_does_not_pay() {
        assert_eq!(budget(1), SPIN_ROUNDS);
        woke();
        assert_eq!(budget(1), TRY_ROUNDS, "it has not slept for long");
        spun(false);
        slept();
        woke();
        assert_eq!(until_spinning(), (TRY_INTERVAL, TRY_ROUNDS), "a process that woke a sleeper sleeps");
        spun(false);
        assert_eq!(until_spinning(), (2 * TRY_INTERVAL, TRY_ROUNDS), "tries become rarer");
        spun(true);
        assert_eq!(budget(1), SPIN_ROUNDS, "the wait is over");
        spun(true);
        woke();
        assert_eq!(until_spinning().0, TRY_INTERVAL, "spinning has paid");
        waited();
        for rounds in [1000, 500, 250, 125, 62] {
            assert_eq!(budget(1), rounds);
            spun(false);
        }
        for skips in [0, 1, 3, 7, 15, 31, 63, 63] {
            assert!((0..skips).all(|_| rounds_of(true, || 0) == FEWEST_SPIN_ROUNDS), "in vain before");
            assert_eq!(rounds_of(true, || 0), TRY_ROUNDS, "a process that was woken comes");
            spun(false);
        }
        assert_eq!((rounds_of(false, || 0), rounds_of(false, || 99)), (FEWEST_SPIN_ROUNDS, 99));
        tried_in_flow(true);
        assert_eq!(rounds_of(true, || 0), TRY_ROUNDS, "it has paid");
        AFTER_WAKING.store(false, Relaxed);
        assert_eq!(until_spinning().1, TRY_ROUNDS, "failures use the budget up");
        spun(true);
        assert_eq!(budget(1), SPIN_ROUNDS);
    }
}
