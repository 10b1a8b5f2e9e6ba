//! How a machine's memory is divided over the nodes of its cores.

use super::error::PlaceError;
use super::host::Host;
use crate::machine::{Insist, Machine};
use vshmem_cluster::size;

/// Memory is divided in whole multiples of this, in bytes.
const UNIT: u64 = 1 << 20;

/// A machine's share on each node: as its vCPUs are divided. The last gets what does not divide.
pub fn shares(machine: &Machine, vcpus: &[(usize, usize)]) -> Vec<(usize, u64)> {
    let mut left = machine.memory;
    let last = vcpus.len().saturating_sub(1);
    let share = |(index, (node, count)): (usize, &(usize, usize))| {
        let share = machine.memory / machine.cpus.max(1) as u64 * *count as u64 / UNIT * UNIT;
        let share = if index == last { left } else { share.min(left) };
        left -= share;
        (*node, share)
    };
    vcpus.iter().enumerate().map(share).collect()
}

/// Whether memory may come from the nodes of the cores only; with what to say if they have too little.
///
/// # Errors
/// They have too little, and no other will do.
pub fn binding(
    host: &Host,
    machine: &Machine,
    shares: &[(usize, u64)],
) -> Result<Option<String>, PlaceError> {
    let short = shares.iter().find(|(node, bytes)| !host.has_memory(*node, *bytes));
    let Some((node, bytes)) = short else {
        return Ok(None);
    };
    if machine.rules.memory == Insist::Strict {
        let left = shares.iter().filter_map(|(node, _)| host.memory[*node]).sum();
        return Err(PlaceError::Memory { machine: machine.name.clone(), memory: machine.memory, left });
    }
    let (number, left) = (host.topology.nodes[*node].number, host.memory[*node].unwrap_or(0));
    Ok(Some(format!(
        "node {number} has {} left of the {} that belong there: the rest comes from other nodes",
        size::show(left),
        size::show(*bytes)
    )))
}
