//! The time of a look at the clock, without and with a system call.

use std::time::Instant;

/// Nanoseconds for a look at the clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// A look as programs do it: without entering the kernel where the kernel offers that.
    pub read: f64,
    /// A look by a system call.
    pub call: f64,
}

/// Looks of a batch.
const LOOKS: u32 = 1000;
/// Batches. The fastest counts, since all else in the system only delays.
const BATCHES: usize = 8;

/// Measures both.
pub fn measure() -> Clock {
    Clock { read: fastest(as_programs_do), call: fastest(by_system_call) }
}

fn fastest(look: impl Fn()) -> f64 {
    let batch = || {
        let begun = Instant::now();
        (0..LOOKS).for_each(|_| look());
        begun.elapsed().as_nanos() as f64 / f64::from(LOOKS)
    };
    (0..BATCHES).map(|_| batch()).fold(f64::INFINITY, f64::min)
}

fn as_programs_do() {
    std::hint::black_box(Instant::now());
}

fn by_system_call() {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a timespec, which is ours.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &mut time) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_system_call_takes_time() {
        let clock = super::measure();
        assert!(clock.read > 0.0 && clock.call > 1.0, "{clock:?}");
    }
}
