//! Memory: a machine's is divided over the nodes of its cores.

use super::error::PlaceError;
use super::host::HostState;
use vshmem_base::size;
use vshmem_placement::request::{in_pages, Machine};
use vshmem_placement::rules::Memory;

/// Memory is divided in whole multiples of this, in bytes, or of a page.
const UNIT: u64 = 1 << 20;

/// A machine's share on each node: as its vCPUs are divided, or as much on each if they take turns. The last
/// gets what does not divide.
pub fn shares(host: &HostState, machine: &Machine, vcpus: &[(usize, usize)]) -> Vec<(usize, u64)> {
    let even: Vec<(usize, usize)>;
    let parts = match machine.rules.memory {
        Memory::Interleave => {
            let nodes =
                (0..host.topology.nodes.len()).filter(|node| host.topology.nodes[*node].memory != Some(0));
            even = nodes.map(|node| (node, 1)).collect();
            &even
        }
        _ => vcpus,
    };
    let all = parts.iter().map(|(_, part)| *part as u64).sum::<u64>().max(1);
    let unit = UNIT.max(machine.page);
    let mut left = machine.memory;
    let last = parts.len().saturating_sub(1);
    let share = |(index, (node, part)): (usize, &(usize, usize))| {
        let share = machine.memory / all * *part as u64 / unit * unit;
        let share = if index == last { left } else { share.min(left) };
        left -= share;
        (*node, share)
    };
    parts.iter().enumerate().map(share).collect()
}

/// A sentence about a node that has less memory left than a machine's share there, if one has.
///
/// # Errors
/// One has, and the machine takes memory of no others.
pub fn lacks(
    host: &HostState,
    machine: &Machine,
    shares: &[(usize, u64)],
) -> Result<Option<String>, PlaceError> {
    let short = shares.iter().find(|(node, bytes)| !host.has_memory(machine, *node, *bytes));
    let Some((node, bytes)) = short else {
        return Ok(None);
    };
    if machine.rules.memory == Memory::Strict {
        let left = shares.iter().filter_map(|(node, _)| host.left(machine, *node)).sum();
        let (name, memory, page) = (machine.name.clone(), machine.memory, machine.page);
        return Err(PlaceError::Memory { machine: name, memory, page, left });
    }
    let (number, left) = (host.topology.nodes[*node].number, host.left(machine, *node).unwrap_or(0));
    Ok(Some(format!(
        "node {number} has {} left{} of the {} that belong there: the rest comes from other nodes",
        size::show(left),
        in_pages(machine.page),
        size::show(*bytes)
    )))
}
