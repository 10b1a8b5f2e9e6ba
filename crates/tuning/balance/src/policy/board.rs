//! The board: all vCPUs and their nodes while a decision is made.

use super::history::History;
use super::settings::Settings;
use crate::moves::{Pin, Place, VcpuIndex, Why};
use crate::observation::{Machine, Observation};
use vshmem_place::topology::{Topology, LOCAL};

/// Part of a core that may be in use by others while it still counts as free.
const TOLERANCE: f64 = 0.5;

/// A vCPU while a decision is made.
pub struct Item {
    pub index: VcpuIndex,
    pub key: u64,
    pub active: bool,
    /// It must not be moved.
    pub stays: bool,
    pub wait: f64,
    /// The core on which it ran last.
    pub core: Option<usize>,
    /// The place where it may run so far.
    pub before: Place,
    /// The node that it is counted on: one that is active has one, unless it runs anywhere.
    pub home: Option<usize>,
    /// The place where it may run from now on.
    pub place: Place,
    /// Seconds since it was displaced.
    pub rested: f64,
    pub why: Option<Why>,
    /// It has to leave its core, and is counted among those that may.
    displaced: bool,
}

/// All vCPUs, and how full nodes are.
pub struct Board<'a> {
    pub topology: &'a Topology,
    pub settings: &'a Settings,
    pub seen: &'a Observation,
    pub history: History,
    pub items: Vec<Item>,
    /// The part of a local access by which one to each machine's memory takes longer from each node.
    pub costs: Vec<Vec<f64>>,
    /// The cores of each node.
    pub cores: Vec<Vec<usize>>,
    /// Active vCPUs counted on each node.
    pub count: Vec<usize>,
    /// Cores of each node that others use.
    others: Vec<f64>,
    /// vCPUs that may still be displaced.
    left: usize,
}

impl<'a> Board<'a> {
    pub fn new(
        topology: &'a Topology,
        settings: &'a Settings,
        seen: &'a Observation,
        history: History,
    ) -> Board<'a> {
        let nodes = topology.nodes.len();
        let mut cores = vec![Vec::new(); nodes];
        let mut others = vec![0.0; nodes];
        for (index, core) in topology.cores.iter().enumerate() {
            cores[core.node].push(index);
            others[core.node] += history.others[index];
        }
        let costs = seen.machines.iter().map(|machine| costs(topology, machine)).collect();
        let mut board = Board {
            topology,
            settings,
            seen,
            history,
            items: Vec::new(),
            costs,
            cores,
            count: vec![0; nodes],
            others,
            left: settings.moves,
        };
        board.fill();
        board
    }

    fn fill(&mut self) {
        for (machine, it) in self.seen.machines.iter().enumerate() {
            for (vcpu, seen) in it.vcpus.iter().enumerate() {
                let track = &self.history.vcpus[&seen.key];
                let stays = it.vcpus_stay.is_some();
                let node_of = |core: usize| self.topology.cores[core].node;
                let home = match track.place {
                    _ if !track.active => None,
                    _ if stays => seen.core.map(node_of),
                    Place::Anywhere => None,
                    Place::Node(node) => Some(node),
                    Place::Core(core) => Some(node_of(core)),
                };
                if let Some(home) = home {
                    self.count[home] += 1;
                }
                self.items.push(Item {
                    index: VcpuIndex { machine, vcpu },
                    key: seen.key,
                    active: track.active,
                    stays,
                    wait: seen.wait,
                    core: seen.core,
                    before: track.place,
                    home,
                    place: track.place,
                    rested: self.history.clock - track.moved,
                    why: None,
                    displaced: false,
                });
            }
        }
    }

    /// Cores of a node that are there for vCPUs.
    fn room(&self, node: usize) -> f64 {
        self.cores[node].len() as f64 - self.others[node] + TOLERANCE
    }

    /// Whether a node has a core for one more vCPU.
    pub fn fits(&self, node: usize) -> bool {
        !self.cores[node].is_empty() && (self.count[node] + 1) as f64 <= self.room(node)
    }

    /// Whether a node has more vCPUs than cores for them.
    pub fn is_over(&self, node: usize) -> bool {
        self.count[node] as f64 > self.room(node)
    }

    /// The number of vCPUs and others that take turns on a core of a node that has so many vCPUs.
    fn pressure(&self, node: usize, count: usize) -> f64 {
        (count as f64 + self.others[node]) / self.cores[node].len() as f64
    }

    /// The fullness of a node with `more` further vCPUs: the number of vCPUs and others that share a core.
    pub fn fullness(&self, node: usize, more: usize) -> f64 {
        self.pressure(node, self.count[node] + more)
    }

    /// The factor by which a vCPU takes longer on a node that has so many than alone and near its memory.
    pub fn slowness(&self, item: usize, node: usize, count: usize) -> f64 {
        self.pressure(node, count).max(1.0) * (1.0 + self.settings.stall * self.cost(item, node))
    }

    /// The distance of a vCPU's memory from a node: by how much of a local access one takes longer.
    pub fn cost(&self, item: usize, node: usize) -> f64 {
        self.costs[self.items[item].index.machine][node]
    }

    /// The processors that vCPUs and others want.
    pub fn wanted(&self) -> f64 {
        let vcpus = self.seen.machines.iter().flat_map(|machine| &machine.vcpus);
        vcpus.map(|vcpu| vcpu.run + vcpu.wait).chain(self.others.iter().copied()).sum()
    }

    /// The node with cores that is nearest to a vCPU's memory.
    pub fn nearest(&self, item: usize) -> usize {
        let nodes = (0..self.cores.len()).filter(|node| !self.cores[*node].is_empty());
        let nearest = nodes.min_by(|a, b| self.cost(item, *a).total_cmp(&self.cost(item, *b)));
        nearest.expect("a host has cores")
    }

    /// The node of the core on which a vCPU ran last.
    pub fn runs_on(&self, item: usize) -> Option<usize> {
        self.items[item].core.map(|core| self.topology.cores[core].node)
    }

    /// Whether a vCPU has stayed for so long that a move which gains this much of its time can't be one too
    /// many.
    pub fn may_gain(&self, item: usize, gain: f64) -> bool {
        self.items[item].rested * gain >= 2.0 * self.settings.refill
    }

    /// Lets a vCPU be displaced, if as many in this step may.
    pub fn displace(&mut self, item: usize) -> bool {
        let item = &mut self.items[item];
        if !item.displaced && self.left > 0 {
            (item.displaced, self.left) = (true, self.left - 1);
        }
        item.displaced
    }

    /// Counts a vCPU on another node, unless too many have to leave their cores in this step.
    pub fn go(&mut self, item: usize, node: usize, why: Why) -> bool {
        if self.runs_on(item) != Some(node) && !self.displace(item) {
            return false;
        }
        if let Some(home) = self.items[item].home {
            self.count[home] -= 1;
        }
        self.count[node] += 1;
        let item = &mut self.items[item];
        (item.home, item.place, item.why) = (Some(node), Place::Node(node), Some(why));
        true
    }

    /// Whether a number of vCPUs can still be displaced.
    pub fn can_displace(&self, count: usize) -> bool {
        self.left >= count
    }

    /// The active vCPUs that may be moved, by node.
    pub fn movable(&self) -> Vec<Vec<usize>> {
        let mut nodes = vec![Vec::new(); self.cores.len()];
        for (index, item) in self.items.iter().enumerate() {
            if let Some(home) = item.home.filter(|_| !item.stays) {
                nodes[home].push(index);
            }
        }
        nodes
    }

    /// The new places of vCPUs, and the history for the next decision.
    pub fn finish(mut self) -> (Vec<Pin>, History) {
        let mut pins = Vec::new();
        for item in self.items.iter().filter(|item| !item.stays) {
            let displaces = item.displaced && !holds(self.topology, item.place, item.core);
            let track = self.history.vcpus.get_mut(&item.key).expect("each vCPU has one");
            if displaces {
                track.moved = self.history.clock;
            }
            track.place = item.place;
            if item.place != item.before {
                let why = item.why.unwrap_or(if item.active { Why::Active } else { Why::Idle });
                pins.push(Pin { index: item.index, to: item.place, displaces, why });
            }
        }
        (pins, self.history)
    }
}

/// Whether a core is in a place.
fn holds(topology: &Topology, place: Place, core: Option<usize>) -> bool {
    match (place, core) {
        (Place::Anywhere, _) => true,
        (Place::Node(node), Some(core)) => topology.cores[core].node == node,
        (Place::Core(one), core) => core == Some(one),
        (Place::Node(_), None) => false,
    }
}

/// The part of a local access by which one to a machine's memory takes longer from each node.
fn costs(topology: &Topology, machine: &Machine) -> Vec<f64> {
    let all: u64 = machine.memory.iter().sum();
    let cost = |node: usize| {
        let parts = machine.memory.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
        let far = parts.map(|(at, bytes)| {
            *bytes as f64 / all as f64 * (topology.distance(node, at) as f64 / LOCAL as f64 - 1.0)
        });
        far.sum()
    };
    (0..topology.nodes.len()).map(cost).collect()
}
