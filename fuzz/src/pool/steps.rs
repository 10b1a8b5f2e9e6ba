//! How much was done: a step is a call of the honest process, or a word or a lie that the enemy writes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

static DONE: AtomicU64 = AtomicU64::new(0);

/// One more.
pub fn count() {
    DONE.fetch_add(1, Relaxed);
}

/// Between two inputs. With `FUZZ_STEPS` in the environment that many are enough: the fuzzer is told to end.
pub fn are_enough() {
    static WANTED: OnceLock<u64> = OnceLock::new();
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let wanted = *WANTED.get_or_init(|| {
        // SAFETY: a function of ours, which lives as long as the program.
        unsafe { libc::atexit(tell) };
        let wanted = std::env::var("FUZZ_STEPS").ok();
        wanted.and_then(|n| n.parse().ok()).unwrap_or(u64::MAX)
    });
    let done = DONE.load(Relaxed);
    // Now and then, for who looks on.
    if done >= wanted || done >> 20 != TOLD.load(Relaxed) {
        TOLD.store(done >> 20, Relaxed);
        tell();
    }
    if done >= wanted {
        // SAFETY: nobody else is told: libFuzzer ends gracefully then, others at once.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
}

/// As libFuzzer tells its numbers.
extern "C" fn tell() {
    eprintln!("stat::steps: {}", DONE.load(Relaxed));
}
