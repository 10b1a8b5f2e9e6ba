//! A host in simulated time.

use super::kernel::Processors;
use super::model::Model;
use super::program::{Program, Section};
use super::rule::Rule;
use fastrand::Rng;
use vshmem_balance::moves::{Migration, Place};
use vshmem_balance::observation::{Machine, Observation, Vcpu};
use vshmem_balance::policy::Settings;
use vshmem_place::topology::{Topology, LOCAL};

/// A machine, or a program of the host.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The place where each vCPU may run at first.
    pub places: Vec<Place>,
    /// The program that it runs.
    pub program: Program,
    /// Bytes of its memory on each node.
    pub memory: Vec<u64>,
    /// Each thread has its memory where it runs, and no hypervisor is in between: a program of the host.
    pub native: bool,
    /// The reason why its memory can't be moved, if it can't.
    pub memory_stays: Option<String>,
}

/// The measurements of all machines.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Seconds that sections took.
    pub took: f64,
    /// Seconds that they would have taken on cores of their own, near their memory, without a hypervisor.
    pub ideal: f64,
    /// Seconds in which vCPUs ran.
    pub ran: f64,
    /// Seconds in which they ran, weighed by the part of their memory that was local.
    pub local: f64,
    /// The number of times that a vCPU was sent to another node.
    pub moves: u64,
    /// Bytes of memory that moved.
    pub migrated: u64,
    /// The most vCPUs that one decision has sent elsewhere.
    pub most_moves: usize,
}

struct Thread {
    workload: usize,
    place: Place,
    /// The processor that it is on, or was on last.
    at: usize,
    /// Seconds of work left; `None`: it is idle.
    left: Option<f64>,
    /// The cache that it ran under last.
    cache: usize,
    /// Seconds until its caches are warm.
    refill: f64,
    run: f64,
    wait: f64,
}

/// The phase of a machine's program.
enum Phase {
    Pauses { until: f64, section: Section },
    Runs { begun: f64, threads: usize, work: f64 },
}

/// A host with machines.
pub struct World<'a> {
    topology: &'a Topology,
    model: &'a Model,
    /// Seconds of a step.
    step: f64,
    clock: f64,
    rng: Rng,
    processors: Processors,
    workloads: Vec<Workload>,
    /// Each workload has its own, so that it does the same under each rule.
    programs: Vec<Rng>,
    phases: Vec<Phase>,
    /// The first thread of each workload.
    first: Vec<usize>,
    threads: Vec<Thread>,
    /// Threads that used each node's memory in the step before, by their share of accesses.
    users: Vec<f64>,
    measured: Measured,
}

impl<'a> World<'a> {
    /// A host at its beginning.
    pub fn new(
        topology: &'a Topology,
        model: &'a Model,
        workloads: Vec<Workload>,
        step: f64,
        seed: u64,
    ) -> World<'a> {
        let mut rng = Rng::with_seed(seed);
        let processors = Processors::new(topology);
        let (mut threads, mut first, mut phases) = (Vec::new(), Vec::new(), Vec::new());
        let mut programs: Vec<_> = workloads.iter().map(|_| rng.fork()).collect();
        for (index, workload) in workloads.iter().enumerate() {
            first.push(threads.len());
            for place in &workload.places {
                let at = match place {
                    Place::Core(core) => processors.first_of(*core),
                    _ => processors.first_of(rng.usize(..topology.cores.len())),
                };
                let cache = topology.cores[processors.core(at)].cache;
                let (refill, run, wait) = (0.0, 0.0, 0.0);
                threads.push(Thread {
                    workload: index,
                    place: *place,
                    at,
                    left: None,
                    cache,
                    refill,
                    run,
                    wait,
                });
            }
            let section = workload.program.next(workload.places.len(), &mut programs[index]);
            phases.push(Phase::Pauses { until: section.pause, section });
        }
        let users = vec![0.0; topology.nodes.len()];
        let measured = Measured::default();
        World {
            topology,
            model,
            step,
            clock: 0.0,
            rng,
            processors,
            workloads,
            programs,
            phases,
            first,
            threads,
            users,
            measured,
        }
    }

    /// Lets so many seconds pass, with a rule that decides. What was measured begins anew.
    pub fn run(&mut self, seconds: f64, rule: &mut Rule) -> Measured {
        self.measured = Measured::default();
        let end = self.clock + seconds;
        let mut asked = self.clock;
        while self.clock < end {
            self.begin_step();
            if self.clock - asked >= rule.interval() - self.step / 2.0 {
                self.ask(rule, self.clock - asked);
                asked = self.clock;
            }
            self.end_step();
        }
        self.measured.clone()
    }

    /// Whether a vCPU waits, or shares a core as a sibling, while a core is idle.
    pub fn wastes(&self) -> bool {
        let idle = self.processors.idle_cores(Place::Anywhere) > 0;
        idle && self.threads.iter().any(|thread| {
            let shares = |at: usize| {
                self.processors.queue(at) > 1 || self.processors.busy(self.processors.core(at)) > 1
            };
            thread.left.is_some() && shares(thread.at)
        })
    }

    /// Sections begin.
    fn begin_step(&mut self) {
        self.clock += self.step;
        for workload in 0..self.workloads.len() {
            self.begin_section(workload);
        }
    }

    /// Threads are scheduled, and run.
    fn end_step(&mut self) {
        for thread in 0..self.threads.len() {
            if self.threads[thread].left.is_some() {
                self.reschedule(thread);
            }
        }
        let users = std::mem::replace(&mut self.users, vec![0.0; self.topology.nodes.len()]);
        for thread in 0..self.threads.len() {
            if self.threads[thread].left.is_some() {
                self.execute(thread, &users);
            }
        }
    }

    fn begin_section(&mut self, workload: usize) {
        let Phase::Pauses { until, section } = &self.phases[workload] else { return };
        if *until > self.clock {
            return;
        }
        let any = self.model.wander > 0.0 && !self.workloads[workload].native;
        let first = self.first[workload];
        let (vcpus, work) = (section.vcpus.clone(), section.work);
        for vcpu in &vcpus {
            let thread = first + vcpu;
            self.threads[thread].left = Some(work);
            let it = &self.threads[thread];
            let to = self.processors.wake(it.at, it.place, any, &mut self.rng);
            self.arrive(thread, to);
        }
        self.phases[workload] = Phase::Runs { begun: self.clock, threads: vcpus.len(), work };
    }

    /// Puts a thread on a processor.
    fn arrive(&mut self, thread: usize, to: usize) {
        self.processors.enter(to);
        self.threads[thread].at = to;
    }

    /// Does what the host's scheduler does with a thread that is runnable.
    fn reschedule(&mut self, thread: usize) {
        let it = &self.threads[thread];
        let native = self.workloads[it.workload].native;
        let wanders = !native && self.model.wander > 0.0;
        let to = if !self.processors.is_in(it.at, it.place) {
            Some(self.processors.wake(it.at, it.place, wanders, &mut self.rng))
        } else if wanders && self.rng.f64() < self.model.wander * self.step {
            let near = self.processors.core(it.at);
            let core = self.processors.idle_core(near, it.place, true, &mut self.rng);
            core.map(|core| self.processors.first_of(core))
        } else {
            self.processors.better(it.at, it.place, wanders, &mut self.rng)
        };
        if let Some(to) = to.filter(|to| *to != it.at) {
            self.processors.leave(it.at);
            self.arrive(thread, to);
        }
    }

    fn execute(&mut self, thread: usize, users: &[f64]) {
        let it = &self.threads[thread];
        let workload = &self.workloads[it.workload];
        let core = self.processors.core(it.at);
        let (node, cache) = (self.topology.cores[core].node, self.topology.cores[core].cache);
        let share = 1.0 / f64::from(self.processors.queue(it.at));
        let all: u64 = workload.memory.iter().sum();
        let part = |at: usize| match workload.native {
            true => f64::from(u8::from(at == node)),
            false => workload.memory[at] as f64 / all as f64,
        };
        let parts = (0..users.len()).map(|at| (at, part(at))).filter(|(_, part)| *part > 0.0);
        let mut stretch = 0.0;
        let accesses = parts.map(|(at, part)| {
            self.users[at] += share * part;
            (part, self.topology.distance(node, at), users[at])
        });
        stretch += self.model.stretch(!workload.native, accesses);
        if self.processors.busy(core) > 1 {
            stretch /= self.model.sibling;
        }
        let time = self.step * share;
        let measured = &mut self.measured;
        measured.ran += time;
        measured.local += time * part(node);
        let it = &mut self.threads[thread];
        if it.cache != cache {
            (it.cache, it.refill) = (cache, it.refill.max(self.model.refill));
        }
        it.run += time;
        it.wait += self.step - time;
        let cold = it.refill.min(time);
        it.refill -= cold;
        let left = it.left.unwrap_or(0.0) - (time - cold) / stretch;
        it.left = (left > 0.0).then_some(left);
        if left <= 0.0 {
            self.processors.leave(it.at);
            let workload = it.workload;
            self.end_thread(workload);
        }
    }

    /// A thread of a section has done its work.
    fn end_thread(&mut self, workload: usize) {
        let Phase::Runs { begun, threads, work } = &mut self.phases[workload] else { return };
        *threads -= 1;
        if *threads == 0 {
            // It began with the step, and ends after this one.
            self.measured.took += self.clock - *begun + self.step;
            self.measured.ideal += *work;
            let vcpus = self.workloads[workload].places.len();
            let section = self.workloads[workload].program.next(vcpus, &mut self.programs[workload]);
            self.phases[workload] = Phase::Pauses { until: self.clock + section.pause, section };
        }
    }

    fn ask(&mut self, rule: &mut Rule, seconds: f64) {
        let seen = self.observe(seconds, rule.sees_at_once());
        let (pins, migrations) = rule.decide(self.topology, &seen);
        let mut displaced = 0;
        for (index, to) in pins {
            let thread = &mut self.threads[self.first[index.machine] + index.vcpu];
            displaced += usize::from(thread.left.is_some() && !self.processors.is_in(thread.at, to));
            thread.place = to;
        }
        self.measured.moves += displaced as u64;
        self.measured.most_moves = self.measured.most_moves.max(displaced);
        for migration in migrations {
            self.migrate(&migration);
        }
    }

    /// Moves memory. Its machine pays for the copy.
    fn migrate(&mut self, migration: &Migration) {
        let workload = &mut self.workloads[migration.machine];
        let bytes = migration.bytes.min(workload.memory[migration.from]);
        workload.memory[migration.from] -= bytes;
        workload.memory[migration.to] += bytes;
        self.measured.migrated += bytes;
        let vcpus = workload.places.len();
        let cost = bytes as f64 * Settings::default().copy / vcpus as f64;
        let first = self.first[migration.machine];
        for thread in &mut self.threads[first..first + vcpus] {
            thread.refill += cost;
        }
    }

    /// The observation that a rule is told: of the time since it was asked last, or `now`, who can run at
    /// this moment.
    fn observe(&mut self, seconds: f64, now: bool) -> Observation {
        let mut free: Vec<_> = self.topology.nodes.iter().map(|node| node.memory).collect();
        let mut machines = Vec::new();
        for (index, workload) in self.workloads.iter().enumerate() {
            for (free, used) in free.iter_mut().zip(&workload.memory) {
                *free = free.map(|free| free.saturating_sub(*used));
            }
            let first = self.first[index];
            let threads = self.threads[first..first + workload.places.len()].iter_mut().enumerate();
            let vcpus = threads.map(|(vcpu, thread)| {
                let (run, wait) = (std::mem::take(&mut thread.run), std::mem::take(&mut thread.wait));
                let (run, wait) = match now {
                    true => (f64::from(u8::from(thread.left.is_some())), 0.0),
                    false => (run / seconds, wait / seconds),
                };
                Vcpu { key: (first + vcpu) as u64, run, wait, core: Some(self.processors.core(thread.at)) }
            });
            machines.push(Machine {
                name: format!("vm{index}"),
                key: index as u64,
                memory: workload.memory.clone(),
                memory_stays: workload.memory_stays.clone(),
                vcpus_stay: None,
                vcpus: vcpus.collect(),
            });
        }
        Observation { seconds, others: vec![0.0; self.topology.cores.len()], free, machines }
    }
}

impl Measured {
    /// The time that sections took, as a multiple of their ideal time.
    pub fn stretch(&self) -> f64 {
        self.took / self.ideal
    }
}

/// A host of equal nodes, each with caches of `cores` cores.
pub fn host(
    source: &str,
    caches: usize,
    cores: usize,
    threads: usize,
    distances: Vec<Vec<u64>>,
    memory: u64,
) -> Topology {
    use vshmem_place::topology::{Core, Node};
    let nodes = distances.len();
    debug_assert!((0..nodes).all(|node| distances[node][node] == LOCAL));
    let core = |index: usize| {
        let pus = (0..threads).map(|thread| (index * threads + thread) as u32).collect();
        let cache = index / cores;
        Core { pus, package: cache / caches, cache, node: cache / caches }
    };
    Topology {
        source: source.into(),
        cores: (0..nodes * caches * cores).map(core).collect(),
        nodes: (0..nodes as u32).map(|number| Node { number, memory: Some(memory) }).collect(),
        distances: Some(distances),
    }
}
