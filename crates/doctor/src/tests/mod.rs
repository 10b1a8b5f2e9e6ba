//! Checks over recorded systems: each is whole but for one thing, which must be found, and nothing else.

mod remedies;
pub mod tree;

use crate::{examine, Finding, Instruments, Outcome, Recorded, Saved};
use tree::Tree;

const HOST: &str = include_str!("host.txt");
const GUEST: &str = include_str!("guest.txt");
/// These two were recorded, by record.sh; what has nothing to do with a check was left out.
const EMULATED: &str = include_str!("recorded-tcg.txt");
const AMD: &str = include_str!("recorded-amd.txt");

/// The instruments of a machine on a hypervisor.
fn under(signature: &str) -> Recorded {
    Recorded { hypervisor: Some(signature.into()), ..Recorded::default() }
}

fn kvm() -> Recorded {
    under("KVMKVMKVM")
}

fn found(tree: &Tree, instruments: &dyn Instruments) -> Vec<Finding> {
    examine(tree.system(), instruments, &Saved::default())
}

/// The ids of what costs, as they are shown.
fn costly(found: &[Finding]) -> Vec<&'static str> {
    found.iter().filter(|it| it.verdict == Outcome::Costs).map(|it| it.id).collect()
}

fn finding<'a>(found: &'a [Finding], id: &str) -> &'a Finding {
    found.iter().find(|it| it.id == id).expect("each check has a finding")
}

/// Plants one thing in a system, and says what must be found then.
fn plant(base: &str, files: &[(&str, &str)], expected: &[&str]) -> Vec<Finding> {
    let tree = Tree::new(base);
    files.iter().for_each(|(path, text)| tree.put(path, text));
    let found = found(&tree, &kvm());
    assert_eq!(costly(&found), expected, "{files:?}");
    found
}

#[test]
fn whole_systems_are_fine() {
    for base in [HOST, GUEST] {
        let found = found(&Tree::new(base), &kvm());
        assert_eq!(costly(&found), [""; 0]);
        let unknown: Vec<_> =
            found.iter().filter(|it| it.verdict == Outcome::Unknown).map(|it| it.id).collect();
        assert_eq!(unknown, ["jitter"], "nothing is measured in a recorded tree");
    }
}

#[test]
fn recorded_systems_are_judged_as_they_were() {
    let emulated = found(&Tree::new(EMULATED), &under("TCGTCGTCGTCG"));
    assert_eq!(costly(&emulated), [""; 0]);
    let driver = finding(&emulated, "pool-driver");
    assert_eq!((&*driver.why, &*driver.evidence[0].is), ("all devices have the driver", "vshmem"));
    // Its haltpoll was told to poll for no time at all.
    let amd = found(&Tree::new(AMD), &kvm());
    assert_eq!(costly(&amd), ["idle-exits"]);
    assert_eq!(finding(&amd, "idle-exits").changes[0].to, "200000");
    let of: Vec<&str> = finding(&amd, "virtio-queues").evidence.iter().map(|it| &*it.of).collect();
    assert_eq!(of, ["eth0", "vda"]);
}

#[test]
fn each_bottleneck_of_a_host_is_found_alone() {
    const THP: &str = "sys/kernel/mm/transparent_hugepage";
    let vcpu = |list: &str| format!("Cpus_allowed_list:\t{list}\n");
    plant(HOST, &[(&format!("{THP}/enabled"), "always madvise [never]\n")], &["huge-pages"]);
    let small = &[
        (&*format!("{THP}/enabled"), "always madvise [never]\n"),
        ("proc/meminfo", "MemTotal: 480000 kB\n"),
    ];
    plant(HOST, small, &[]);
    let memfd = "7f0-7f1 rw-s 00000000 00:01 7 /memfd:memory-backend-memfd (deleted)\nRss: 1048576 kB\nShmemPmdMapped: 0 kB\n";
    plant(HOST, &[("proc/4242/smaps", memfd)], &["shared-huge-pages"]);
    plant(HOST, &[("proc/4242/task/4251/status", &vcpu("0"))], &["shared-cores"]);
    plant(HOST, &[("proc/4242/task/4242/status", &vcpu("0"))], &["emulator-cores"]);
    plant(HOST, &[("proc/4242/task/4251/status", &vcpu("4"))], &["core-siblings"]);
    plant(HOST, &[("proc/irq/24/effective_affinity_list", "2"), ("proc/interrupts", "  CPU0\n")], &[]);
    let hit = "            CPU0       CPU1\n  24:          7          0  PCI-MSI  eth0\n";
    plant(HOST, &[("proc/irq/24/effective_affinity_list", "0"), ("proc/interrupts", hit)], &["interrupts"]);
    let far = "7f0 default anon=100 N0=50 N1=50 kernelpagesize_kB=2048\n";
    plant(HOST, &[("proc/4242/numa_maps", far)], &["remote-memory"]);
    plant(HOST, &[("proc/sys/kernel/numa_balancing", "1")], &["numa-balancing"]);
    let at = "sys/devices/system/cpu/cpu0/cpufreq";
    let driver = |name: &'static str| (format!("{at}/scaling_driver"), name);
    let (path, name) = driver("acpi-cpufreq");
    plant(HOST, &[(&path, name)], &["governor"]);
    let (path, name) = driver("amd-pstate-epp");
    plant(HOST, &[(&path, name)], &[]);
    plant(HOST, &[("proc/4242/task/4251/schedstat", "80000000000 20000000000 9")], &["run-delay"]);
    plant(HOST, &[("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1")], &["device-node"]);
    plant(HOST, &[("sys/bus/pci/devices/0000:3b:00.0/numa_node", "-1")], &[]);
    plant(HOST, &[("sys/module/kvm/parameters/halt_poll_ns", "0")], &["halt-polling"]);
    plant(HOST, &[("sys/kernel/mm/ksm/run", "1")], &["ksm"]);
    plant(HOST, &[("proc/4242/status", "VmSwap:\t 20480 kB\n")], &["swap"]);
    plant(HOST, &[("proc/4242/timerslack_ns", "50000")], &["timer-slack"]);
    let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    plant(HOST, &[(clock, "hpet")], &["clock-source"]);
}

#[test]
fn each_bottleneck_of_a_machine_is_found_alone() {
    let flags = |words: &str| format!("processor : 0\nflags : hypervisor {words}\n");
    plant(GUEST, &[("proc/cpuinfo", &flags("cx16 pcid avx2"))], &["vector-instructions"]);
    plant(GUEST, &[("proc/cpuinfo", &flags("pcid avx avx2"))], &["cx16"]);
    plant(GUEST, &[("proc/cpuinfo", &flags("cx16 avx avx2"))], &["pcid"]);
    plant(GUEST, &[("sys/devices/system/cpu/cpuidle/current_driver", "none")], &["idle-exits"]);
    plant(GUEST, &[("sys/module/haltpoll/parameters/guest_halt_poll_ns", "0")], &["idle-exits"]);
    plant(GUEST, &[("proc/vmstat", "balloon_inflate 300000\nballoon_deflate 1000\n")], &["balloon"]);
    plant(GUEST, &[("sys/class/net/eth0/statistics/rx_packets", "9000000")], &["virtio-queues"]);
    let very = &[
        ("sys/class/net/eth0/statistics/rx_packets", "900000000"),
        ("sys/class/net/eth0/queues/rx-1/x", ""),
    ];
    plant(GUEST, very, &["virtio-packed-rings"]);
    let tree = Tree::new(GUEST);
    tree.link("sys/bus/pci/devices/0000:00:05.0/driver", "../../bus/pci/drivers/uio_pci_generic");
    assert_eq!(costly(&found(&tree, &kvm())), ["pool-driver"]);
}

#[test]
fn a_slow_clock_is_the_cause_or_follows_from_the_processor() {
    let at = "sys/devices/system/clocksource/clocksource0";
    let (current, available) = (format!("{at}/current_clocksource"), format!("{at}/available_clocksource"));
    let found = plant(GUEST, &[(&current, "acpi_pm")], &["clock-source"]);
    let change = &finding(&found, "clock-source").changes[0];
    // The processor does not promise that its counter is steady.
    assert_eq!((&*change.from, &*change.to), ("acpi_pm", "kvm-clock"));
    let none = &[(&*current, "acpi_pm"), (&*available, "acpi_pm")];
    let found = plant(GUEST, none, &["invariant-tsc", "clock-source"]);
    let it = finding(&found, "clock-source");
    assert_eq!(it.causes, ["invariant-tsc"]);
    assert!(it.changes.is_empty() && it.class == crate::Class::MachineRestart);
}

#[test]
fn what_is_measured_counts_more_than_a_name() {
    let tree = Tree::new(GUEST);
    let clock = |read, call| Recorded { clock: Some(crate::instruments::Clock { read, call }), ..kvm() };
    assert_eq!(costly(&found(&tree, &clock(30.0, 300.0))), [""; 0]);
    let slow = found(&tree, &clock(290.0, 300.0));
    assert_eq!(costly(&slow), ["clock-source"]);
    assert_eq!(finding(&slow, "clock-source").proven, Some(true));
}

#[test]
fn jitter_is_told_from_a_busy_kernel_and_follows_from_shared_cores() {
    let quantum = |lost, waited, stolen| Recorded {
        quantum: Some(crate::instruments::Quantum { lost, waited, stolen, longest: 900.0 }),
        ..kvm()
    };
    let verdict = |tree: &Tree, it: &Recorded| finding(&found(tree, it), "jitter").verdict;
    let guest = Tree::new(GUEST);
    assert_eq!(verdict(&guest, &quantum(2.0, 1.0, 0.0)), Outcome::Fine);
    assert_eq!(verdict(&guest, &quantum(30.0, 2.0, 0.0)), Outcome::Costs);
    assert_eq!(verdict(&guest, &quantum(2.0, 1.0, 9.0)), Outcome::Costs);
    assert_eq!(verdict(&guest, &quantum(60.0, 40.0, 0.0)), Outcome::Unknown);
    let host = Tree::new(HOST);
    host.put("proc/4242/task/4251/status", "Cpus_allowed_list:\t0\n");
    let found = found(&host, &quantum(30.0, 2.0, 0.0));
    assert_eq!(costly(&found), ["shared-cores", "jitter"]);
    assert_eq!(finding(&found, "jitter").causes, ["shared-cores"]);
}

#[test]
fn emulation_is_not_blamed_for_what_it_lacks() {
    let tree = Tree::new(GUEST);
    tree.put("sys/devices/system/cpu/cpuidle/current_driver", "none");
    assert_eq!(costly(&found(&tree, &under("TCGTCGTCGTCG"))), [""; 0]);
    let found = found(&tree, &Recorded::default());
    assert_eq!(finding(&found, "idle-exits").verdict, Outcome::Unknown);
}

#[test]
fn what_can_not_be_told_is_said() {
    let tree = Tree::new(HOST);
    // QEMU without names for its threads, as it is by default.
    tree.put("proc/4242/task/4250/comm", "qemu-system-x86");
    tree.put("proc/4242/task/4251/comm", "qemu-system-x86");
    let result = found(&tree, &kvm());
    for id in ["shared-cores", "emulator-cores", "run-delay", "remote-memory", "device-node"] {
        let it = finding(&result, id);
        assert_eq!(it.verdict, Outcome::Unknown, "{id}");
        assert!(it.why.contains("debug-threads=on"), "{}", it.why);
    }
    // A file that can't be read.
    tree.put("proc/sys/kernel/numa_balancing/is/a/directory", "");
    let result = found(&tree, &kvm());
    let it = finding(&result, "numa-balancing");
    assert_eq!(it.verdict, Outcome::Unknown);
    assert!(it.why.contains("/proc/sys/kernel/numa_balancing"), "{}", it.why);
}

#[test]
fn two_processors_on_a_core_are_named_and_a_free_core_is_found() {
    let found = plant(HOST, &[("proc/4242/task/4251/status", "Cpus_allowed_list:\t0\n")], &["shared-cores"]);
    let it = finding(&found, "shared-cores");
    assert!(
        it.why.starts_with("CPU 0/KVM of QEMU 4242, CPU 1/KVM of QEMU 4242 share the cores 0"),
        "{}",
        it.why
    );
    let [change] = &*it.changes else { panic!("{:?}", it.changes) };
    assert_eq!((&*change.from, &*change.to), ("0", "1"), "on the same node");
    // Where the cgroup admits no other core, nothing can be done at once.
    let group = &[
        ("proc/4242/task/4251/status", "Cpus_allowed_list:\t0\n"),
        ("proc/4242/task/4251/cgroup", "0::/machine.slice\n"),
        ("sys/fs/cgroup/machine.slice/cpuset.cpus.effective", "0\n"),
    ];
    let found = plant(HOST, group, &["shared-cores"]);
    assert!(finding(&found, "shared-cores").changes.is_empty());
}

#[test]
fn pools_need_the_option_of_their_mount() {
    let tree = Tree::new(GUEST);
    tree.allocate("dev/shm/vshmem.0/large", 65 << 20);
    assert_eq!(costly(&found(&tree, &kvm())), ["pool-huge-pages"]);
    tree.put("proc/self/mounts", "tmpfs /dev/shm tmpfs rw,huge=within_size 0 0\n");
    assert_eq!(costly(&found(&tree, &kvm())), [""; 0]);
    tree.put(
        "sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size advise never [deny] force",
    );
    assert_eq!(costly(&found(&tree, &kvm())), ["pool-huge-pages"]);
}

#[test]
fn the_page_is_what_the_table_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor-checks.md");
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(written == crate::page(), "write docs/doctor-checks.md anew: vshmem doctor --explain all");
    assert!(crate::explain(&crate::CHECKS[0]).starts_with("invariant-tsc: "));
}
