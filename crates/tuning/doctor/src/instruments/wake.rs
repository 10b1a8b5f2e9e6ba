//! The times of wake-ups of processors that idle.

use super::quantum::work;
use crate::cpus::Cpus;
use rustix::io::{read, write};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::thread::{sched_setaffinity, CpuSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A turn of measuring.
#[derive(Clone, Copy, Debug)]
pub struct Wake {
    /// Microseconds from one processor to another that idles, and back, while the first one idles; none
    /// where there is one processor.
    pub there_and_back: Option<f64>,
    /// Microseconds by which a sleep of a millisecond is late.
    pub late: f64,
    /// Pieces of work done in a second by a thread that wants a processor all the time.
    pub work: f64,
}

/// The time in which wake-ups are sent there and back, as often as they take.
const FOR: Duration = Duration::from_millis(200);
/// The number of sleeps, whose median counts.
const SLEEPS: usize = 80;
/// A sleep: longer than a processor polls before it halts.
const SLEEP: Duration = Duration::from_millis(1);
/// The time in which pieces of work are counted: about a thousand.
const WORK: Duration = Duration::from_millis(100);

/// Measures between the first and the last of these processors.
///
/// # Errors
/// A thread can't be bound to them, or a pipe fails.
pub fn measure(cpus: &Cpus) -> io::Result<Wake> {
    let (Some(&first), Some(&last)) = (cpus.first(), cpus.last()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let there_and_back = if first == last { None } else { Some(there_and_back(first, last)?) };
    // A thread of its own, so that the caller's is bound to nothing.
    let alone = move || -> io::Result<(f64, f64)> {
        bind(last)?;
        Ok((late(), pieces()))
    };
    let (late, work) = std::thread::spawn(alone).join().map_err(|_| io::ErrorKind::Other)??;
    Ok(Wake { there_and_back, late, work })
}

/// Two threads wake each other by pipes; each sleeps while the other is awake.
fn there_and_back(first: usize, last: usize) -> io::Result<f64> {
    let (there, back) = (pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?);
    let (hear, answer) = (there.0, back.1);
    let echo = std::thread::spawn(move || -> io::Result<()> {
        bind(last)?;
        // Until the other end is closed.
        while hears(&hear)? {
            write(&answer, &[0])?;
        }
        Ok(())
    });
    let (say, listen) = (there.1, back.0);
    let ask = std::thread::spawn(move || -> io::Result<Vec<f64>> {
        bind(first)?;
        let (begun, mut taken) = (Instant::now(), Vec::new());
        while begun.elapsed() < FOR {
            let start = Instant::now();
            write(&say, &[0])?;
            if !hears(&listen)? {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            taken.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(taken)
    });
    let taken = ask.join().map_err(|_| io::ErrorKind::Other)?;
    echo.join().map_err(|_| io::ErrorKind::Other)??;
    Ok(median(taken?))
}

/// Waits for a byte; false if nobody can send one any more.
fn hears(pipe: &OwnedFd) -> io::Result<bool> {
    Ok(read(pipe, &mut [0])? == 1)
}

fn late() -> f64 {
    // SAFETY: it takes a number, and changes when timers of this thread go off.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let late = (0..SLEEPS).map(|_| {
        let start = Instant::now();
        std::thread::sleep(SLEEP);
        (start.elapsed() - SLEEP).as_secs_f64() * 1e6
    });
    median(late.collect())
}

fn pieces() -> f64 {
    let begun = Instant::now();
    let mut pieces = 0.0;
    while begun.elapsed() < WORK {
        work();
        pieces += 1.0;
    }
    pieces / begun.elapsed().as_secs_f64()
}

fn bind(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;

    #[test]
    fn wake_ups_take_time_and_the_caller_stays_unbound() {
        let before = sched_getaffinity(None).unwrap();
        let cpus: Cpus = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu)).collect();
        let wake = measure(&cpus).unwrap();
        assert_eq!(wake.there_and_back.is_some(), cpus.len() > 1);
        assert!(wake.there_and_back.is_none_or(|taken| taken > 0.1), "{wake:?}");
        assert!(wake.late > 0.0 && wake.work > 1.0, "{wake:?}");
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert!(measure(&Cpus::new()).is_err());
    }
}
