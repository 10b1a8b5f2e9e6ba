//! The placement: a pure function of a topology and of requests.
//!
//! Machines whose vCPUs are pinned get their cores first, since those of others only avoid them: `pinned`
//! ones in their order, then `numa-first` ones, the largest first, since small ones fit into what is left.
//! Then come those that share a socket, then those that run anywhere. At last the hypervisor's other threads
//! get what no vCPU has.

mod cores;
mod devices;
mod emulator;
mod error;
mod host;
mod memory;
mod near;
mod range;

pub use error::PlaceError;

use crate::topology::Topology;
use host::HostState;
use vshmem_placement::plan::{Guest, Placed, Plan};
use vshmem_placement::request::{Machine, Taken};
use vshmem_placement::rules::{Insist, Memory, Policy};

/// Places machines beside what others have of a host.
///
/// # Errors
/// A machine can't be placed as it must be.
pub fn place(topology: &Topology, machines: &[Machine], taken: &Taken) -> Result<Plan, PlaceError> {
    let reserve = machines.iter().map(|machine| machine.rules.reserve_cores).max().unwrap_or(0);
    let mut host = HostState::new(topology, reserve as usize, taken);
    let mut placed: Vec<Option<Placed>> = machines.iter().map(|_| None).collect();
    for index in order(machines) {
        let mut its = one(&mut host, &machines[index])?;
        devices::check(topology, &machines[index], &mut its)?;
        placed[index] = Some(its);
    }
    let mut machines_placed: Vec<Placed> = placed.into_iter().flatten().collect();
    for (machine, placed) in machines.iter().zip(&mut machines_placed) {
        emulator::place(&host, machine, placed)?;
    }
    Ok(Plan { machines: machines_placed })
}

/// The order in which machines choose.
fn order(machines: &[Machine]) -> Vec<usize> {
    let mut order: Vec<_> = (0..machines.len()).collect();
    // Stable: equal machines stay in their order.
    order.sort_by_key(|index| {
        let Machine { cpus, memory, rules, .. } = &machines[*index];
        match rules.policy {
            Policy::Pinned => (0, 0, 0),
            Policy::NumaFirst => (1, usize::MAX - cpus, u64::MAX - memory),
            Policy::RangePinned => (2, usize::MAX - cpus, u64::MAX - memory),
            Policy::Unpinned => (3, 0, 0),
        }
    });
    order
}

fn one(host: &mut HostState, machine: &Machine) -> Result<Placed, PlaceError> {
    match machine.rules.policy {
        Policy::Unpinned => anywhere(host, machine),
        Policy::RangePinned => range::place(host, machine, Vec::new()),
        Policy::Pinned | Policy::NumaFirst => match cores::place(host, machine) {
            Err(why @ PlaceError::Cores { .. }) if machine.rules.cores == Insist::Preferred => {
                range::place(host, machine, vec![format!("{why}: its vCPUs share what there is")])
            }
            placed => placed,
        },
    }
}

fn anywhere(host: &mut HostState, machine: &Machine) -> Result<Placed, PlaceError> {
    let all = host.topology.pus(&host.all());
    let shares = match machine.rules.memory {
        Memory::Interleave => memory::shares(host, machine, &[]),
        _ => Vec::new(),
    };
    let lacks = memory::lacks(host, machine, &shares)?;
    host.take(machine, &[], &shares);
    Ok(Placed {
        name: machine.name.clone(),
        memory: machine.memory,
        rules: machine.rules,
        vcpus: vec![all.clone(); machine.cpus],
        emulator: all,
        nodes: host.topology.numbers(shares.iter().map(|(node, _)| *node)),
        near: machine.near.clone(),
        guest: Guest::flat(machine.cpus),
        why: vec!["unpinned: the kernel's scheduler decides".into()],
        fallbacks: lacks.into_iter().collect(),
    })
}
