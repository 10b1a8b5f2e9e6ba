//! Devices: whether machines run near to theirs.

use super::error::PlaceError;
use crate::topology::{Core, Topology};
use vshmem_placement::plan::Placed;
use vshmem_placement::request::Machine;
use vshmem_placement::rules::Insist;

/// Notes as a fallback that a machine does not run near to its devices, if so.
///
/// # Errors
/// It must.
pub fn check(topology: &Topology, machine: &Machine, placed: &mut Placed) -> Result<(), PlaceError> {
    let near = |core: &Core| machine.near.contains(topology.nodes[core.node].number);
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
