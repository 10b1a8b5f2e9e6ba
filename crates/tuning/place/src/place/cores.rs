//! Machines whose vCPUs have cores of their own.

use super::error::PlaceError;
use super::host::{CoreState, HostState};
use super::memory;
use super::near::{self, Choice};
use crate::guest;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::plan::Placed;
use vshmem_placement::request::Machine;
use vshmem_placement::rules::Policy;

/// Gives each vCPU a core of its own, or an SMT sibling of one.
pub fn place(host: &mut HostState, machine: &Machine) -> Result<Placed, PlaceError> {
    let choice = match machine.rules.policy {
        Policy::NumaFirst => near::choose(host, machine),
        _ => in_order(host, machine),
    };
    let choice = choice.ok_or_else(|| no_cores(host, machine))?;
    let vcpus = pinned(host, machine, &choice.cores);
    let by_node = count_by_node(host, &vcpus);
    let shares = memory::shares(host, machine, &by_node);
    let lacks = memory::lacks(host, machine, &shares)?;
    let guest = guest::of(host.topology, machine, &vcpus, &shares);
    host.take(machine, &choice.cores, &shares);
    Ok(Placed {
        name: machine.name.clone(),
        memory: machine.memory,
        rules: machine.rules,
        vcpus: vcpus.iter().map(|(_, pu)| CpuSet::from_iter([*pu])).collect(),
        emulator: CpuSet::default(),
        nodes: host.topology.numbers(shares.iter().map(|(node, _)| *node)),
        near: machine.near.clone(),
        why: [vec![choice.why], guest::not_shown(host.topology, &vcpus, &guest)].concat(),
        guest,
        fallbacks: lacks.into_iter().collect(),
    })
}

fn no_cores(host: &HostState, machine: &Machine) -> PlaceError {
    let free: Vec<_> = host.cores_that_are(CoreState::Free).collect();
    let free = host.room(&free, machine.rules.smt);
    PlaceError::Cores { machine: machine.name.clone(), cpus: machine.cpus, free }
}

/// The first free cores.
fn in_order(host: &HostState, machine: &Machine) -> Option<Choice> {
    let mut free: Vec<_> = host.cores_that_are(CoreState::Free).collect();
    free.sort_by_key(|core| (!host.is_near(machine, host.topology.cores[*core].node), *core));
    let cores = host.enough(&free, machine.cpus, machine.rules.smt)?;
    Some(Choice { cores, why: "pinned: the first cores that were free".into() })
}

/// The core and the logical processor of each vCPU.
fn pinned(host: &HostState, machine: &Machine, cores: &[usize]) -> Vec<(usize, u32)> {
    let threads = |core: &usize| {
        let pus = &host.topology.cores[*core].pus;
        let used = if machine.rules.smt { pus.len() } else { 1 };
        pus.iter().take(used).map(|pu| (*core, *pu)).collect::<Vec<_>>()
    };
    cores.iter().flat_map(threads).take(machine.cpus).collect()
}

/// The nodes of vCPUs, in the order of the latter, and how many each has.
fn count_by_node(host: &HostState, vcpus: &[(usize, u32)]) -> Vec<(usize, usize)> {
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for (core, _) in vcpus {
        let node = host.topology.cores[*core].node;
        match counts.iter_mut().find(|(it, _)| *it == node) {
            Some((_, count)) => *count += 1,
            None => counts.push((node, 1)),
        }
    }
    counts
}
