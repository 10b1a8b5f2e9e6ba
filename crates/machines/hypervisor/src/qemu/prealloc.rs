//! The preallocation of a machine's memory, which QEMU takes before the machine boots: its threads and its
//! progress. Meanwhile QEMU does not answer, so the kernel is asked how much it has (proc_pid_status(5)).

use super::placed::Backing;
use super::program;
use crate::launcher::options::Progress;
use crate::shared::affinity;
use std::time::{Duration, Instant};
use vshmem_base::error::Result;
use vshmem_base::process::Process;
use vshmem_base::{interrupt, memory, size};
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::pages::{PageRules, Pages, Populated};
use vshmem_placement::plan::Placed;

/// Time between questions to the kernel. A process takes some 100 MiB meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time between reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Time without progress after which QEMU is not waited for any more.
const STANDSTILL: Duration = Duration::from_secs(30);
/// Threads that are of use.
const MAX_THREADS: usize = 16;
/// Time that is longer than any host takes to give a machine its memory.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
/// Bytes that QEMU gives each of its threads at the least.
const MIN_PER_THREAD: u64 = 64 << 20;
/// The first QEMU that can say where its threads run.
const CONTEXTS: (u32, u32) = (7, 2);

/// The backing of a machine's memory: these pages, and threads near to the nodes that it comes from.
pub fn backing(pages: Option<Pages>, rules: PageRules, placed: Option<&Placed>) -> Backing {
    let is_ahead = rules.prealloc || pages.and_then(Pages::reserved).is_some();
    if !is_ahead {
        return Backing { pages, ..Backing::default() };
    }
    let nodes = placed.map(|placed| placed.nodes.clone()).unwrap_or_default();
    let can_say = || program::installed().ok().and_then(|qemu| program::version(&qemu)) >= Some(CONTEXTS);
    let near = match nodes.is_empty() || !can_say() {
        true => Vec::new(),
        false => nodes.iter().map(|node| (node, affinity::near(node))).collect(),
    };
    let cores: CpuSet = near.iter().flat_map(|(_, cores)| cores.iter()).collect();
    let cores = if cores.is_empty() { affinity::available_cores().len() } else { cores.len() };
    let threads = if rules.threads > 0 { rules.threads } else { cores.clamp(1, MAX_THREADS) as u32 };
    Backing { pages, threads, near: near.into_iter().collect() }
}

/// Waits until QEMU has taken a machine's memory, and reports progress. `None`: QEMU has ended, or makes no
/// progress.
pub fn wait(
    process: &Process,
    name: &str,
    bytes: u64,
    backing: &Backing,
    report: &mut dyn FnMut(Progress),
) -> Result<Option<Populated>> {
    let threads = u64::from(backing.threads).min(bytes.div_ceil(MIN_PER_THREAD)) as u32;
    let field = match backing.pages.and_then(Pages::reserved) {
        Some(_) => "HugetlbPages",
        None => "RssAnon",
    };
    let there = || memory::of_process(process.pid, field).unwrap_or(0);
    let mut begun = Instant::now();
    let (mut told, mut grown, mut last) = (begun, begun, there());
    let first = last;
    interrupt::poll(MAX_TIME, POLL_INTERVAL, || {
        let (now, at) = (there(), Instant::now());
        if now == first && first < bytes {
            begun = at;
        }
        if now > last {
            (last, grown) = (now, at);
        }
        let so_far = Populated { bytes: now, milliseconds: (at - begun).as_millis().max(1) as u64, threads };
        if now >= bytes {
            let done = Populated { bytes, ..so_far };
            report(Progress::Message(format!("took the memory of {name}: {done}")));
            return Ok(Some(Some(done)));
        }
        if !process.alive() || grown.elapsed() > STANDSTILL {
            return Ok(Some(None));
        }
        if told.elapsed() > REPORT_INTERVAL {
            told = at;
            report(Progress::Message(format!("taking {} for {name}: {so_far}", size::show(bytes))));
        }
        Ok(None)
    })
    .map(Option::flatten)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_pages_are_always_taken_ahead() {
        let rules = PageRules::default();
        assert_eq!(backing(None, rules, None).threads, 0);
        assert_eq!(backing(Some(Pages::Transparent), rules, None).threads, 0);
        assert!((1..=16).contains(&backing(Some(Pages::TwoMib), rules, None).threads));
        let three = PageRules { prealloc: true, threads: 3, ..rules };
        assert_eq!(backing(None, three, None).threads, 3);
    }

    #[test]
    fn a_process_that_has_ended_is_not_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id() as i32).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let waited = wait(&process, "a", 1 << 40, &Backing::default(), &mut |_| ());
        assert_eq!(waited.unwrap(), None);
    }
}
