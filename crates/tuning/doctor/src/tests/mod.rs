//! Checks over recorded systems: each is whole but for one thing, which must be found, and nothing else.

pub mod killed;
mod monitors;
mod remedies;
pub mod tree;

use crate::instruments::Kvm;
use crate::setting::Setting;
use crate::{examine, Class, Finding, Instruments, Outcome, Recorded, Saved};
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

/// KVM that counts steal and lets machines poll for themselves.
fn kvm() -> Recorded {
    promising(1 << 5 | 1 << 12, 0)
}

fn promising(features: u32, hints: u32) -> Recorded {
    Recorded { kvm: Some(Kvm { features, hints }), ..under("KVMKVMKVM") }
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
    plant(HOST, &[("proc/4242/task/4251/status", &vcpu("4"))], &["core-siblings", "guest-siblings"]);
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
fn who_carries_machines_and_packets_out_is_told_by_what_is_open() {
    let costs = |links: &[(&str, &str)], comm: &str| {
        let tree = Tree::new(HOST);
        tree.put("proc/4242/comm", comm);
        links.iter().for_each(|(fd, target)| tree.link(&format!("proc/4242/fd/{fd}"), target));
        let found = found(&tree, &kvm());
        (costly(&found).join(" "), finding(&found, "emulation").why.clone())
    };
    let (ids, why) = costs(&[("12", "anon_inode:[eventfd]")], "qemu-system-x86");
    assert_eq!(ids, "emulation");
    assert!(why.ends_with("is translated. KVM's module is not loaded."), "{why}");
    for (links, comm) in [
        // Of another processor, and of Xen.
        ([("12", "anon_inode:[eventfd]")], "qemu-system-aar"),
        ([("12", "/dev/xen/privcmd")], "qemu-system-i38"),
    ] {
        assert_eq!(costs(&links, comm).0, "", "{comm}");
    }
    assert_eq!(costs(&[("32", "/dev/null")], "qemu-system-x86").0, "vhost-net");
    assert_eq!(costs(&[("33", "/dev/net/tun")], "qemu-system-x86").0, "vhost-net", "one of two");
}

#[test]
fn deep_sleep_of_bound_cores_is_found_unless_it_is_forbidden() {
    let at = "sys/devices/system/cpu/cpu1/cpuidle/state3";
    let verdict = |latency: &str, usage: &str, disable: &str, allowed: i32, core: u8| {
        let tree = Tree::new(HOST);
        let at = at.replace("cpu1", &format!("cpu{core}"));
        for (file, text) in [("latency", latency), ("usage", usage), ("disable", disable)] {
            tree.put(&format!("{at}/{file}"), text);
        }
        tree.put("dev/cpu_dma_latency", "");
        std::fs::write(tree.system().path("dev/cpu_dma_latency"), allowed.to_ne_bytes()).unwrap();
        let found = found(&tree, &kvm());
        (costly(&found).join(" "), finding(&found, "idle-states").changes.clone())
    };
    let (ids, changes) = verdict("133\n", "9\n", "0\n", 2_000_000_000, 1);
    assert_eq!(ids, "idle-states");
    assert_eq!(
        changes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!("/{at}/disable: 0 becomes 1")]
    );
    assert_eq!(verdict("2\n", "9\n", "0\n", 2_000_000_000, 1).0, "", "it wakes up at once");
    assert_eq!(verdict("133\n", "0\n", "0\n", 2_000_000_000, 1).0, "", "it was never there");
    assert_eq!(verdict("133\n", "9\n", "1\n", 2_000_000_000, 1).0, "", "it is disabled");
    assert_eq!(verdict("133\n", "9\n", "0\n", 70, 1).0, "", "PM QoS forbids it");
    assert_eq!(verdict("133\n", "9\n", "0\n", 2_000_000_000, 3).0, "", "no machine has that core");
}

#[test]
fn the_second_page_table_is_judged_by_its_pages_and_by_what_splits_them() {
    const PARAMETERS: &str = "sys/module/kvm/parameters";
    let (nx, small) = (format!("{PARAMETERS}/nx_huge_pages"), "sys/kernel/debug/kvm/4242-14/pages_4k");
    let found = plant(HOST, &[(&nx, "Y\n")], &["second-page-table"]);
    assert_eq!(finding(&found, "second-page-table").changes[0].to, "N");
    let bug = ("sys/devices/system/cpu/vulnerabilities/itlb_multihit", "KVM: Mitigation: Split huge pages\n");
    plant(HOST, &[(&nx, "Y\n"), bug], &[]);
    plant(HOST, &[("sys/module/kvm_intel/parameters/ept", "N\n")], &["second-page-table"]);
    plant(HOST, &[(small, "400000\n")], &["second-page-table"]);
    let never = ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    let found = plant(HOST, &[(small, "400000\n"), never], &["huge-pages", "second-page-table"]);
    assert_eq!(finding(&found, "second-page-table").causes, ["huge-pages"]);
}

#[test]
fn isolation_is_looked_for_in_partitions_and_isolcpus() {
    const ISOLCPUS: &str = "sys/devices/system/cpu/isolated";
    const GROUP: &str = "sys/fs/cgroup/machine.slice";
    plant(HOST, &[(ISOLCPUS, "\n")], &["isolated-cores"]);
    plant(HOST, &[(ISOLCPUS, "0\n")], &["isolated-cores"]);
    plant(HOST, &[(ISOLCPUS, "\n"), ("sys/fs/cgroup/cpuset.cpus.isolated", "0-1\n")], &[]);
    let partition = format!("{GROUP}/cpuset.cpus.partition");
    let (none, effective) = ((ISOLCPUS, "\n"), (&*format!("{GROUP}/cpuset.cpus.effective"), "0-1,4-5\n"));
    plant(HOST, &[none, effective, (&partition, "isolated\n")], &[]);
    plant(HOST, &[none, effective, (&partition, "root\n")], &["isolated-cores"]);
    let invalid = "isolated invalid (Cpu list in cpuset.cpus not exclusive)\n";
    let found = plant(HOST, &[none, effective, (&partition, invalid)], &["isolated-cores"]);
    assert!(finding(&found, "isolated-cores").why.contains("not exclusive"));
    // Where somebody else runs there, the wait follows from that.
    let waits = ("proc/4242/task/4251/schedstat", "80000000000 20000000000 9");
    let found = plant(HOST, &[none, waits], &["isolated-cores", "run-delay"]);
    assert_eq!(finding(&found, "run-delay").causes, ["isolated-cores"]);
}

#[test]
fn quotas_and_rivals_are_found() {
    let stat = "sys/fs/cgroup/machine.slice/vm.scope/cpu.stat";
    plant(HOST, &[(stat, "usage_usec 900000\nthrottled_usec 100000\n")], &["quota"]);
    plant(HOST, &[("proc/77/comm", "numad\n")], &["rivals"]);
    // It leaves isolated processors alone, unless it was told which.
    let irqbalance = ("proc/77/comm", "irqbalance\n");
    plant(HOST, &[irqbalance], &[]);
    let told = |list: &str| format!("PATH=/bin\0IRQBALANCE_BANNED_CPULIST={list}\0");
    let found = plant(HOST, &[irqbalance, ("proc/77/environ", &told("1,7"))], &["rivals"]);
    assert!(finding(&found, "rivals").why.contains("to the cores 0."));
    plant(HOST, &[irqbalance, ("proc/77/environ", &told("0-1"))], &[]);
    // What it does is its fault.
    let hit = "            CPU0       CPU1\n  24:          7          0  PCI-MSI  eth0\n";
    let planted = [
        irqbalance,
        ("proc/77/environ", &*told("7")),
        ("proc/irq/24/effective_affinity_list", "0"),
        ("proc/interrupts", hit),
    ];
    let found = plant(HOST, &planted, &["rivals", "interrupts"]);
    assert_eq!(finding(&found, "interrupts").causes, ["rivals"]);
}

#[test]
fn haltpoll_is_loaded_chosen_or_given_time() {
    const CPUIDLE: &str = "sys/devices/system/cpu/cpuidle";
    let (driver, governor) = (format!("{CPUIDLE}/current_driver"), format!("{CPUIDLE}/current_governor"));
    let halts = [(&*driver, "none\n"), (&*governor, "menu\n")];
    let module = |options: &[&str]| Setting::Module {
        name: "cpuidle_haltpoll".into(),
        options: options.iter().map(ToString::to_string).collect(),
    };
    let of = |tree: &Tree, kvm: &Recorded| {
        let mut found = found(tree, kvm);
        let place = found.iter().position(|it| it.id == "idle-exits").unwrap();
        found.swap_remove(place)
    };
    let tree = Tree::new(GUEST);
    halts.iter().for_each(|(path, text)| tree.put(path, text));
    let it = of(&tree, &kvm());
    assert_eq!((&it.changes[0].setting, &*it.changes[0].from), (&module(&["force=1"]), ""));
    // KVM_HINTS_REALTIME: the hypervisor promises the cores.
    assert_eq!(of(&tree, &promising(1 << 5, 1)).changes[0].setting, module(&[]));
    // Others want the cores: polling would take them.
    tree.put("proc/stat", "cpu  900 0 0 9000 0 0 0 900 0 0\n");
    assert_eq!(of(&tree, &kvm()).verdict, Outcome::Fine);
    assert_eq!(costly(&found(&tree, &kvm())), ["steal"]);
    tree.put("proc/stat", "cpu  900 0 0 9000 0 0 0 0 0 0\n");
    // It is built in, and did nothing.
    tree.put("sys/module/cpuidle_haltpoll/parameters/force", "N\n");
    let it = of(&tree, &kvm());
    assert!(it.changes.is_empty() && it.class == Class::MachineRestart);

    let tree = Tree::new(GUEST);
    halts.iter().for_each(|(path, text)| tree.put(path, text));
    tree.put("lib/modules/6.1.0-25-amd64/modules.dep", "kernel/fs/fuse/fuse.ko:\n");
    assert!(of(&tree, &kvm()).changes.is_empty(), "there is no such module");
    tree.put("proc/cmdline", "quiet idle=halt");
    let it = of(&tree, &kvm());
    assert!(it.verdict == Outcome::Unknown && it.changes.is_empty(), "idle= excludes it");

    let tree = Tree::new(GUEST);
    tree.put(&governor, "menu\n");
    assert!(of(&tree, &kvm()).changes.is_empty(), "the kernel has no such governor");
    tree.put(&format!("{CPUIDLE}/available_governors"), "ladder menu haltpoll\n");
    let it = of(&tree, &kvm());
    assert_eq!((&*it.changes[0].from, &*it.changes[0].to), ("menu", "haltpoll"));
}

#[test]
fn nobody_polls_twice_and_steal_is_told() {
    let tree = Tree::new(GUEST);
    assert_eq!(costly(&found(&tree, &promising(1 << 5, 0))), ["double-polling"]);
    let unknown = found(&tree, &under("KVMKVMKVM"));
    assert_eq!(finding(&unknown, "double-polling").verdict, Outcome::Unknown);
    // Nothing was ever stolen, and nobody says that it would be counted.
    tree.put("proc/stat", "cpu  900 0 0 9000 0 0 0 0 0 0\n");
    assert_eq!(finding(&found(&tree, &under("KVMKVMKVM")), "steal").verdict, Outcome::Unknown);
    tree.put("proc/cmdline", "idle=poll");
    assert_eq!(costly(&found(&tree, &promising(1 << 5, 0))), [""; 0], "it never halts");
    plant(GUEST, &[("proc/stat", "cpu  900 0 0 9000 0 0 0 900 0 0\n")], &["steal"]);
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
fn only_devices_take_a_look_at_the_clock_out_of_the_machine() {
    let at = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let why = |name: &str, instruments: &dyn Instruments| {
        let tree = Tree::new(GUEST);
        tree.put(at, name);
        let found = found(&tree, instruments);
        let it = finding(&found, "clock-source");
        (it.verdict, it.why.clone())
    };
    assert!(why("hpet", &kvm()).1.contains("leaves the machine"));
    let (verdict, jiffies) = why("jiffies", &kvm());
    assert!(verdict == Outcome::Costs && !jiffies.contains("leaves the machine"), "{jiffies}");
    // Xen's is read by programs themselves, or is not.
    let measured = |read| Recorded {
        clock: Some(crate::instruments::Clock { read, call: 300.0 }),
        ..under("XenVMMXenVMM")
    };
    assert_eq!(why("xen", &under("XenVMMXenVMM")).0, Outcome::Unknown);
    assert_eq!(why("xen", &measured(30.0)).0, Outcome::Fine);
    let (verdict, xen) = why("xen", &measured(290.0));
    assert!(verdict == Outcome::Costs && !xen.contains("leaves the machine"), "{xen}");
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
    tree.put("qmp/4242/query-cpus-fast", "");
    let result = found(&tree, &kvm());
    for id in
        ["shared-cores", "emulator-cores", "guest-siblings", "run-delay", "remote-memory", "device-node"]
    {
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
    let result = found(&tree, &kvm());
    assert_eq!(costly(&result), ["pool-huge-pages"]);
    let change = &finding(&result, "pool-huge-pages").changes[0];
    assert_eq!(
        (&*change.setting.to_string(), &*change.from, &*change.to),
        ("option huge of /dev/shm", "never", "within_size")
    );
    tree.put("proc/self/mounts", "tmpfs /dev/shm tmpfs rw,huge=within_size 0 0\n");
    assert_eq!(costly(&found(&tree, &kvm())), [""; 0]);
    tree.put(
        "sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size advise never [deny] force",
    );
    let result = found(&tree, &kvm());
    assert_eq!(costly(&result), ["pool-huge-pages"]);
    let [change] = &*finding(&result, "pool-huge-pages").changes else { panic!("{result:?}") };
    assert_eq!((&*change.from, &*change.to), ("deny", "never"), "the mount has the option already");
}

#[test]
fn the_page_is_what_the_table_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/doctor-checks.md");
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(written == crate::page(), "write docs/doctor-checks.md anew: vshmem doctor --explain all");
    assert!(crate::explain(&crate::CHECKS[0], Some(40)).starts_with("emulation: "));
}
