//! Machines whose vCPUs run on any core of one socket.

use super::error::PlaceError;
use super::host::{CoreState, HostState};
use super::memory;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::plan::{Guest, Placed};
use vshmem_placement::request::Machine;
use vshmem_placement::rules::Insist;

/// Has all vCPUs run on any core of the socket with the most room, but on those that others have to
/// themselves.
pub fn place(
    host: &mut HostState,
    machine: &Machine,
    mut fallbacks: Vec<String>,
) -> Result<Placed, PlaceError> {
    let package = emptiest(host, machine);
    let mut cores = of_package(host, package, CoreState::Free);
    let turns = cores.len() < machine.cpus + host.floating[package];
    if turns && machine.rules.cores == Insist::Strict {
        let free = cores.len().saturating_sub(host.floating[package]);
        return Err(PlaceError::Cores { machine: machine.name.clone(), cpus: machine.cpus, free });
    }
    if cores.is_empty() {
        cores = host.all().into_iter().filter(|core| host.topology.cores[*core].package == package).collect();
    }
    if turns && fallbacks.is_empty() {
        let all = machine.cpus + host.floating[package];
        fallbacks.push(format!("{all} vCPUs take turns on the {} cores of socket {package}", cores.len()));
    }
    let nodes = nodes(host, &cores);
    let even: Vec<_> = nodes.iter().map(|node| (*node, machine.cpus.div_ceil(nodes.len()))).collect();
    let shares = memory::shares(host, machine, &even);
    fallbacks.extend(memory::lacks(host, machine, &shares)?);
    host.floating[package] += machine.cpus;
    host.take(machine, &[], &shares);
    let set = host.topology.pus(&cores);
    Ok(Placed {
        name: machine.name.clone(),
        memory: machine.memory,
        rules: machine.rules,
        vcpus: vec![set; machine.cpus],
        emulator: CpuSet::default(),
        nodes: host.topology.numbers(shares.iter().map(|(node, _)| *node)),
        near: machine.near.clone(),
        guest: Guest::flat(machine.cpus),
        why: vec![format!("range-pinned: socket {package} has the most room")],
        fallbacks,
    })
}

/// The socket with the most room that has enough memory, or else with the most room.
fn emptiest(host: &HostState, machine: &Machine) -> usize {
    let room = |package: usize| {
        let free = of_package(host, package, CoreState::Free);
        let nodes = nodes(host, &free);
        let share = machine.memory / nodes.len().max(1) as u64;
        let fits = !nodes.is_empty() && nodes.iter().all(|node| host.has_memory(machine, *node, share));
        let is_near = nodes.iter().any(|node| host.is_near(machine, *node));
        (fits, is_near, free.len() as isize - host.floating[package] as isize)
    };
    let packages = (0..host.floating.len()).rev();
    packages.max_by_key(|package| room(*package)).unwrap_or(0)
}

fn of_package(host: &HostState, package: usize, state: CoreState) -> Vec<usize> {
    host.cores_that_are(state).filter(|core| host.topology.cores[*core].package == package).collect()
}

fn nodes(host: &HostState, cores: &[usize]) -> Vec<usize> {
    let mut nodes: Vec<_> = cores.iter().map(|core| host.topology.cores[*core].node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
