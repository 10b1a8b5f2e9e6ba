//! Many machines on a large host, under three rules: the table of docs/balance.md.

use super::simulator::model::Model;
use super::simulator::program::Program;
use super::simulator::rule::Rule;
use super::simulator::world::{host, Workload, World};
use fastrand::Rng;
use vshmem_balance::moves::Place;
use vshmem_balance::policy::Settings;
use vshmem_balance::INTERVAL;
use vshmem_place::topology::Topology;

const MACHINES: usize = 1000;
const SEED: u64 = 1;
/// Seconds of a simulated step.
const STEP: f64 = 0.01;
/// Simulated seconds before anything is measured.
const WARM_UP: f64 = 10.0;
/// Simulated seconds that are measured.
const MEASURED: f64 = 20.0;

/// The parts by which sections take longer than near their memory on cores of their own: 0.1 is a tenth.
struct Slowdowns {
    kernel_alone: f64,
    esxi: f64,
    numa_first: f64,
}

/// A host of eight sockets in a cube, each linked to three others: 32 cores of two threads each, under four
/// caches.
fn large_host() -> Topology {
    let distance = |a: usize, b: usize| 10 + 6 * u64::from((a ^ b).count_ones());
    let distances = (0..8).map(|a| (0..8).map(|b| distance(a, b)).collect()).collect();
    host("eight sockets of 32 cores", 4, 8, 2, distances, 1 << 40)
}

/// The rules' slowdowns of the same machines, whose active vCPUs are on average this part of the cores.
fn compare(topology: &Topology, load: f64) -> Slowdowns {
    let settings = Settings::default();
    let slowdown = |mut rule: Rule| {
        let model = Model::default();
        let mut world = World::new(topology, &model, machines(topology, load), STEP, SEED);
        world.run(WARM_UP, &mut rule);
        world.run(MEASURED, &mut rule).stretch() - 1.0
    };
    Slowdowns {
        kernel_alone: slowdown(Rule::KernelAlone),
        esxi: slowdown(Rule::esxi(settings.memory_rate)),
        numa_first: slowdown(Rule::numa_first(INTERVAL, settings)),
    }
}

/// Machines of one to eight vCPUs with 2 GiB for each, on one node after the other as they would be started;
/// half of them are nine times as busy as the others, and one of twenty has memory that can't be moved.
fn machines(topology: &Topology, load: f64) -> Vec<Workload> {
    const WORK: f64 = 0.5;
    let mut rng = Rng::with_seed(SEED);
    let sizes: Vec<usize> = (0..MACHINES).map(|_| 1 << rng.u32(..4)).collect();
    // A section has half of the vCPUs on average, and half of one more.
    let most: f64 = sizes.iter().map(|size| (*size as f64 + 1.0) / 2.0).sum();
    let duty = load * topology.cores.len() as f64 / most;
    let nodes = topology.nodes.len();
    let machine = |(index, size): (usize, &usize)| {
        let duty = duty * if rng.bool() { 1.8 } else { 0.2 };
        let mut memory = vec![0; nodes];
        memory[index * nodes / MACHINES] = *size as u64 * (2 << 30);
        Workload {
            places: vec![Place::Anywhere; *size],
            program: Program { work: WORK, pause: WORK * (1.0 / duty - 1.0).max(0.0) },
            memory,
            native: false,
            memory_stays: (rng.u32(..20) == 0).then(|| "a device has it (VFIO)".to_owned()),
        }
    };
    sizes.iter().enumerate().map(machine).collect()
}

#[test]
#[ignore = "it takes many seconds: make soak runs it"]
fn the_policy_makes_machines_faster_than_other_rules_do() {
    let topology = large_host();
    for load in [0.4, 0.75, 1.0, 1.3, 1.6] {
        let Slowdowns { kernel_alone, esxi, numa_first } = compare(&topology, load);
        let [kernel, like_esxi, policy] = [kernel_alone, esxi, numa_first].map(|it| 100.0 * it);
        println!("{:3.0} %: {kernel:5.1} % {like_esxi:5.1} % {policy:5.1} %", 100.0 * load);
        assert!(numa_first < esxi && esxi < kernel_alone);
    }
}
