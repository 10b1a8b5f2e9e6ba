//! The evenness of a processor's work: the same piece of work again and again (fixed work quantum), the time
//! of each beyond the fastest, and the cause of that.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Shares of the time in which a processor was measured, in percent.
#[derive(Clone, Copy, Debug)]
pub struct Quantum {
    /// Lost to anything: interrupts, other programs, other machines.
    pub lost: f64,
    /// Lost to other threads of this kernel.
    pub waited: f64,
    /// Taken by the hypervisor, as far as it says so.
    pub stolen: f64,
    /// The longest piece beyond the fastest, in microseconds.
    pub longest: f64,
}

/// The time of a measurement: some thousand pieces, and steal in hundredths of a second.
const FOR: Duration = Duration::from_millis(700);
/// Steps of a piece: some 100 µs.
const STEPS: u64 = 100_000;

/// Measures it on the processor that this thread is on.
pub fn measure() -> Option<Quantum> {
    let (waited, stolen) = (run_delay()?, stolen_ticks()?);
    let begun = Instant::now();
    let mut pieces = Vec::with_capacity(16384);
    while begun.elapsed() < FOR {
        let start = Instant::now();
        work();
        pieces.push(start.elapsed().as_secs_f64());
    }
    let taken = begun.elapsed().as_secs_f64();
    let share = |seconds: f64| (100.0 * seconds / taken).max(0.0);
    let fastest = pieces.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = pieces.iter().copied().fold(0.0, f64::max);
    let lost: f64 = pieces.iter().map(|piece| piece - fastest).sum();
    Some(Quantum {
        lost: share(lost),
        waited: share((run_delay()? - waited) as f64 / 1e9),
        stolen: share((stolen_ticks()? - stolen) as f64 / ticks()? / processors() as f64),
        longest: (longest - fastest) * 1e6,
    })
}

/// A piece of work.
pub fn work() {
    let mut sum = 1_u64;
    for step in 0..STEPS {
        sum = black_box(sum.rotate_left(5) ^ step);
    }
    black_box(sum);
}

/// Nanoseconds for which this thread has waited for a processor.
fn run_delay() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Ticks that the hypervisor has taken from all processors.
fn stolen_ticks() -> Option<u64> {
    fs::read_to_string("/proc/stat").ok()?.lines().next()?.split_whitespace().nth(8)?.parse().ok()
}

fn ticks() -> Option<f64> {
    // SAFETY: it only asks for a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    (ticks > 0).then_some(ticks as f64)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    #[test]
    fn shares_are_shares() {
        // A kernel may keep no schedstat.
        if let Some(quantum) = super::measure() {
            for share in [quantum.lost, quantum.waited, quantum.stolen] {
                assert!((0.0..=101.0).contains(&share), "{quantum:?}");
            }
        }
    }
}
