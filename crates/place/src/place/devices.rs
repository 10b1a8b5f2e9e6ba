//! Whether machines run near to their devices.

use super::error::PlaceError;
use crate::topology::Topology;
use vshmem_placement::plan::Placed;
use vshmem_placement::request::Machine;
use vshmem_placement::rules::Insist;

/// Says of a machine that it does not run near to its devices, if it does not.
///
/// # Errors
/// It must.
pub fn check(topology: &Topology, machine: &Machine, placed: &mut Placed) -> Result<(), PlaceError> {
    let near = |core: &crate::topology::Core| machine.near.contains(topology.nodes[core.node].number);
    let is_far = |cpu| topology.cores.iter().any(|core| core.pus.contains(&cpu) && !near(core));
    if machine.near.is_empty() || !placed.vcpus.iter().flat_map(|set| set.iter()).any(is_far) {
        return Ok(());
    }
    let why = PlaceError::Devices { machine: machine.name.clone(), near: machine.near.clone() };
    match machine.rules.devices {
        Insist::Strict => Err(why),
        Insist::Preferred => {
            placed.fallbacks.push(why.to_string());
            Ok(())
        }
    }
}
