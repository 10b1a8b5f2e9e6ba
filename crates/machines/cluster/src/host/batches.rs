//! Batches of machines that boot together, so small that none takes too long because of the others.

use std::ops::Range;
use vshmem_hypervisor::shared::affinity::available_cores;

/// Virtual cores that may boot at the same time for each core of this host.
const PER_CORE: usize = 2;

/// Batches of machines that have so many virtual cores each, in their order.
pub fn of(cpus: &[u32]) -> Vec<Range<usize>> {
    batches(cpus, PER_CORE * available_cores().len())
}

/// Each batch has a machine, and as many more as there is room for.
fn batches(cpus: &[u32], room: usize) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    let mut taken = 0;
    for (index, &cpus) in cpus.iter().enumerate() {
        taken += cpus as usize;
        match all.last_mut() {
            Some(last) if taken <= room => last.end = index + 1,
            _ => {
                all.push(index..index + 1);
                taken = cpus as usize;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_boot_in_batches() {
        assert_eq!(batches(&[1; 6], 4), [0..4, 4..6]);
        assert_eq!(batches(&[1, 9, 1, 1], 4), [0..1, 1..2, 2..4]);
        assert_eq!(batches(&[1, 1], 0), [0..1, 1..2]);
        assert_eq!(batches(&[], 4), []);
    }
}
