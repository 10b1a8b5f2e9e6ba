//! The rate of this host's time-stamp counter, which machines without KVM see as theirs.
//!
//! A kernel measures it by a timer, once, as it starts. Where its processor is put off in the middle of that,
//! it takes the counter for slower than it is, and from then on its clock runs fast, up to some four times:
//! it corrects by 1 % at the most. So it is told (`tsc_early_khz`).

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Time of a measurement: the error at both ends is a hundred thousandth of it.
const MEASURE_TIME: Duration = Duration::from_millis(25);
/// Readings of both clocks, of which the one without an interruption between the clocks counts.
const READS: u32 = 20;

/// Thousands of counts in a second; `None` if there is no such counter. Measured once.
pub fn khz() -> Option<u32> {
    static KHZ: OnceLock<Option<u32>> = OnceLock::new();
    *KHZ.get_or_init(measure)
}

#[cfg(target_arch = "x86_64")]
fn measure() -> Option<u32> {
    let (from, first) = read();
    std::thread::sleep(MEASURE_TIME);
    let (to, last) = read();
    let span = to.duration_since(from).as_nanos();
    let counts = u128::from(last.checked_sub(first)?);
    u32::try_from(counts * 1_000_000 / span).ok().filter(|khz| *khz > 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn measure() -> Option<u32> {
    None
}

/// The values of both clocks at a moment.
#[cfg(target_arch = "x86_64")]
fn read() -> (Instant, u64) {
    // SAFETY: every processor of this architecture has the instruction.
    let count = || unsafe { core::arch::x86_64::_rdtsc() };
    let readings = (0..READS).map(|_| {
        let (before, now, after) = (count(), Instant::now(), count());
        let took = after.wrapping_sub(before);
        (took, now, before.wrapping_add(took / 2))
    });
    let (_, now, at) = readings.min_by_key(|reading| reading.0).expect("there are some");
    (now, at)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Measurements agree, whatever else runs meanwhile.
    #[test]
    fn it_measures_the_same_again() {
        let known = khz().unwrap();
        for _ in 0..20 {
            let again = measure().unwrap();
            assert!(again.abs_diff(known) < known / 1000, "{again} kHz, {known} before");
        }
    }
}
