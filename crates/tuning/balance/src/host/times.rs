//! Times that threads and processors ran, and threads waited, as the kernel counts them.

use std::collections::HashMap;
use std::fs;
use vshmem_place::topology::Topology;

/// Ticks of `/proc/stat` in a second (USER_HZ, the same on all architectures that Linux has left).
const TICKS: f64 = 100.0;

/// A thread's times in nanoseconds since it began, and the processor that it ran on last.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Thread {
    pub run: u64,
    pub wait: u64,
    pub processor: u32,
}

impl Thread {
    /// A thread of a process; `None` if it has ended.
    pub fn read(process: i32, thread: i32) -> Option<Thread> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{process}/task/{thread}/{name}")).ok();
        let (run, wait) = schedstat(&read("schedstat")?)?;
        Some(Thread { run, wait, processor: processor(&read("stat")?)? })
    }

    /// The shares of so many seconds in which it has run, and waited, since an earlier look.
    pub fn since(&self, before: &Thread, seconds: f64) -> (f64, f64) {
        let share = |now: u64, then: u64| (now.saturating_sub(then) as f64 / 1e9 / seconds).clamp(0.0, 1.0);
        (share(self.run, before.run), share(self.wait, before.wait))
    }
}

/// Time that ran and time that waited for a processor, of `/proc/PID/task/TID/schedstat`.
fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(|it| it.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The processor of `/proc/PID/task/TID/stat`: the 39th field. The name before may have blanks.
fn processor(text: &str) -> Option<u32> {
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// Seconds in which each processor was in use, the hypervisor under this host included.
#[derive(Debug, Clone, Default)]
pub struct Processors(HashMap<u32, f64>);

impl Processors {
    pub fn read() -> Processors {
        Processors::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn of(text: &str) -> Processors {
        Processors(text.lines().filter_map(in_use).collect())
    }

    /// The part of so many seconds that each core of a topology was in use since an earlier look: 1 is a
    /// whole processor.
    pub fn since(&self, before: &Processors, topology: &Topology, seconds: f64) -> Vec<f64> {
        let of = |processor: &u32| {
            let now = self.0.get(processor).copied().unwrap_or(0.0);
            (now - before.0.get(processor).copied().unwrap_or(now)).max(0.0) / seconds
        };
        topology.cores.iter().map(|core| core.pus.iter().map(of).sum()).collect()
    }
}

/// A processor's line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. Guests are in
/// the first two.
fn in_use(line: &str) -> Option<(u32, f64)> {
    let mut words = line.split_ascii_whitespace();
    let processor = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    let ticks: Vec<u64> = words.take(8).map_while(|it| it.parse().ok()).collect();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Some((processor, (ticks.iter().sum::<u64>() - idle) as f64 / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_counts_is_read() {
        assert_eq!(schedstat("1500 20 3\n"), Some((1500, 20)));
        assert_eq!(schedstat(""), None);
        let stat =
            "7 (a b) (x) S 1 1 1 0 -1 0 0 0 0 0 1 2 0 0 20 0 3 0 55 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -1 11 0 0";
        assert_eq!(processor(stat), Some(11));
        assert_eq!(in_use("cpu3 100 0 50 900 50 0 0 25 90 0"), Some((3, 1.75)));
        assert_eq!(in_use("cpu  100 0 50 900 50 0 0 25 90 0"), None);
        assert_eq!(in_use("intr 5"), None);
    }

    #[test]
    fn a_busy_thread_is_seen_to_run() {
        let own = std::process::id() as i32;
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let (before, processors) = (Thread::read(own, thread).unwrap(), Processors::read());
        let begun = std::time::Instant::now();
        while begun.elapsed().as_secs_f64() < 0.3 {
            std::hint::spin_loop();
        }
        let seconds = begun.elapsed().as_secs_f64();
        let (run, wait) = Thread::read(own, thread).unwrap().since(&before, seconds);
        assert!(run + wait > 0.8, "{run} {wait}");
        let topology = vshmem_place::hwloc::read(None).unwrap();
        let used: f64 = Processors::read().since(&processors, &topology, seconds).iter().sum();
        assert!(used > 0.5 * run, "{used} {run}");
        assert_eq!(Thread::read(own, i32::MAX), None);
    }
}
