//! Facts that QEMU's monitor and KVM's counts tell of a machine. QEMU's answers were recorded: QEMU 7.2 with
//! `-smp 4,cores=2,threads=2`, `-smp 2,threads=2` and `-cpu EPYC,topoext=off`; the numbers of threads were
//! changed.

use super::tree::Tree;
use super::{costly, finding, found, kvm, plant, HOST};
use crate::system::Believed;
use crate::{examine, Finding, Outcome, Saved, System};

const CPUS: &str = "qmp/4242/query-cpus-fast";
const VENDOR: &str = "qmp/4242/machine/unattached/device[0]/vendor";
const TOPOEXT: &str = "qmp/4242/machine/unattached/device[0]/topoext";
const TWO_SIBLINGS: &str = r#"[
{"thread-id": 4250, "props": {"core-id": 0, "thread-id": 0, "socket-id": 0}, "qom-path": "/machine/unattached/device[0]", "cpu-index": 0, "target": "x86_64"},
{"thread-id": 4251, "props": {"core-id": 0, "thread-id": 1, "socket-id": 0}, "qom-path": "/machine/unattached/device[2]", "cpu-index": 1, "target": "x86_64"}]"#;
const FOUR: &str = r#"[
{"thread-id": 4250, "props": {"core-id": 0, "thread-id": 0, "socket-id": 0}, "qom-path": "/machine/unattached/device[0]", "cpu-index": 0, "target": "x86_64"},
{"thread-id": 4251, "props": {"core-id": 0, "thread-id": 1, "socket-id": 0}, "qom-path": "/machine/unattached/device[2]", "cpu-index": 1, "target": "x86_64"},
{"thread-id": 4252, "props": {"core-id": 1, "thread-id": 0, "socket-id": 0}, "qom-path": "/machine/unattached/device[3]", "cpu-index": 2, "target": "x86_64"},
{"thread-id": 4253, "props": {"core-id": 1, "thread-id": 1, "socket-id": 0}, "qom-path": "/machine/unattached/device[4]", "cpu-index": 3, "target": "x86_64"}]"#;

fn bound(tree: &Tree, thread: u32, cpu: &str) {
    tree.put(&format!("proc/4242/task/{thread}/status"), &format!("Cpus_allowed_list:\t{cpu}\n"));
}

/// The host, whose machine has four processors, on those of the first node, which are all that are online.
fn four(pins: [&str; 4]) -> Tree {
    let tree = Tree::new(HOST);
    tree.put("sys/devices/system/cpu/online", "0-1,4-5\n");
    tree.put(CPUS, FOUR);
    for (number, pin) in (4250..).zip(pins) {
        let at = format!("proc/4242/task/{number}");
        tree.put(&format!("{at}/comm"), &format!("CPU {}/KVM\n", number - 4250));
        let stat = format!("{number} (CPU) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 4 0 5001 0 0\n");
        tree.put(&format!("{at}/stat"), &stat);
        tree.put(&format!("proc/{number}/timerslack_ns"), "1\n");
        bound(&tree, number, pin);
    }
    tree
}

fn moves(found: &[Finding]) -> Vec<(String, String)> {
    let changes = &finding(found, "guest-siblings").changes;
    changes.iter().map(|change| (change.from.clone(), change.to.clone())).collect()
}

#[test]
fn siblings_in_the_machine_are_compared_with_their_pins() {
    // Two cores of the host are one to the machine.
    let found = plant(HOST, &[(CPUS, TWO_SIBLINGS)], &["guest-siblings"]);
    let it = finding(&found, "guest-siblings");
    assert!(it.why.contains("CPU 0/KVM and CPU 1/KVM are siblings there"), "{}", it.why);
    assert!(it.changes.is_empty() && it.class == crate::Class::MachineRestart);
    // AMD's without topoext are none to the machine, whatever QEMU was told.
    let amd = [(CPUS, TWO_SIBLINGS), (VENDOR, "\"AuthenticAMD\""), (TOPOEXT, "false")];
    plant(HOST, &amd, &[]);
    let with = [amd[0], amd[1], (TOPOEXT, "true")];
    plant(HOST, &with, &["guest-siblings"]);
    // One core of the host is two to the machine, since others are free.
    let sibling = ("proc/4242/task/4251/status", "Cpus_allowed_list:\t4\n");
    let found = plant(HOST, &[sibling], &["core-siblings", "guest-siblings"]);
    let it = finding(&found, "guest-siblings");
    assert!(it.causes == ["core-siblings"] && it.why.contains("cores of their own there"), "{}", it.why);
    plant(HOST, &[sibling, (CPUS, TWO_SIBLINGS)], &["core-siblings"]);
}

#[test]
fn processors_that_were_bound_in_order_are_exchanged() {
    let fine = four(["0", "4", "1", "5"]);
    assert_eq!(costly(&found(&fine, &kvm())), [""; 0]);
    let found_in_order = found(&four(["0", "1", "4", "5"]), &kvm());
    assert_eq!(costly(&found_in_order), ["guest-siblings"]);
    assert_eq!(finding(&found_in_order, "guest-siblings").class, crate::Class::Live);
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(moves(&found_in_order), pairs(&[("1", "4"), ("4", "1")]));
    // Each pair of siblings stays where one of it is.
    assert_eq!(moves(&found(&four(["5", "0", "1", "4"]), &kvm())), pairs(&[("5", "4"), ("4", "5")]));
    // The memory of two nodes would have to follow.
    let two = four(["0", "1", "2", "6"]);
    two.put("sys/devices/system/cpu/online", "0-2,4-6\n");
    let it = found(&two, &kvm());
    assert!(costly(&it).contains(&"guest-siblings") && moves(&it).is_empty(), "{it:?}");
}

#[test]
fn what_the_monitor_does_not_say_is_unknown() {
    for (text, why) in [("[{}]", "is odd"), ("{", "not JSON")] {
        let found = plant(HOST, &[(CPUS, text)], &[]);
        let it = finding(&found, "guest-siblings");
        assert!(it.verdict == Outcome::Unknown && it.why.contains(why), "{}", it.why);
    }
    // Nothing is asked of a machine whose processors are not bound.
    let tree = Tree::new(HOST);
    tree.put(CPUS, "{");
    for thread in [4250, 4251] {
        bound(&tree, thread, "0-1");
    }
    assert_eq!(finding(&found(&tree, &kvm()), "guest-siblings").verdict, Outcome::Fine);
}

#[test]
fn the_monitor_says_which_threads_are_processors() {
    let tree = Tree::new(HOST);
    for thread in [4250, 4251] {
        tree.put(&format!("proc/4242/task/{thread}/comm"), "qemu-system-x86\n");
    }
    assert_eq!(costly(&found(&tree, &kvm())), [""; 0]);
    bound(&tree, 4251, "0");
    let found = found(&tree, &kvm());
    assert_eq!(costly(&found), ["shared-cores"]);
    let why = &finding(&found, "shared-cores").why;
    assert!(why.starts_with("CPU 0 of QEMU 4242, CPU 1 of QEMU 4242 share the cores 0"), "{why}");
}

#[test]
fn machines_that_never_halt_need_cores_of_their_own() {
    const KVM: &str = "sys/kernel/debug/kvm/4242-14";
    let halts = format!("{KVM}/halt_exits");
    let never = (&*halts, "0\n");
    let found_own = plant(HOST, &[never], &[]);
    assert!(finding(&found_own, "cpu-pm").why.contains("have cores of their own"));
    let anywhere = [("proc/4242/task/4250/status", "0-1"), ("proc/4242/task/4251/status", "0-1")]
        .map(|(path, list)| (path, format!("Cpus_allowed_list:\t{list}\n")));
    let anywhere = anywhere.each_ref().map(|(path, text)| (*path, &**text));
    plant(HOST, &anywhere, &[]);
    let found = plant(HOST, &[never, anywhere[0], anywhere[1]], &["cpu-pm"]);
    assert!(finding(&found, "cpu-pm").why.contains("QEMU 4242"));
    // It has hardly begun.
    plant(HOST, &[never, anywhere[0], anywhere[1], (&format!("{KVM}/exits"), "2000\n")], &[]);
    // Both on one core: that comes first.
    let shared = ("proc/4242/task/4251/status", "Cpus_allowed_list:\t0\n");
    let found = plant(HOST, &[never, shared], &["shared-cores", "cpu-pm"]);
    assert_eq!(finding(&found, "cpu-pm").causes, ["shared-cores"]);
    let waits = ("proc/4242/task/4251/schedstat", "80000000000 20000000000 9");
    let found = plant(HOST, &[never, anywhere[0], anywhere[1], waits], &["cpu-pm", "run-delay"]);
    assert_eq!(finding(&found, "run-delay").causes, ["cpu-pm"]);
    // Another machine's pages and exits are not this one's.
    let other = [
        ("sys/kernel/debug/kvm/777-9/halt_exits", "0\n"),
        ("sys/kernel/debug/kvm/777-9/pages_4k", "400000\n"),
    ];
    plant(HOST, &[other[0], other[1], anywhere[0], anywhere[1]], &[]);
}

#[test]
fn a_machine_that_waits_by_mwait_does_not_leave() {
    const DRIVER: (&str, &str) = ("sys/devices/system/cpu/cpuidle/current_driver", "none");
    plant(super::GUEST, &[DRIVER], &["idle-exits"]);
    let flags = super::GUEST.lines().find(|line| line.starts_with("flags")).unwrap();
    let found = plant(super::GUEST, &[DRIVER, ("proc/cpuinfo", &format!("{flags} monitor\n"))], &[]);
    assert!(finding(&found, "idle-exits").why.contains("mwait"));
}

/// The findings where root's machines are believed, those of user 1000, who asks, and process 900 with its
/// children.
fn believing(tree: &Tree) -> Vec<Finding> {
    let mut system = System::below(tree.system().path(""));
    system.believed = Some(Believed { users: vec![0, 1000], processes: vec![900] });
    examine(&system, &kvm(), &Saved::default())
}

/// A second machine, by its looks: one processor, which is bound to a core of the first one's.
fn another(user: &str) -> Tree {
    let tree = Tree::new(HOST);
    tree.put("proc/777/comm", "qemu-system-x86\n");
    tree.put("proc/777/status", &format!("Name:\tqemu\nUid:\t{user}\n"));
    tree.put("proc/777/stat", "777 (qemu) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 6000 0 0\n");
    for (number, name, cores) in [(777, "qemu-system-x86", "2-3"), (778, "CPU 0/KVM", "0")] {
        let at = format!("proc/777/task/{number}");
        tree.put(&format!("{at}/comm"), &format!("{name}\n"));
        let stat = format!("{number} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 6000 0 0\n");
        tree.put(&format!("{at}/stat"), &stat);
        tree.put(&format!("{at}/status"), &format!("Cpus_allowed_list:\t{cores}\n"));
        tree.put(&format!("proc/{number}/timerslack_ns"), "50000\n");
    }
    tree
}

#[test]
fn what_strangers_show_is_no_reason_to_change_the_host() {
    let of_ours = ["0 0 0 0", "1000 1000 1000 1000"];
    for user in of_ours {
        let found = believing(&another(user));
        assert!(costly(&found).contains(&"shared-cores"), "{user}");
        assert!(!finding(&found, "shared-cores").changes.is_empty(), "{user}");
    }
    // A stranger's, by a program with the set-user-id bit, too, and one of whom nothing is known.
    for user in ["1001 1001 1001 1001", "1001 0 0 0", ""] {
        let found = believing(&another(user));
        assert_eq!(costly(&found), [""; 0], "{user}");
        let changes = found.iter().map(|it| it.changes.len()).sum::<usize>();
        assert_eq!(changes, 0, "{user}");
        let evidence = &finding(&found, "shared-cores").evidence;
        assert!(evidence.iter().any(|it| it.of.contains("777") && it.is.contains("left out")), "{user}");
    }
    // Not a hypervisor, whichever user runs it.
    let tree = another(of_ours[0]);
    tree.link("proc/777/exe", "/tmp/sleep");
    assert_eq!(costly(&believing(&tree)), [""; 0]);
    tree.link("proc/777/exe", "/usr/bin/qemu-system-x86_64 (deleted)");
    assert!(costly(&believing(&tree)).contains(&"shared-cores"));
}

#[test]
fn machines_with_users_of_their_own_are_believed() {
    let user = "65001 65001 65001 65001";
    let is_seen = |tree: &Tree| costly(&believing(tree)).contains(&"shared-cores");
    assert!(!is_seen(&another(user)));
    let tree = another(user);
    tree.put("proc/777/cgroup", "0::/machine.slice/machine-qemu.scope\n");
    assert!(is_seen(&tree), "libvirt's");
    tree.put("proc/777/cgroup", "0::/user.slice/machine.slice/x\n");
    assert!(!is_seen(&tree));
    // That of a recorded cluster, whose sandbox has started it.
    tree.put("proc/777/stat", "777 (qemu) S 900 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 6000 0 0\n");
    assert!(is_seen(&tree));
}

#[test]
fn roles_of_threads_are_believed_only_if_they_agree() {
    // Two threads that are the same processor, or the process's first thread.
    let tree = Tree::new(HOST);
    tree.put("proc/4242/task/4251/comm", "CPU 0/KVM\n");
    bound(&tree, 4251, "0");
    assert!(!costly(&found(&tree, &kvm())).contains(&"shared-cores"));
    let tree = Tree::new(HOST);
    tree.put("proc/4242/task/4242/comm", "CPU 2/KVM\n");
    bound(&tree, 4242, "0");
    assert!(!costly(&found(&tree, &kvm())).contains(&"shared-cores"));
    // The monitor names a thread of another process, the first one, one processor twice, or another one than
    // the thread's name says.
    for (from, to) in [
        ("\"thread-id\": 4251", "\"thread-id\": 1"),
        ("\"thread-id\": 4251", "\"thread-id\": 4242"),
        ("\"cpu-index\": 1", "\"cpu-index\": 0"),
        ("\"cpu-index\": 1", "\"cpu-index\": 7"),
    ] {
        assert!(TWO_SIBLINGS.contains(from));
        let found = plant(HOST, &[(CPUS, &TWO_SIBLINGS.replace(from, to))], &[]);
        let it = finding(&found, "guest-siblings");
        assert!(it.verdict == Outcome::Unknown && it.why.contains("is odd"), "{to}: {}", it.why);
    }
}
