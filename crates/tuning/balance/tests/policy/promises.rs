//! The policy's promises, on simulated hosts with a constant load and on observations of any kind.

use super::simulator::model::Model;
use super::simulator::program::Program;
use super::simulator::rule::Rule;
use super::simulator::world::{host, Workload, World};
use proptest::prelude::*;
use std::collections::HashMap;
use vshmem_balance::moves::{Place, Why};
use vshmem_balance::observation::{Machine, Observation, Vcpu};
use vshmem_balance::policy::{decide, Decision, History, Settings};
use vshmem_place::topology::Topology;

const GIB: u64 = 1 << 30;
const STEP: f64 = 0.01;
const INTERVAL: f64 = 0.1;

/// Nodes in a row, each as far from another as there are nodes between.
fn hosts() -> impl Strategy<Value = Topology> {
    (1usize..5, 1usize..3, 1usize..5, 1usize..3).prop_map(|(nodes, caches, cores, threads)| {
        let distance = |a: usize, b: usize| 10 + 6 * a.abs_diff(b) as u64;
        let distances = (0..nodes).map(|a| (0..nodes).map(|b| distance(a, b)).collect()).collect();
        host("a row", caches, cores, threads, distances, 64 * GIB)
    })
}

/// A machine that is as busy all the time, pinned by hand to any cores: its vCPUs' cores, and the node of its
/// memory.
fn machines() -> impl Strategy<Value = Vec<(Vec<usize>, usize)>> {
    proptest::collection::vec((proptest::collection::vec(0usize..64, 1..7), 0usize..4), 1..8)
}

fn workload(topology: &Topology, cores: &[usize], node: usize, work: f64, memory_stays: bool) -> Workload {
    let mut memory = vec![0; topology.nodes.len()];
    memory[node % topology.nodes.len()] = GIB;
    Workload {
        places: cores.iter().map(|core| Place::Core(core % topology.cores.len())).collect(),
        program: Program { work, pause: 0.0 },
        memory,
        native: false,
        memory_stays: memory_stays.then(|| "it is bound".into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Under a constant load, moves end; from then on no vCPU waits or shares a core while one is idle; and
    /// no step has more moves than it may.
    #[test]
    fn it_converges_and_wastes_no_core(
        topology in hosts(), wanted in machines(), moves in 1usize..6, stays in any::<bool>(), seed in 0u64..1000,
    ) {
        // Work without an end: who is active is drawn once.
        let workloads = wanted.iter().map(|(cores, node)| workload(&topology, cores, *node, 1e9, stays)).collect();
        let model = Model::default();
        let mut world = World::new(&topology, &model, workloads, STEP, seed);
        let mut rule = Rule::numa_first(INTERVAL, Settings { moves, ..Settings::default() });
        let begin = world.run(60.0, &mut rule);
        prop_assert!(begin.most_moves <= moves, "{} moves at once", begin.most_moves);
        for _ in 0..50 {
            let then = world.run(0.1, &mut rule);
            prop_assert!(!world.wastes(), "a core is idle and a vCPU shares another");
            prop_assert_eq!((then.moves, then.migrated), (0, 0), "it goes on moving");
        }
    }

    /// A machine that fits on the node of its memory runs there.
    #[test]
    fn a_machine_comes_to_its_memory(topology in hosts(), cores in proptest::collection::vec(0usize..64, 1..5), node in 0usize..4) {
        let of_node = topology.cores.len() / topology.nodes.len();
        prop_assume!(cores.len() <= of_node);
        let model = Model::default();
        let workloads = vec![workload(&topology, &cores, node, 1e9, true)];
        let mut world = World::new(&topology, &model, workloads, STEP, 1);
        let mut rule = Rule::numa_first(INTERVAL, Settings::default());
        world.run(3.0, &mut rule);
        let then = world.run(1.0, &mut rule);
        prop_assert!((then.local - then.ran).abs() < 1e-6, "{} of {} s near", then.local, then.ran);
    }

    /// Whatever machines do, moves cost at most half of what they gain: nobody moves more often than every
    /// 0.1 s for a gain of a whole local access.
    #[test]
    fn nobody_ping_pongs(topology in hosts(), wanted in machines(), seed in 0u64..1000) {
        let workloads: Vec<_> = wanted.iter().map(|(cores, node)| workload(&topology, cores, *node, 0.05, true)).collect();
        let vcpus: usize = wanted.iter().map(|(cores, _)| cores.len()).sum();
        let model = Model::default();
        let mut none = World::new(&topology, &model, workloads.clone(), STEP, seed);
        let mut world = World::new(&topology, &model, workloads, STEP, seed);
        let mut rule = Rule::numa_first(INTERVAL, Settings::default());
        let with = world.run(20.0, &mut rule);
        let without = none.run(20.0, &mut Rule::KernelAlone);
        prop_assert!(with.moves as f64 <= 20.0 / INTERVAL * vcpus as f64);
        // Pinned by hand, it can't be better by more than chance, which is much where vCPUs are few.
        prop_assert!(with.stretch() <= without.stretch() * 1.6, "{} against {}", with.stretch(), without.stretch());
    }

    /// Any observation: what is decided can be done.
    #[test]
    fn decisions_can_be_carried_out(
        topology in hosts(),
        steps in proptest::collection::vec(
            proptest::collection::vec((proptest::collection::vec((0.0f64..1.0, 0.0f64..1.0, 0usize..64), 1..5), 0usize..4, any::<bool>()), 0..5),
            1..6),
        moves in 0usize..5,
    ) {
        let settings = Settings { moves, ..Settings::default() };
        let mut history = History::default();
        for step in steps {
            let seen = observation(&topology, &step);
            let decision = decide(&topology, &settings, &seen, history);
            check(&topology, &settings, &seen, &decision)?;
            history = decision.history;
        }
    }
}

type Load = (Vec<(f64, f64, usize)>, usize, bool);

fn observation(topology: &Topology, machines: &[Load]) -> Observation {
    let nodes = topology.nodes.len();
    let machine = |(index, (vcpus, node, stays)): (usize, &Load)| {
        let mut memory = vec![0; nodes];
        memory[node % nodes] = GIB;
        let vcpu = |(number, (run, wait, core)): (usize, &(f64, f64, usize))| Vcpu {
            key: (index * 10 + number) as u64,
            run: *run,
            wait: wait * (1.0 - run),
            core: Some(core % topology.cores.len()),
        };
        Machine {
            name: format!("vm{index}"),
            key: index as u64,
            memory,
            memory_stays: stays.then(|| "it is bound".into()),
            vcpus_stay: (*stays && index == 1).then(|| "its cores are strict".into()),
            vcpus: vcpus.iter().enumerate().map(vcpu).collect(),
        }
    };
    Observation {
        seconds: 1.0,
        others: vec![0.0; topology.cores.len()],
        free: vec![Some(GIB); nodes],
        machines: machines.iter().enumerate().map(machine).collect(),
    }
}

fn check(
    topology: &Topology,
    settings: &Settings,
    seen: &Observation,
    decision: &Decision,
) -> Result<(), TestCaseError> {
    let displaced = decision.pins.iter().filter(|pin| pin.displaces).count();
    prop_assert!(displaced <= settings.moves);
    let mut owners = HashMap::new();
    for pin in &decision.pins {
        let machine = &seen.machines[pin.index.machine];
        prop_assert!(machine.vcpus_stay.is_none());
        let vcpu = &machine.vcpus[pin.index.vcpu];
        if let Place::Core(core) = pin.to {
            prop_assert!(core < topology.cores.len());
            prop_assert_eq!(owners.insert(core, vcpu.key), None, "two vCPUs were given one core");
            prop_assert_eq!(pin.displaces, vcpu.core != Some(core));
        }
        prop_assert_eq!(decision.history.place(vcpu.key), pin.to);
    }
    let bytes: u64 = decision.migrations.iter().map(|it| it.bytes).sum();
    prop_assert!(bytes as f64 <= settings.memory_rate * seen.seconds);
    for it in &decision.migrations {
        prop_assert!(seen.machines[it.machine].memory_stays.is_none() && it.from != it.to);
        prop_assert!(it.bytes <= seen.machines[it.machine].memory[it.from]);
    }
    Ok(())
}

/// A host of two nodes with two cores each.
fn two_nodes() -> Topology {
    host("two nodes", 1, 2, 1, vec![vec![10, 20], vec![20, 10]], 64 * GIB)
}

#[test]
fn what_runs_on_one_core_is_given_two() {
    let topology = two_nodes();
    let busy = (0.5, 1.0, 0);
    let seen = observation(&topology, &[(vec![busy], 0, false), (vec![busy], 0, false)]);
    let decision = decide(&topology, &Settings::default(), &seen, History::default());
    let places: Vec<_> = decision.pins.iter().map(|pin| pin.to).collect();
    assert_eq!(places, [Place::Core(0), Place::Core(1)]);
    assert_eq!(decision.pins.iter().map(|pin| pin.displaces).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn an_idle_vcpu_gives_its_core_up_to_one_that_is_near_its_memory() {
    let topology = two_nodes();
    let at = |core, run| (run, 0.0, core);
    // Three want the two cores of node 0, where their memory is: one is on node 1.
    let busy = [(vec![at(0, 1.0), at(1, 1.0), at(2, 1.0)], 0, true)];
    let seen = observation(&topology, &busy);
    let first = decide(&topology, &Settings::default(), &seen, History::default());
    assert_eq!(first.history.place(2), Place::Core(2));
    assert!(first.notes.is_empty());
    let idle = [(vec![at(0, 0.0), at(1, 1.0), at(2, 1.0)], 0, true)];
    let second = decide(&topology, &Settings::default(), &observation(&topology, &idle), first.history);
    let told: Vec<_> = second.pins.iter().map(|pin| (pin.index.vcpu, pin.to, pin.why)).collect();
    assert_eq!(told, [(0, Place::Anywhere, Why::Idle), (2, Place::Core(0), Why::Near(1.0))]);
}

#[test]
fn an_idle_vcpu_of_a_crowded_host_wakes_up_near_its_memory() {
    let topology = two_nodes();
    let crowd = |busy: usize| {
        let vcpus = (0..4).map(|core| (f64::from(u8::from(core < busy)), 0.0, core)).collect();
        [
            (vcpus, 0, false),
            (vec![(1.0, 0.0, 0)], 0, false),
            (vec![(1.0, 0.0, 2)], 1, false),
            (vec![(0.0, 0.0, 0)], 1, false),
        ]
    };
    let decided = |busy, history| {
        decide(&topology, &Settings::default(), &observation(&topology, &crowd(busy)), history)
    };
    let crowded = decided(4, History::default());
    assert_eq!(crowded.history.place(30), Place::Node(1));
    let roomy = decided(1, crowded.history);
    assert_eq!(roomy.history.place(30), Place::Anywhere);
}

#[test]
fn memory_follows_where_it_may_and_else_that_is_said() {
    let topology = two_nodes();
    let at = |core| (1.0, 0.0, core);
    let run = |stays| {
        // Another machine has the cores of node 0.
        let all = [(vec![at(0), at(1)], 0, false), (vec![at(2), at(3)], 0, stays)];
        let mut history = History::default();
        let (mut moved, mut notes) = (0, Vec::new());
        for _ in 0..10 {
            let seen = Observation { free: vec![Some(4 * GIB); 2], ..observation(&topology, &all) };
            let decision = decide(&topology, &Settings::default(), &seen, history);
            assert!(decision.migrations.iter().all(|it| (it.machine, it.from, it.to) == (1, 0, 1)));
            moved += decision.migrations.iter().map(|it| it.bytes).sum::<u64>();
            notes.extend(decision.notes);
            history = decision.history;
        }
        (moved, notes)
    };
    let (moved, notes) = run(false);
    assert!(moved > GIB && notes.is_empty(), "{moved} {notes:?}");
    let (moved, notes) = run(true);
    assert_eq!(moved, 0);
    let text = "its memory should go from node 0 to node 1, and can't: it is bound";
    assert!(notes.iter().any(|note| note.machine == "vm1" && note.text == text), "{notes:?}");
}

/// A host on which what a machine's vCPUs gain by its memory's move is hardly more than what that must pay.
#[test]
fn memory_that_pays_just_so_follows_soon() {
    let distances = (0..4usize).map(|a| (0..4).map(|b| 10 + 6 * a.abs_diff(b) as u64).collect()).collect();
    let topology = host("a row", 1, 3, 1, distances, 64 * GIB);
    let wanted: [(&[usize], usize); 6] =
        [(&[0, 0], 3), (&[0], 0), (&[6], 1), (&[12, 0, 30, 30], 2), (&[39], 1), (&[36, 3, 0, 15, 12], 2)];
    let workloads =
        wanted.iter().map(|(cores, node)| workload(&topology, cores, *node, 1e9, false)).collect();
    let model = Model::default();
    let mut world = World::new(&topology, &model, workloads, STEP, 637);
    let mut rule = Rule::numa_first(INTERVAL, Settings { moves: 1, ..Settings::default() });
    world.run(22.0, &mut rule);
    let then = world.run(60.0, &mut rule);
    assert_eq!((then.moves, then.migrated), (0, 0), "it goes on moving");
}
