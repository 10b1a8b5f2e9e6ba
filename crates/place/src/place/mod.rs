//! Computes a placement: a pure function of a topology and of what is asked for.
//!
//! Machines whose vCPUs are pinned get their cores first, since those of others only avoid them: `pinned`
//! ones in their order, then `numa-first` ones, the largest first, since small ones fit into what is left.
//! Then come those that share a socket, then those that run anywhere. At last the hypervisor's other threads
//! get what no vCPU has.

mod cores;
mod emulator;
mod error;
mod host;
mod memory;
mod near;
mod range;

pub use error::PlaceError;

use crate::cpuset::CpuSet;
use crate::machine::{Insist, Machine, Policy};
use crate::plan::{Guest, Placed, Plan};
use crate::topology::Topology;
use host::Host;

/// Places machines. `reserve` cores of each memory node get no vCPU that is pinned.
///
/// # Errors
/// A machine can't be placed as it must be.
pub fn place(topology: &Topology, machines: &[Machine], reserve: usize) -> Result<Plan, PlaceError> {
    let mut host = Host::new(topology, reserve);
    let mut placed: Vec<Option<Placed>> = machines.iter().map(|_| None).collect();
    for index in order(machines) {
        placed[index] = Some(one(&mut host, &machines[index])?);
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

fn one(host: &mut Host, machine: &Machine) -> Result<Placed, PlaceError> {
    match machine.rules.policy {
        Policy::Unpinned => Ok(anywhere(host, machine)),
        Policy::RangePinned => range::place(host, machine, Vec::new()),
        Policy::Pinned | Policy::NumaFirst => match cores::place(host, machine) {
            Err(why @ PlaceError::Cores { .. }) if machine.rules.cores == Insist::Preferred => {
                range::place(host, machine, vec![format!("{why}: its vCPUs share what there is")])
            }
            placed => placed,
        },
    }
}

fn anywhere(host: &Host, machine: &Machine) -> Placed {
    let all = host.topology.pus(&host.all());
    Placed {
        name: machine.name.clone(),
        memory: machine.memory,
        vcpus: vec![all.clone(); machine.cpus],
        emulator: all,
        nodes: CpuSet::default(),
        bound: false,
        guest: Guest::flat(machine.cpus),
        why: vec!["unpinned: the kernel's scheduler decides".into()],
        fallbacks: Vec::new(),
    }
}
