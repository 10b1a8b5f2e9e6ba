//! The processor that the host's scheduler gives each vCPU, within the place where it may run.

use fastrand::Rng;
use vshmem_balance::moves::Place;
use vshmem_place::topology::Topology;

/// The number of steps in one of which a vCPU that waits looks for a less loaded processor when no core is
/// idle.
const BALANCE: u32 = 5;

/// The processors of a host, and how many vCPUs want each.
pub struct Processors {
    /// The core of each processor.
    core_of: Vec<usize>,
    /// The first processor of each core, and after the last one.
    first: Vec<usize>,
    /// vCPUs that want each processor.
    queues: Vec<u32>,
    /// Processors of each core that somebody wants.
    busy: Vec<u32>,
    /// The node and the last-level cache of each core.
    at: Vec<(usize, usize)>,
    /// Idle cores of each node.
    idle: Vec<Vec<usize>>,
    /// The index of each core in its list of idle ones.
    position: Vec<Option<usize>>,
}

impl Processors {
    pub fn new(topology: &Topology) -> Processors {
        let mut core_of = Vec::new();
        let mut first = vec![0];
        let mut idle = vec![Vec::new(); topology.nodes.len()];
        let mut position = Vec::new();
        for (index, core) in topology.cores.iter().enumerate() {
            core_of.extend(vec![index; core.pus.len()]);
            first.push(core_of.len());
            position.push(Some(idle[core.node].len()));
            idle[core.node].push(index);
        }
        let queues = vec![0; core_of.len()];
        let at = topology.cores.iter().map(|core| (core.node, core.cache)).collect();
        Processors { core_of, first, queues, busy: vec![0; topology.cores.len()], at, idle, position }
    }

    pub fn core(&self, processor: usize) -> usize {
        self.core_of[processor]
    }

    /// The first processor of a core.
    pub fn first_of(&self, core: usize) -> usize {
        self.first[core]
    }

    /// The number of vCPUs that want a processor.
    pub fn queue(&self, processor: usize) -> u32 {
        self.queues[processor]
    }

    /// The number of a core's processors that are wanted.
    pub fn busy(&self, core: usize) -> u32 {
        self.busy[core]
    }

    /// The number of a place's cores that are idle.
    pub fn idle_cores(&self, place: Place) -> usize {
        match place {
            Place::Anywhere => self.idle.iter().map(Vec::len).sum(),
            Place::Node(node) => self.idle[node].len(),
            Place::Core(core) => usize::from(self.busy[core] == 0),
        }
    }

    pub fn enter(&mut self, processor: usize) {
        self.queues[processor] += 1;
        if self.queues[processor] == 1 {
            let core = self.core_of[processor];
            self.busy[core] += 1;
            if let Some(at) = self.position[core].take() {
                let list = &mut self.idle[self.at[core].0];
                list.swap_remove(at);
                if let Some(moved) = list.get(at) {
                    self.position[*moved] = Some(at);
                }
            }
        }
    }

    pub fn leave(&mut self, processor: usize) {
        self.queues[processor] -= 1;
        if self.queues[processor] == 0 {
            let core = self.core_of[processor];
            self.busy[core] -= 1;
            if self.busy[core] == 0 {
                let list = &mut self.idle[self.at[core].0];
                self.position[core] = Some(list.len());
                list.push(core);
            }
        }
    }

    /// Whether a processor is in a place.
    pub fn is_in(&self, processor: usize, place: Place) -> bool {
        let core = self.core_of[processor];
        match place {
            Place::Anywhere => true,
            Place::Node(node) => self.at[core].0 == node,
            Place::Core(one) => core == one,
        }
    }

    /// The processor for a vCPU that wakes up: the one where it ran last, if its core is idle; else one of an
    /// idle core, the nearest one (or with `any`, any one); else an idle one; else the one where fewest wait.
    pub fn wake(&self, last: usize, place: Place, any: bool, rng: &mut Rng) -> usize {
        let inside = self.is_in(last, place);
        if inside && !any && self.busy[self.core_of[last]] == 0 {
            return last;
        }
        if let Some(core) = self.idle_core(self.core_of[last], place, any, rng) {
            return self.first[core];
        }
        if inside && self.queues[last] == 0 {
            return last;
        }
        self.least(place, rng)
    }

    /// An idle core of a place: under the same cache as another core if there is one, then of the same node,
    /// then any.
    pub fn idle_core(&self, near: usize, place: Place, any: bool, rng: &mut Rng) -> Option<usize> {
        match place {
            Place::Core(core) => (self.busy[core] == 0).then_some(core),
            Place::Node(node) => self.of_node(near, node, any, rng),
            Place::Anywhere if any => self.nth_idle(rng),
            Place::Anywhere => {
                let here = self.at[near].0;
                self.of_node(near, here, false, rng).or_else(|| self.nth_idle(rng))
            }
        }
    }

    fn of_node(&self, near: usize, node: usize, any: bool, rng: &mut Rng) -> Option<usize> {
        let list = &self.idle[node];
        let (same_node, cache) = (self.at[near].0 == node, self.at[near].1);
        let same = list.iter().find(|core| same_node && !any && self.at[**core].1 == cache);
        same.or_else(|| rng.choice(list)).copied()
    }

    fn nth_idle(&self, rng: &mut Rng) -> Option<usize> {
        let all = self.idle_cores(Place::Anywhere);
        let mut index = if all == 0 { return None } else { rng.usize(..all) };
        for list in &self.idle {
            match list.get(index) {
                Some(core) => return Some(*core),
                None => index -= list.len(),
            }
        }
        None
    }

    /// The processor of a place that fewest vCPUs want, from a random one on: the first idle one, if there is
    /// any.
    fn least(&self, place: Place, rng: &mut Rng) -> usize {
        match place {
            Place::Core(core) => {
                let range = self.first[core]..self.first[core + 1];
                range.min_by_key(|it| self.queues[*it]).unwrap_or(self.first[core])
            }
            _ => {
                let start = rng.usize(..self.queues.len());
                let mut least = (u32::MAX, start);
                for index in 0..self.queues.len() {
                    let it = (start + index) % self.queues.len();
                    if self.is_in(it, place) && self.queues[it] < least.0 {
                        least = (self.queues[it], it);
                    }
                    if least.0 == 0 {
                        break;
                    }
                }
                least.1
            }
        }
    }

    /// A better processor for a vCPU that has to share: an idle core, or else, if it waits, an idle
    /// processor.
    pub fn better(&self, at: usize, place: Place, any: bool, rng: &mut Rng) -> Option<usize> {
        let core = self.core_of[at];
        let waits = self.queues[at] > 1;
        if !waits && self.busy[core] <= 1 {
            return None;
        }
        if let Some(core) = self.idle_core(core, place, any, rng) {
            return Some(self.first[core]);
        }
        // Schedulers look for less loaded processors from time to time only.
        if !waits || rng.u32(..BALANCE) != 0 {
            return None;
        }
        let least = self.least(place, rng);
        (self.queues[least] + 1 < self.queues[at]).then_some(least)
    }
}
