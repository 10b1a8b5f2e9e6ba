//! NUMA-first: as few memory nodes as can hold a machine, near to each other, and cores that share caches.

use super::host::HostState;
use super::memory;
use vshmem_base::size;
use vshmem_placement::request::Machine;

/// Cores for a machine, and why these.
pub struct Choice {
    /// The cores in the order of the machine's vCPUs: node by node.
    pub cores: Vec<usize>,
    pub why: String,
}

/// Nodes that can hold a machine: the vCPUs of each.
type Split = Vec<(usize, usize)>;

/// Cores for a machine; `None` if there are too few. Nodes without enough memory are taken only if none has.
pub fn choose(host: &HostState, machine: &Machine) -> Option<Choice> {
    let (split, memory) = match split(host, machine, true) {
        Some(split) => (split, true),
        None => (split(host, machine, false)?, false),
    };
    let mut cores = Vec::new();
    for (node, vcpus) in &split {
        cores.extend(in_node(host, *node, *vcpus, machine.rules.smt)?);
    }
    Some(Choice { cores, why: reason(host, machine, &split, memory) })
}

/// The best nodes. With `memory`, each has the memory for its share.
fn split(host: &HostState, machine: &Machine, memory: bool) -> Option<Split> {
    let rooms: Vec<_> = (0..host.nodes()).map(|node| room(host, node, machine)).collect();
    let starts = (0..rooms.len()).filter(|node| rooms[*node] > 0);
    let grown = starts.filter_map(|start| grow(host, machine, &rooms, start, memory));
    grown.min_by_key(|split| cost(host, machine, &rooms, split))
}

/// The number of a machine's vCPUs that a node has room for.
fn room(host: &HostState, node: usize, machine: &Machine) -> usize {
    host.room(&host.free(node), machine.rules.smt)
}

/// The smallest number of nodes, the nearest first, that hold the machine if one of them is `start`.
fn grow(host: &HostState, machine: &Machine, rooms: &[usize], start: usize, memory: bool) -> Option<Split> {
    let mut others: Vec<_> = (0..rooms.len()).filter(|node| rooms[*node] > 0).collect();
    others.sort_by_key(|node| (*node != start, host.topology.distance(start, *node), *node));
    (1..=others.len()).find_map(|count| {
        let split = divide(machine.cpus, &others[..count], rooms)?;
        let shares = memory::shares(host, machine, &split);
        let fits = !memory || shares.iter().all(|(node, bytes)| host.has_memory(machine, *node, *bytes));
        fits.then_some(split)
    })
}

/// Divides vCPUs as evenly as the nodes' room allows.
fn divide(mut vcpus: usize, nodes: &[usize], rooms: &[usize]) -> Option<Split> {
    let mut by_room = nodes.to_vec();
    by_room.sort_by_key(|node| (rooms[*node], *node));
    let mut split = Split::new();
    for (index, node) in by_room.iter().enumerate() {
        let share = vcpus.div_ceil(by_room.len() - index).min(rooms[*node]);
        vcpus -= share;
        split.push((*node, share));
    }
    split.retain(|(_, share)| *share > 0);
    split.sort_unstable();
    (vcpus == 0).then_some(split)
}

/// Nodes near to the machine's devices are better than others, few than many, near ones than far ones, full
/// ones than empty ones.
fn cost(
    host: &HostState,
    machine: &Machine,
    rooms: &[usize],
    split: &Split,
) -> (usize, usize, u64, usize, usize) {
    let far = split.iter().filter(|(node, _)| !host.is_near(machine, *node)).map(|(_, vcpus)| vcpus).sum();
    let apart = split.iter().flat_map(|(a, _)| split.iter().map(|(b, _)| host.topology.distance(*a, *b)));
    let left = split.iter().map(|(node, vcpus)| rooms[*node] - vcpus).sum();
    (far, split.len(), apart.sum(), left, split[0].0)
}

/// Free cores of a node for so many vCPUs, under as few caches as can be.
fn in_node(host: &HostState, node: usize, vcpus: usize, smt: bool) -> Option<Vec<usize>> {
    let mut caches: Vec<(usize, Vec<usize>)> = Vec::new();
    for core in host.free(node) {
        let cache = host.topology.cores[core].cache;
        match caches.iter_mut().find(|(it, _)| *it == cache) {
            Some((_, cores)) => cores.push(core),
            None => caches.push((cache, vec![core])),
        }
    }
    let room = |cores: &[usize]| host.room(cores, smt);
    let holds_all = caches.iter().filter(|(_, cores)| room(cores) >= vcpus);
    if let Some((_, cores)) = holds_all.min_by_key(|(_, cores)| room(cores)) {
        return host.enough(cores, vcpus, smt);
    }
    caches.sort_by_key(|(cache, cores)| (usize::MAX - room(cores), *cache));
    let cores: Vec<_> = caches.into_iter().flat_map(|(_, cores)| cores).collect();
    let mut cores = host.enough(&cores, vcpus, smt)?;
    cores.sort_unstable();
    Some(cores)
}

fn reason(host: &HostState, machine: &Machine, split: &Split, memory: bool) -> String {
    let number = |node: usize| host.topology.nodes[node].number;
    let wanted = match memory {
        true => format!("{} and {}", machine.vcpus(), size::show(machine.memory)),
        false => machine.vcpus(),
    };
    let numbers: Vec<_> = split.iter().map(|(node, _)| number(*node).to_string()).collect();
    match split[..] {
        [(node, _)] if !machine.near.is_empty() && host.is_near(machine, node) => {
            format!("numa-first: node {} holds {wanted}, and its devices are near to it", number(node))
        }
        [(node, vcpus)] => {
            let left = room(host, node, machine) - vcpus;
            format!("numa-first: node {} holds {wanted}, and has room for {left} more", number(node))
        }
        _ => format!(
            "numa-first: no node holds {wanted}; nodes {} do, the fewest and the nearest to each other",
            numbers.join(" and ")
        ),
    }
}
