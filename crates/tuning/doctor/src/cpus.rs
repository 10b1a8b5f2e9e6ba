//! Lists of processors as the kernel writes them: `0-2,8`.

use rustix::thread::{sched_getaffinity, CpuSet};
use std::collections::BTreeSet;
use std::io;

/// A set of processors.
pub type Cpus = BTreeSet<usize>;

/// The most processors that Linux can be built for.
const MOST_PROCESSORS: usize = 8192;

/// Reads a list; what is no number is left out.
pub fn parse(text: &str) -> Cpus {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse::<usize>().ok()?.min(MOST_PROCESSORS))
    });
    ranges.flatten().collect()
}

/// The processors that run, and that this process may use.
///
/// # Errors
/// The kernel can't be asked.
pub fn admitted() -> io::Result<Cpus> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// Writes a list.
pub fn show(cpus: &Cpus) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let words = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for list in ["", "0", "0-2,8", "1,3,5-6"] {
            assert_eq!(show(&parse(list)), list);
        }
        assert_eq!(show(&parse("2,0,1\n")), "0-2");
        assert!(parse("x-y").is_empty() && parse("5-4").is_empty());
    }
}
