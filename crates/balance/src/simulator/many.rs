//! Many machines on a large host, under three rules.

use super::model::Model;
use super::program::Program;
use super::rule::Rule;
use super::world::{host, Guest, Measured, World};
use crate::moves::Place;
use crate::policy::Settings;
use fastrand::Rng;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Instant;
use vshmem_place::topology::Topology;

/// Seconds of a simulated step.
const STEP: f64 = 0.01;
/// Simulated seconds before anything is measured.
const WARM_UP: f64 = 10.0;

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The number of machines.
    pub machines: usize,
    /// vCPUs that are active on average, as part of the cores.
    pub load: f64,
    /// Simulated seconds that are measured.
    pub seconds: f64,
    /// Seconds between decisions of the policy.
    pub interval: f64,
    /// What chance depends on.
    pub seed: u64,
}

/// What a rule has made of it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Outcome {
    /// The rule.
    pub rule: &'static str,
    /// How much longer sections take than near their memory on cores of their own: 0.1 is a tenth.
    pub slower: f64,
    /// Part of the vCPUs' time that was on the node of their memory.
    pub local: f64,
    /// Part of the vCPUs' time in which they waited for a processor.
    pub waited: f64,
    /// The same, while a core was idle.
    pub waited_beside_idle: f64,
    /// Part of the vCPUs' time in which they shared a core as siblings while a core was idle.
    pub shared_beside_idle: f64,
    /// vCPUs sent elsewhere in a second.
    pub moves: f64,
    /// The most in one decision.
    pub most_moves: usize,
    /// Bytes of memory moved in a second.
    pub migrated: f64,
    /// Seconds that the simulation took.
    pub took: f64,
}

/// A host of eight sockets in a cube, each linked to three others: 32 cores of two threads each, under four
/// caches.
pub fn large_host() -> Topology {
    let distance = |a: usize, b: usize| 10 + 6 * u64::from((a ^ b).count_ones());
    let distances = (0..8).map(|a| (0..8).map(|b| distance(a, b)).collect()).collect();
    host("eight sockets of 32 cores", 4, 8, 2, distances, 1 << 40)
}

/// The kernel alone, a rule like ESXi's, and the policy, on the same machines.
pub fn compare(topology: &Topology, scenario: &Scenario) -> Vec<Outcome> {
    let settings = Settings::default();
    let rules = || {
        [
            ("kernel alone", Rule::Nobody),
            ("like ESXi", Rule::esxi(settings.memory_rate)),
            ("numa-first", Rule::numa_first(scenario.interval, settings.clone())),
        ]
    };
    std::thread::scope(|scope| {
        let run = |(name, rule)| scope.spawn(move || outcome(topology, scenario, name, rule));
        let running: Vec<_> = rules().into_iter().map(run).collect();
        running.into_iter().map(|it| it.join().expect("a simulation does not panic")).collect()
    })
}

fn outcome(topology: &Topology, scenario: &Scenario, rule: &'static str, mut by: Rule) -> Outcome {
    let begun = Instant::now();
    let model = Model::default();
    let mut world = World::new(topology, &model, machines(topology, scenario), STEP, scenario.seed);
    world.run(WARM_UP, &mut by);
    let it: Measured = world.run(scenario.seconds, &mut by);
    let wanted = it.ran + it.waited;
    Outcome {
        rule,
        slower: it.stretch() - 1.0,
        local: it.local / it.ran,
        waited: it.waited / wanted,
        waited_beside_idle: it.waited_beside_idle / wanted,
        shared_beside_idle: it.shared_beside_idle / wanted,
        moves: it.moves as f64 / scenario.seconds,
        most_moves: it.most_moves,
        migrated: it.migrated as f64 / scenario.seconds,
        took: begun.elapsed().as_secs_f64(),
    }
}

/// Machines of one to eight vCPUs with 2 GiB for each, on one node after the other as they would be started;
/// half of them are nine times as busy as the others, and one of twenty has memory that can't be moved.
pub fn machines(topology: &Topology, scenario: &Scenario) -> Vec<Guest> {
    const WORK: f64 = 0.5;
    let mut rng = Rng::with_seed(scenario.seed);
    let sizes: Vec<usize> = (0..scenario.machines).map(|_| 1 << rng.u32(..4)).collect();
    // A section has half of the vCPUs on average, and half of one more.
    let most: f64 = sizes.iter().map(|size| (*size as f64 + 1.0) / 2.0).sum();
    let duty = scenario.load * topology.cores.len() as f64 / most.max(1.0);
    let nodes = topology.nodes.len();
    let machine = |(index, size): (usize, &usize)| {
        let duty = duty * if rng.bool() { 1.8 } else { 0.2 };
        let mut memory = vec![0; nodes];
        memory[index * nodes / scenario.machines] = *size as u64 * (2 << 30);
        Guest {
            places: vec![Place::Anywhere; *size],
            program: Program { work: WORK, pause: WORK * (1.0 / duty - 1.0).max(0.0) },
            memory,
            native: false,
            memory_stays: (rng.u32(..20) == 0).then(|| "a device has it (VFIO)".to_owned()),
        }
    };
    sizes.iter().enumerate().map(machine).collect()
}
