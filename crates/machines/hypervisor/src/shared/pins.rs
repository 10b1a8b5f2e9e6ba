//! The pins of a machine's threads, by its record.

use super::affinity::Pins;
use crate::state::record::Machine;
use vshmem_placement::cpuset::CpuSet;

/// The pins of a machine; none if its threads run where the kernel chooses.
pub fn of(machine: &Machine) -> Option<Pins> {
    match &machine.placement {
        Some(placed) if !placed.pins() => None,
        Some(placed) => Some(Pins { vcpus: placed.vcpus.clone(), others: Some(placed.emulator.clone()) }),
        None if machine.cores.is_empty() => None,
        None => {
            let alone = |core: &usize| CpuSet::from_iter([*core as u32]);
            Some(Pins { vcpus: machine.cores.iter().map(alone).collect(), others: None })
        }
    }
}
