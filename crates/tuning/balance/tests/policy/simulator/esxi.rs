//! A rule like that of ESXi's NUMA scheduler, to compare with: each machine has a home node, on whose cores
//! its vCPUs run and to which its memory goes. Every two seconds, if nodes' loads differ by a tenth or more,
//! machines get another home.

use std::collections::HashMap;
use vshmem_balance::moves::{Migration, Place, VcpuIndex};
use vshmem_balance::observation::{Machine, Observation};
use vshmem_place::topology::Topology;

/// Seconds between decisions.
pub const INTERVAL: f64 = 2.0;
/// A difference of loads from which on machines move.
const IMBALANCE: f64 = 0.10;

/// New places of vCPUs, and moves of memory.
pub type Orders = (Vec<(VcpuIndex, Place)>, Vec<Migration>);

/// The rule, and the homes that it has given.
pub struct Esxi {
    homes: HashMap<u64, usize>,
    memory_rate: f64,
}

impl Esxi {
    pub fn new(memory_rate: f64) -> Esxi {
        Esxi { homes: HashMap::new(), memory_rate }
    }

    pub fn decide(&mut self, topology: &Topology, seen: &Observation) -> Orders {
        let before = self.homes.clone();
        let mut loads = Loads::new(topology);
        for machine in &seen.machines {
            // At first a machine's home is where most of its memory is.
            let most =
                (0..machine.memory.len()).max_by_key(|node| (machine.memory[*node], usize::MAX - node));
            let home = *self.homes.entry(machine.key).or_insert(most.unwrap_or(0));
            loads.of[home] += load(machine);
        }
        // Each machine moves once at most.
        for _ in 0..seen.machines.len() {
            let Some((machine, to)) = self.best(seen, &before, &loads) else { break };
            let machine = &seen.machines[machine];
            let from = self.homes.insert(machine.key, to).unwrap_or(to);
            loads.of[from] -= load(machine);
            loads.of[to] += load(machine);
        }
        (self.pins(seen, &before), self.migrations(seen))
    }

    /// The machine of the fullest node that makes it and the emptiest node most alike.
    fn best(
        &self,
        seen: &Observation,
        before: &HashMap<u64, usize>,
        loads: &Loads,
    ) -> Option<(usize, usize)> {
        let (from, to) = loads.extremes()?;
        let difference = loads.part(from, 0.0) - loads.part(to, 0.0);
        if difference < IMBALANCE {
            return None;
        }
        let here = seen.machines.iter().enumerate().filter(|(_, machine)| {
            self.homes[&machine.key] == from && before.get(&machine.key).is_none_or(|home| *home == from)
        });
        let after =
            |machine: &Machine| (loads.part(from, -load(machine)) - loads.part(to, load(machine))).abs();
        let ways = here.map(|(index, machine)| (index, after(machine)));
        let (index, left) = ways.min_by(|a, b| a.1.total_cmp(&b.1))?;
        (left < difference).then_some((index, to))
    }

    fn pins(&self, seen: &Observation, before: &HashMap<u64, usize>) -> Vec<(VcpuIndex, Place)> {
        let mut pins = Vec::new();
        for (machine, it) in seen.machines.iter().enumerate() {
            let home = self.homes[&it.key];
            if before.get(&it.key) != Some(&home) {
                let all = (0..it.vcpus.len()).map(|vcpu| (VcpuIndex { machine, vcpu }, Place::Node(home)));
                pins.extend(all);
            }
        }
        pins
    }

    /// Memory goes home, as fast as it may.
    fn migrations(&self, seen: &Observation) -> Vec<Migration> {
        let mut left = (self.memory_rate * seen.seconds) as u64;
        let mut migrations = Vec::new();
        for (machine, it) in seen.machines.iter().enumerate() {
            let to = self.homes[&it.key];
            for (from, bytes) in it.memory.iter().enumerate().filter(|(from, _)| *from != to) {
                let bytes = left.min(*bytes);
                if bytes > 0 {
                    left -= bytes;
                    migrations.push(Migration { machine, from, to, bytes, gain: 0.0 });
                }
            }
        }
        migrations
    }
}

/// The number of processors that a machine's vCPUs want.
fn load(machine: &Machine) -> f64 {
    machine.vcpus.iter().map(|vcpu| vcpu.run + vcpu.wait).sum()
}

/// The number of processors that machines want of each node.
struct Loads {
    of: Vec<f64>,
    cores: Vec<usize>,
}

impl Loads {
    fn new(topology: &Topology) -> Loads {
        let mut cores = vec![0; topology.nodes.len()];
        for core in &topology.cores {
            cores[core.node] += 1;
        }
        Loads { of: vec![0.0; cores.len()], cores }
    }

    /// Load of a node with that much more, as part of its cores.
    fn part(&self, node: usize, more: f64) -> f64 {
        (self.of[node] + more) / self.cores[node] as f64
    }

    /// The fullest and the emptiest node.
    fn extremes(&self) -> Option<(usize, usize)> {
        let with_cores = || (0..self.of.len()).filter(|node| self.cores[*node] > 0);
        let by_load = |a: &usize, b: &usize| self.part(*a, 0.0).total_cmp(&self.part(*b, 0.0));
        Some((with_cores().max_by(by_load)?, with_cores().min_by(by_load)?))
    }
}
