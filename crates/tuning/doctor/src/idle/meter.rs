//! The meter: the part of each core that others took since the last look.

use super::place::Source;
use super::spinner::Spent;
use crate::cpus::Cpus;
use crate::guest::steal;
use crate::system::System;
use std::collections::BTreeMap;
use std::time::Instant;

/// The counts at the last look.
pub struct Meter<'a> {
    system: &'a System,
    source: Source,
    /// Ticks in a second.
    ticks: f64,
    at: Instant,
    /// Ticks of each processor.
    stolen: BTreeMap<usize, u64>,
    /// The times of the idle processes.
    spent: BTreeMap<usize, Spent>,
}

/// Parts of each core that others took, in percent; those of which it is known.
pub type Taken = BTreeMap<usize, f64>;

impl<'a> Meter<'a> {
    /// Begins to look.
    pub fn new(system: &'a System, source: Source) -> Meter<'a> {
        // SAFETY: it only asks for a number.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let stolen = stolen(system);
        Meter { system, source, ticks, at: Instant::now(), stolen, spent: BTreeMap::new() }
    }

    /// The parts of these that were taken since the last look. `spent` are the counts of the idle processes
    /// that run.
    pub fn look(&mut self, cpus: &Cpus, spent: BTreeMap<usize, Spent>) -> Taken {
        let seconds = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        let taken = match self.source {
            Source::Steal => {
                let now = stolen(self.system);
                let taken = cpus.iter().filter_map(|cpu| {
                    let ticks = now.get(cpu)?.checked_sub(*self.stolen.get(cpu)?)?;
                    Some((*cpu, percent(ticks as f64 / self.ticks, seconds)))
                });
                let taken = taken.collect();
                self.stolen = now;
                taken
            }
            Source::HoldUps => cpus
                .iter()
                .filter_map(|cpu| Some((*cpu, held_up(self.spent.get(cpu)?, spent.get(cpu)?, seconds))))
                .collect(),
        };
        self.spent = spent;
        taken
    }
}

fn percent(part: f64, seconds: f64) -> f64 {
    (100.0 * part / seconds.max(1e-3)).clamp(0.0, 100.0)
}

/// The part of the time in which a process neither spun nor waited for others of this kernel, in percent.
fn held_up(before: &Spent, now: &Spent, seconds: f64) -> f64 {
    let gaps = now.gaps.saturating_sub(before.gaps);
    let waited = now.waited.saturating_sub(before.waited);
    percent(gaps.saturating_sub(waited) as f64 / 1e9, seconds)
}

/// The ticks that the hypervisor took of each processor.
fn stolen(system: &System) -> BTreeMap<usize, u64> {
    let stat = system.text("proc/stat").ok().flatten().unwrap_or_default();
    let lines = stat.lines().filter_map(|line| {
        let name = line.split_whitespace().next()?;
        Some((name.strip_prefix("cpu")?.parse().ok()?, steal(line)?))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tree::Tree;
    use std::time::Duration;

    fn meter(tree: &Tree, source: Source) -> Meter<'_> {
        let mut meter = Meter::new(tree.system(), source);
        meter.at = Instant::now() - Duration::from_secs(1);
        meter
    }

    #[test]
    fn steal_is_told_of_each_processor() {
        let tree = Tree::new(
            "== proc/stat\ncpu  0 0 0 0 0 0 0 9 0 0\ncpu0 0 0 0 0 0 0 0 4 0 0\ncpu1 0 0 0 0 0 0 0 5 0 0\n",
        );
        let mut meter = meter(&tree, Source::Steal);
        tree.put(
            "proc/stat",
            "cpu  0 0 0 0 0 0 0 9 0 0\ncpu0 0 0 0 0 0 0 0 44 0 0\ncpu1 0 0 0 0 0 0 0 5 0 0\n",
        );
        let taken = meter.look(&[0, 1, 2].into(), BTreeMap::new());
        let part = 100.0 * 40.0 / meter.ticks;
        assert!((taken[&0] - part).abs() < part / 50.0 && taken[&1] == 0.0, "{taken:?}");
        assert!(!taken.contains_key(&2), "nothing is known of a processor that has just come");
    }

    #[test]
    fn hold_ups_are_what_this_kernel_did_not_have_it_wait_for() {
        let tree = Tree::new("");
        let mut meter = meter(&tree, Source::HoldUps);
        let spent = |gaps, waited| BTreeMap::from([(3, Spent { gaps, waited })]);
        assert!(meter.look(&[3].into(), spent(7, 7)).is_empty(), "the first look has nothing before it");
        meter.at = Instant::now() - Duration::from_secs(1);
        let taken = meter.look(&[3].into(), spent(500_000_007, 400_000_007));
        assert!((taken[&3] - 10.0).abs() < 0.5, "{taken:?}");
        meter.at = Instant::now() - Duration::from_secs(1);
        assert_eq!(meter.look(&[3].into(), spent(500_000_007, 900_000_007))[&3], 0.0);
    }
}
