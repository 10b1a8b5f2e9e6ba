//! The policies, on hosts that hwloc describes.

use proptest::prelude::*;
use std::collections::HashMap;
use vshmem_place::hwloc;
use vshmem_place::topology::Topology;
use vshmem_place::{place, PlaceError};
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::plan::{Guest, Placed, Plan};
use vshmem_placement::request::{Machine, Taken};
use vshmem_placement::rules::{Insist, Memory, Policy, Rules};

const GIB: u64 = 1 << 30;
/// Two sockets, each a node of 64 GiB with two caches of four cores, two threads each.
const TWO_SOCKETS: &str = "pack:2 [numa(memory=68719476736)] l3:2 core:4 pu:2";

fn host(description: &str) -> Topology {
    hwloc::read(Some(description)).expect("hwloc reads it")
}

/// Nobody else has anything of the host.
fn nobody() -> Taken {
    Taken::default()
}

fn machine(name: &str, cpus: usize, memory: u64, rules: Rules) -> Machine {
    Machine { name: name.into(), cpus, memory, page: 0, near: CpuSet::default(), rules }
}

fn rules(policy: Policy) -> Rules {
    Rules { policy, ..Rules::default() }
}

fn strict(policy: Policy) -> Rules {
    Rules { cores: Insist::Strict, memory: Memory::Strict, ..rules(policy) }
}

/// The places of vCPUs, as text.
fn vcpus(placed: &Placed) -> String {
    placed.vcpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn placed(topology: &Topology, machines: &[Machine]) -> Plan {
    place(topology, machines, &nobody()).expect("it can be placed")
}

#[test]
fn hwlocs_description_is_read() {
    let topology = host(TWO_SOCKETS);
    assert_eq!((topology.cores.len(), topology.nodes.len(), topology.packages()), (16, 2, 2));
    assert_eq!(topology.cores[9].pus, [18, 19]);
    assert_eq!((topology.cores[9].package, topology.cores[9].node, topology.cores[9].cache), (1, 1, 2));
    assert_eq!(topology.nodes[1].memory, Some(64 * GIB));
    assert!(hwloc::read(Some("no/such/file.xml")).unwrap_err().contains("no/such/file.xml"));
    assert!(hwloc::read(Some("pack:x")).is_err());
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("vshmem-place-unread.xml");
    let cases = [
        ("<topology version=\"9.0\"></topology>", "hwloc 9 has written it"),
        ("<topology version=\"2.0\"></topology>", "hwloc can't read"),
        ("{}", "no topology that lstopo has written"),
    ];
    for (text, why) in cases {
        std::fs::write(&file, text).unwrap();
        let said = hwloc::read(file.to_str()).unwrap_err();
        assert!(said.contains(why) && !said.contains("Errno") && !said.contains("Some"), "{text}: {said}");
    }
}

#[test]
fn machines_run_near_to_their_devices() {
    let topology = host(TWO_SOCKETS);
    let near =
        |cpus, policy| Machine { near: "1".parse().unwrap(), ..machine("a", cpus, GIB, rules(policy)) };
    for policy in [Policy::Pinned, Policy::RangePinned, Policy::NumaFirst] {
        let plan = placed(&topology, &[near(4, policy)]);
        let its = &plan.machines[0];
        let all: Vec<u32> = its.vcpus.iter().flat_map(|set| set.iter()).collect();
        assert!(all.iter().all(|cpu| (16..32).contains(cpu)), "{policy:?}: {}", vcpus(its));
        assert!(its.fallbacks.is_empty() && its.near.contains(1), "{policy:?}");
    }
    // What does not fit there is said, or is an error.
    let wide = near(10, Policy::NumaFirst);
    let said = &placed(&topology, std::slice::from_ref(&wide)).machines[0].fallbacks;
    assert_eq!(said, &["the devices of a are near node 1, where there is no room for all its vCPUs"]);
    let strict = Machine { rules: Rules { devices: Insist::Strict, ..wide.rules }, ..wide };
    let why = place(&topology, &[strict], &nobody()).unwrap_err();
    assert!(matches!(why, PlaceError::Devices { .. }), "{why}");
    let anywhere = placed(&topology, &[near(1, Policy::Unpinned)]);
    assert_eq!(anywhere.machines[0].fallbacks.len(), 1);
}

#[test]
fn this_host_is_read() {
    let topology = hwloc::read(None).expect("hwloc reads it");
    assert!(!topology.cores.is_empty() && !topology.nodes.is_empty());
}

#[test]
fn a_machine_gets_the_node_and_the_cache_that_it_fits_best() {
    let topology = host(TWO_SOCKETS);
    let machines = [
        machine("small", 2, 4 * GIB, rules(Policy::NumaFirst)),
        machine("large", 6, 8 * GIB, rules(Policy::NumaFirst)),
        machine("four", 4, 8 * GIB, rules(Policy::NumaFirst)),
    ];
    let plan = placed(&topology, &machines);
    // The large one takes most of node 0, and the small one what is left of it; the four share a cache.
    assert_eq!(vcpus(&plan.machines[1]), "0 2 4 6 8 10");
    assert_eq!(vcpus(&plan.machines[0]), "12 14");
    assert_eq!(vcpus(&plan.machines[2]), "16 18 20 22");
    assert_eq!(plan.machines[2].nodes.to_string(), "1");
    assert!(plan.machines.iter().all(|it| it.nodes.len() == 1 && it.fallbacks.is_empty()));
    // Emulator threads are on cores of the node that no vCPU has, or elsewhere if there are none.
    assert_eq!(plan.machines[2].emulator.to_string(), "24-31");
    assert_eq!(plan.machines[1].emulator.to_string(), "24-31");
}

#[test]
fn a_machine_larger_than_a_node_sees_the_nodes_that_it_has() {
    let topology = host("pack:4 [numa(memory=34359738368)] core:4 pu:1");
    let plan = placed(&topology, &[machine("a", 6, 12 * GIB, strict(Policy::NumaFirst))]);
    let a = &plan.machines[0];
    assert_eq!(vcpus(a), "0 1 2 4 5 6");
    assert_eq!((a.guest.sockets, a.guest.cores, a.guest.threads), (2, 3, 1));
    assert_eq!(a.guest.nodes.iter().map(|node| node.memory).sum::<u64>(), 12 * GIB);
    assert_eq!(a.guest.nodes[1].vcpus.to_string(), "3-5");
    assert_eq!(a.guest.nodes[0].distances.len(), 2);
    assert!(a.guest.nodes[0].distances[0] < a.guest.nodes[0].distances[1]);
}

#[test]
fn what_a_machine_is_not_shown_is_said() {
    let plan = placed(&host(TWO_SOCKETS), &[machine("a", 9, GIB, strict(Policy::NumaFirst))]);
    let a = &plan.machines[0];
    assert_eq!((a.guest.sockets, a.guest.nodes.len()), (1, 2));
    assert!(a.why[1].contains("its 2 sockets"), "{:?}", a.why);
    let plan = placed(&host(TWO_SOCKETS), &[machine("a", 5, GIB, strict(Policy::NumaFirst))]);
    let a = &plan.machines[0];
    assert_eq!((a.guest.sockets, a.guest.caches), (1, 1));
    assert!(a.why[1].contains("its 2 last-level caches"), "{:?}", a.why);
}

#[test]
fn a_machine_sees_the_caches_that_it_has() {
    let caches = |cpus, rules| {
        let plan = placed(&host(TWO_SOCKETS), &[machine("a", cpus, GIB, rules)]);
        let Guest { sockets, cores, threads, caches, .. } = plan.machines[0].guest;
        (sockets, caches, cores, threads)
    };
    assert_eq!(caches(4, strict(Policy::NumaFirst)), (1, 1, 4, 1));
    assert_eq!(caches(8, strict(Policy::NumaFirst)), (1, 2, 8, 1));
    assert_eq!(caches(16, strict(Policy::NumaFirst)), (2, 2, 8, 1));
    assert_eq!(caches(16, Rules { smt: true, ..rules(Policy::NumaFirst) }), (1, 2, 8, 2));
}

#[test]
fn memory_decides_where_cores_would_do() {
    let topology = host(TWO_SOCKETS);
    let machines = [
        machine("a", 2, 50 * GIB, strict(Policy::NumaFirst)),
        machine("b", 2, 50 * GIB, strict(Policy::NumaFirst)),
    ];
    let plan = placed(&topology, &machines);
    assert_eq!((vcpus(&plan.machines[0]).as_str(), vcpus(&plan.machines[1]).as_str()), ("0 2", "16 18"));
    // Memory of two nodes, with the cores near to each half.
    let plan = placed(&topology, &[machine("a", 2, 100 * GIB, strict(Policy::NumaFirst))]);
    assert_eq!(vcpus(&plan.machines[0]), "0 16");
    let wide = machine("a", 2, 200 * GIB, strict(Policy::NumaFirst));
    assert!(matches!(
        place(&topology, std::slice::from_ref(&wide), &nobody()),
        Err(PlaceError::Memory { .. })
    ));
    let plan = placed(&topology, &[Machine { rules: rules(Policy::NumaFirst), ..wide }]);
    assert_eq!(plan.machines[0].fallbacks.len(), 1);
}

#[test]
fn siblings_are_used_if_that_is_asked_for() {
    let topology = host(TWO_SOCKETS);
    let rules = Rules { smt: true, ..rules(Policy::NumaFirst) };
    let plan = placed(&topology, &[machine("a", 8, GIB, rules)]);
    let a = &plan.machines[0];
    assert_eq!(vcpus(a), "0 1 2 3 4 5 6 7");
    assert_eq!((a.guest.sockets, a.guest.cores, a.guest.threads, a.why.len()), (1, 4, 2, 1));
    let odd = placed(&topology, &[machine("a", 7, GIB, rules)]).machines.remove(0);
    assert_eq!((odd.guest.cores, odd.guest.threads), (7, 1));
    assert!(odd.why[1].contains("SMT siblings, since not all are"), "{:?}", odd.why);
}

#[test]
fn too_few_cores_are_an_error_or_a_named_fallback() {
    let topology = host("pack:1 core:2 pu:1");
    let wide = |rules| machine("a", 3, GIB, rules);
    let why = place(&topology, &[wide(strict(Policy::NumaFirst))], &nobody()).unwrap_err();
    assert_eq!(why.to_string(), "a needs cores for 3 vCPUs, and there are free ones for 2");
    let plan = placed(&topology, &[wide(rules(Policy::Pinned))]);
    assert_eq!(vcpus(&plan.machines[0]), "0-1 0-1 0-1");
    assert!(plan.machines[0].fallbacks[0].starts_with("a needs cores for 3 vCPUs"));
    let strict_range = place(&topology, &[wide(strict(Policy::RangePinned))], &nobody());
    assert!(matches!(strict_range, Err(PlaceError::Cores { free: 2, .. })));
    // No core is left for the emulator.
    let full = machine("a", 2, GIB, strict(Policy::Pinned));
    assert!(matches!(place(&topology, &[full], &nobody()), Err(PlaceError::Emulator { .. })));
    let with_reserve = Rules { reserve_cores: 1, ..strict(Policy::Pinned) };
    let full = machine("a", 1, GIB, with_reserve);
    let plan = place(&topology, &[full], &nobody()).expect("one core is the host's, one the machine's");
    assert_eq!(
        (vcpus(&plan.machines[0]).as_str(), plan.machines[0].emulator.to_string().as_str()),
        ("1", "0")
    );
}

#[test]
fn a_range_is_the_socket_with_the_most_room() {
    let topology = host(TWO_SOCKETS);
    let machines = [
        machine("a", 2, GIB, rules(Policy::Pinned)),
        machine("b", 4, GIB, rules(Policy::RangePinned)),
        machine("c", 4, GIB, rules(Policy::RangePinned)),
        machine("d", 4, GIB, rules(Policy::Unpinned)),
    ];
    let plan = placed(&topology, &machines);
    assert_eq!(plan.machines[1].vcpus[3].to_string(), "16-31");
    // Not the cores that another has to itself.
    assert_eq!(plan.machines[2].vcpus[0].to_string(), "4-15");
    assert_eq!(plan.machines[3].vcpus[0].to_string(), "0-31");
    assert!(plan.machines[3].nodes.is_empty());
}

#[test]
fn what_others_have_is_left_to_them() {
    let topology = host(TWO_SOCKETS);
    let four = [machine("a", 4, 8 * GIB, strict(Policy::NumaFirst))];
    let taken = Taken { cpus: "1,10".parse().unwrap(), memory: [(1, 60 * GIB)].into(), ..nobody() };
    let plan = place(&topology, &four, &taken).expect("it can be placed");
    // A core is taken if one of its siblings is; node 1 has the cores, but no memory left.
    assert_eq!(vcpus(&plan.machines[0]), "2 4 6 8");
    let map = vshmem_place::draw::text(&topology, &plan, &taken.cpus);
    assert!(map.contains("  0-7          # a a a\n") && map.contains("# other clusters"), "{map}");
    let taken = Taken { cpus: (0..32).collect(), ..Taken::default() };
    assert!(matches!(place(&topology, &four, &taken), Err(PlaceError::Cores { free: 0, .. })));
}

#[test]
fn reserved_pages_decide_where_a_machine_that_wants_some_is() {
    let topology = host(TWO_SOCKETS);
    let large = |memory, rules| Machine { page: 1 << 21, ..machine("a", 2, memory, rules) };
    let taken = Taken { pages_left: [(1 << 21, [(0, GIB), (1, 6 * GIB)].into())].into(), ..nobody() };
    let on = |machine: Machine| place(&topology, &[machine], &taken).map(|mut plan| plan.machines.remove(0));
    let four = on(large(4 * GIB, strict(Policy::NumaFirst))).expect("node 1 has the pages");
    assert_eq!((vcpus(&four).as_str(), four.nodes.to_string().as_str()), ("16 18", "1"));
    // Other machines don't take them, and don't want for them.
    let small = on(machine("a", 2, 50 * GIB, strict(Policy::NumaFirst))).expect("node 0 has the memory");
    assert_eq!(small.nodes.to_string(), "0");
    // Half of it on each node, of which one has too few.
    let wide = large(8 * GIB, strict(Policy::NumaFirst));
    let why = on(Machine { cpus: 16, ..wide.clone() }).unwrap_err().to_string();
    assert_eq!(why, "a needs 8G in pages of 2M, and the nodes of its cores have 7G left");
    let preferred = Machine { rules: rules(Policy::NumaFirst), cpus: 16, ..wide };
    let said = on(preferred).expect("it is preferred").fallbacks.join("; ");
    let rest = "the rest comes from other nodes";
    assert_eq!(said, format!("node 0 has 1G left in pages of 2M of the 4G that belong there: {rest}"));
    // Two machines don't get the same pages.
    let two = [large(4 * GIB, strict(Policy::NumaFirst)), large(4 * GIB, strict(Policy::NumaFirst))];
    assert!(matches!(place(&topology, &two, &taken), Err(PlaceError::Memory { page: 0x20_0000, .. })));
}

#[test]
fn memory_is_divided_in_whole_pages() {
    let topology = host(TWO_SOCKETS);
    let wide = Machine { page: GIB, ..machine("a", 12, 7 * GIB, rules(Policy::NumaFirst)) };
    let plan = placed(&topology, &[wide]);
    let shares: Vec<_> = plan.machines[0].guest.nodes.iter().map(|node| node.memory / GIB).collect();
    assert_eq!(shares, [3, 4]);
    assert!(plan.machines[0].guest.nodes.iter().all(|node| node.memory % GIB == 0));
}

#[test]
fn memory_can_come_from_all_nodes_by_turns() {
    let topology = host(TWO_SOCKETS);
    let by_turns = |policy| Rules { memory: Memory::Interleave, ..rules(policy) };
    for policy in [Policy::NumaFirst, Policy::RangePinned, Policy::Unpinned] {
        let a = placed(&topology, &[machine("a", 4, 100 * GIB, by_turns(policy))]).machines.remove(0);
        assert_eq!((a.nodes.to_string().as_str(), a.guest.nodes.len(), a.fallbacks.len()), ("0-1", 0, 0));
    }
    let large =
        placed(&topology, &[machine("a", 4, 200 * GIB, by_turns(Policy::NumaFirst))]).machines.remove(0);
    assert!(large.fallbacks[0].starts_with("node 0 has 64G left of the 100G"), "{:?}", large.fallbacks);
}

/// The time that this thread has had of a processor, in nanoseconds: others may be busy.
fn processor_time() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    told.split(' ').next().expect("a word").parse().expect("a number")
}

#[test]
fn a_thousand_machines_take_less_than_a_second() {
    let topology = host("pack:8 [numa(memory=1099511627776)] l3:8 core:16 pu:2");
    let rules = Rules { reserve_cores: 2, ..strict(Policy::NumaFirst) };
    let machines: Vec<_> = (0..1000).map(|index| machine(&format!("m{index}"), 1, GIB, rules)).collect();
    let begun = processor_time();
    let plan = place(&topology, &machines, &nobody()).expect("it can be placed");
    let text = vshmem_place::draw::text(&topology, &plan, &CpuSet::default());
    assert!(text.contains("m999"));
    // A debug build.
    let taken = processor_time() - begun;
    assert!(taken < 10_000_000_000, "{taken} ns");
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Unpinned),
        Just(Policy::Pinned),
        Just(Policy::RangePinned),
        Just(Policy::NumaFirst)
    ]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let memory = prop_oneof![Just(Memory::Strict), Just(Memory::Preferred), Just(Memory::Interleave)];
    (policy(), any::<[bool; 2]>(), memory, 0u32..2).prop_map(
        |(policy, [cores, smt], memory, reserve_cores)| {
            let cores = if cores { Insist::Strict } else { Insist::Preferred };
            Rules { policy, cores, memory, devices: Insist::Preferred, smt, reserve_cores }
        },
    )
}

proptest! {
    /// Whatever is asked for: all vCPUs run somewhere, memory adds up, no two machines have one pinned
    /// processor, and without SMT no two vCPUs have one core.
    #[test]
    fn placements_are_sound(
        sockets in 1usize..4, cores in 1usize..6, threads in 1usize..3, taken in 0u32..6,
        wanted in proptest::collection::vec((1usize..9, 1u64..40, any_rules()), 1..6),
    ) {
        let topology = host(&format!("pack:{sockets} [numa(memory=34359738368)] l3:1 core:{cores} pu:{threads}"));
        let machines: Vec<_> = wanted.iter().enumerate()
            .map(|(index, (cpus, memory, rules))| machine(&format!("m{index}"), *cpus, memory * GIB, *rules))
            .collect();
        let others = Taken { cpus: (0..taken).collect(), memory: [(0, u64::from(taken) * GIB)].into(), ..nobody() };
        let Ok(plan) = place(&topology, &machines, &others) else { return Ok(()) };
        let core_of: HashMap<u32, usize> = topology.cores.iter().enumerate()
            .flat_map(|(index, core)| core.pus.iter().map(move |pu| (*pu, index))).collect();
        let mut owners: HashMap<usize, (usize, bool)> = HashMap::new();
        let mut pinned = std::collections::HashSet::new();
        for (index, (machine, placed)) in machines.iter().zip(&plan.machines).enumerate() {
            prop_assert_eq!(placed.vcpus.len(), machine.cpus);
            prop_assert!(!placed.emulator.is_empty());
            prop_assert_eq!(placed.guest.sockets * placed.guest.cores * placed.guest.threads, machine.cpus);
            if !placed.guest.nodes.is_empty() {
                prop_assert_eq!(placed.guest.nodes.iter().map(|node| node.memory).sum::<u64>(), machine.memory);
            }
            let strict = machine.rules.cores == Insist::Strict;
            prop_assert!(!(strict && machine.rules.memory == Memory::Strict) || placed.fallbacks.is_empty());
            let alone = matches!(machine.rules.policy, Policy::Pinned | Policy::NumaFirst);
            for set in &placed.vcpus {
                prop_assert!(!set.is_empty() && set.iter().all(|pu| core_of.contains_key(&pu)));
                prop_assert!(!(alone && strict) || set.len() == 1);
                let Some(pu) = set.first().filter(|_| alone && set.len() == 1) else { continue };
                if placed.fallbacks.iter().any(|it| it.contains("share what there is")) { continue }
                prop_assert!(!others.cpus.contains(pu), "processor {} is another's", pu);
                prop_assert!(pinned.insert(pu), "processor {} is given twice", pu);
                let before = owners.insert(core_of[&pu], (index, machine.rules.smt));
                prop_assert!(before.is_none_or(|(owner, smt)| owner == index && smt));
            }
        }
    }
}
