//! The programs of simulated machines.

use fastrand::Rng;

/// A parallel program: sections that each keep some of a machine's vCPUs busy, with a barrier after each.
#[derive(Debug, Clone)]
pub struct Program {
    /// Seconds of work that a section has for each of its threads, on average.
    pub work: f64,
    /// Seconds in which the machine is idle after a section, on average.
    pub pause: f64,
}

/// A section.
#[derive(Debug)]
pub struct Section {
    /// vCPUs that have work.
    pub vcpus: Vec<usize>,
    /// Seconds of work of each.
    pub work: f64,
    /// Seconds until it begins.
    pub pause: f64,
}

impl Program {
    /// The next section on so many vCPUs. All widths are equally likely, and so are all vCPUs.
    pub fn next(&self, vcpus: usize, rng: &mut Rng) -> Section {
        let width = rng.usize(1..=vcpus);
        let mut all: Vec<_> = (0..vcpus).collect();
        rng.shuffle(&mut all);
        all.truncate(width);
        Section { vcpus: all, work: exponential(self.work, rng), pause: exponential(self.pause, rng) }
    }
}

/// An exponentially distributed number.
fn exponential(mean: f64, rng: &mut Rng) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}
