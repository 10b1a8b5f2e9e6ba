//! Changes that `--fix` makes, and `--undo` takes back.

use super::tree::Tree;
use super::{costly, finding, found, kvm, HOST};
use crate::remedy::{fix, undo, Done};
use crate::saved::{Entry, Saved};
use crate::setting::{Setting, Thread};
use crate::{examine, Change, Instruments, Live, System};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};

pub const KSM: &str = "sys/kernel/mm/ksm/run";
pub const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";

/// A host with two things that cost.
pub fn ill() -> Tree {
    let tree = Tree::new(HOST);
    tree.put(KSM, "1\n");
    tree.put(THP, "always madvise [never]\n");
    tree
}

pub fn changes(tree: &Tree) -> Vec<(&'static str, Change)> {
    changes_of(tree.system())
}

/// The changes that `--fix` would make, each with its check.
pub fn changes_of(system: &System) -> Vec<(&'static str, Change)> {
    let found = examine(system, &kvm(), &Saved::default());
    found.iter().flat_map(|it| it.changes.iter().map(|change| (it.id, change.clone()))).collect()
}

pub fn all_done(done: &[Done]) -> bool {
    done.iter().all(|it| matches!(it, Done::Yes(_)))
}

#[test]
fn changes_are_made_and_put_back() {
    let tree = ill();
    assert!(all_done(&fix(tree.system(), &tree.state(), &changes(&tree)).unwrap()));
    assert_eq!((tree.text(KSM).trim(), tree.text(THP).trim()), ("0", "madvise"));
    assert_eq!(costly(&found(&tree, &kvm())), [""; 0]);
    assert!(all_done(&undo(tree.system(), &tree.state()).unwrap()));
    assert_eq!((tree.text(KSM).trim(), tree.text(THP).trim()), ("1", "never"));
    assert!(!tree.state().exists() && undo(tree.system(), &tree.state()).unwrap().is_empty());
}

#[test]
fn what_was_there_before_the_first_of_two_fixes_comes_back() {
    let tree = ill();
    let file = tree.state();
    let change = |from: &str, to: &str| {
        let setting = Setting::file(THP);
        [("huge-pages", Change { setting, from: from.into(), to: to.into() })]
    };
    fix(tree.system(), &file, &change("never", "madvise")).unwrap();
    fix(tree.system(), &file, &change("madvise", "always")).unwrap();
    assert_eq!(Saved::read(&file, tree.system()).unwrap().entries.len(), 1);
    undo(tree.system(), &file).unwrap();
    assert_eq!(tree.text(THP).trim(), "never");
}

#[test]
fn what_somebody_else_has_set_is_left_alone_and_is_drift() {
    let tree = ill();
    fix(tree.system(), &tree.state(), &changes(&tree)).unwrap();
    tree.put(THP, "[always] madvise never\n");
    tree.put("proc/77/comm", "tuned\n");
    let saved = Saved::read(&tree.state(), tree.system()).unwrap();
    let found = examine(tree.system(), &kvm(), &saved);
    assert_eq!(costly(&found), ["drift"]);
    assert!(finding(&found, "drift").why.contains("(tuned)"));
    let done = undo(tree.system(), &tree.state()).unwrap();
    assert!(done.iter().any(|it| matches!(it, Done::No(why) if why.contains("somebody else"))), "{done:?}");
    assert_eq!((tree.text(KSM).trim(), tree.text(THP).trim()), ("1", "[always] madvise never"));
    let left = Saved::read(&tree.state(), tree.system()).unwrap();
    assert_eq!(left.entries.len(), 1, "the rest is done, and that is kept");
}

#[test]
fn an_interrupted_fix_is_undone_as_far_as_it_came() {
    let tree = ill();
    let all = changes(&tree);
    assert!(all.len() >= 2);
    // All is written down, and one change made, when it is killed.
    let entries = all.iter().map(|(check, change)| Entry {
        check: (*check).into(),
        setting: change.setting.clone(),
        was: change.from.clone(),
        set: change.to.clone(),
    });
    Saved { entries: entries.collect(), lost: false }.write(&tree.state(), tree.system()).unwrap();
    all[0].1.setting.set(tree.system(), &all[0].1.to).unwrap();
    let done = undo(tree.system(), &tree.state()).unwrap();
    assert_eq!(done.iter().filter(|it| matches!(it, Done::Yes(_))).count(), 1, "{done:?}");
    assert_eq!((tree.text(KSM).trim(), tree.text(THP).trim().contains("never")), ("1", true));
    assert!(!tree.state().exists());
}

#[test]
fn modules_and_mounts_are_undone_as_they_were() {
    let tree = Tree::new("== proc/self/mounts\ntmpfs /dev/shm tmpfs rw,nosuid 0 0\n");
    let module = Setting::Module { name: "cpuidle_haltpoll".into(), options: vec!["force=1".into()] };
    let huge = Setting::HugePages("dev/shm".into());
    assert_eq!(module.to_string(), "module cpuidle_haltpoll force=1");
    assert_eq!(module.current(tree.system()).unwrap().as_deref(), Some(""));
    assert_eq!(huge.current(tree.system()).unwrap().as_deref(), Some("never"));
    // Both are written down, and a recorded system has neither.
    let change = |setting: &Setting, from: &str, to: &str| {
        ("x", Change { setting: setting.clone(), from: from.into(), to: to.into() })
    };
    let all = [change(&module, "", "loaded"), change(&huge, "never", "within_size")];
    assert!(fix(tree.system(), &tree.state(), &all).unwrap().iter().all(|it| matches!(it, Done::No(_))));
    // Killed after it was done, and somebody has mounted the file system otherwise since.
    let entries = all.iter().map(|(check, change)| Entry {
        check: (*check).into(),
        setting: change.setting.clone(),
        was: change.from.clone(),
        set: change.to.clone(),
    });
    Saved { entries: entries.collect(), lost: false }.write(&tree.state(), tree.system()).unwrap();
    tree.put("proc/self/mounts", "tmpfs /dev/shm tmpfs rw,nosuid,huge=always 0 0\n");
    let done = undo(tree.system(), &tree.state()).unwrap();
    assert!(
        matches!(&done[0], Done::No(why) if why.contains("somebody else has set it to always")),
        "{done:?}"
    );
    assert!(matches!(&done[1], Done::Needless(why) if why.contains("as it was")), "{done:?}");
    tree.put("proc/self/mounts", "proc /proc proc rw 0 0\n");
    let done = undo(tree.system(), &tree.state()).unwrap();
    assert!(matches!(&*done, [Done::Needless(why)] if why.contains("is gone")), "{done:?}");
}

/// Another process of this test, in which `modprobe` is a script of ours.
#[test]
#[ignore = "it is what the next test starts"]
fn loader() {
    let setting = Setting::Module { name: "cpuidle_haltpoll".into(), options: vec!["force=1".into()] };
    let set = |value: &str| setting.set(&System::live(), value);
    set("loaded").unwrap();
    set("").unwrap();
    let why = Setting::Module { name: "unknown".into(), options: Vec::new() }.set(&System::live(), "loaded");
    assert_eq!(why.unwrap_err().to_string(), "modprobe: FATAL: Module unknown not found.");
}

#[test]
fn modules_are_loaded_and_removed_by_modprobe() {
    let tree = Tree::new("");
    let script = "#!/bin/sh\nprintf '%s\\n' \"$*\" >>\"$0.said\"\ncase $* in\n*unknown)\n    \
        echo 'modprobe: FATAL: Module unknown not found.' >&2\n    exit 1\n    ;;\nesac\n";
    tree.put("bin/modprobe", script);
    let bin = tree.system().path("bin");
    std::fs::set_permissions(bin.join("modprobe"), Permissions::from_mode(0o755)).unwrap();
    let mut loader = Command::new(std::env::current_exe().unwrap());
    loader.args(["--ignored", "--exact", "tests::remedies::loader"]);
    loader.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default()));
    let done = loader.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    assert_eq!(
        tree.text("bin/modprobe.said"),
        "-- cpuidle_haltpoll force=1\n-r -- cpuidle_haltpoll\n-- unknown\n"
    );
}

#[test]
fn what_is_refused_is_no_change() {
    let tree = ill();
    let setting = Setting::file("sys/kernel/mm/ksm");
    let change = Change { setting, from: String::new(), to: "0".into() };
    let done = fix(tree.system(), &tree.state(), &[("ksm", change)]).unwrap();
    assert!(matches!(&*done, [Done::No(_)]), "{done:?}");
    // A recorded thread can't be bound.
    let thread = Thread::find(tree.system(), 4242, 4250).unwrap();
    let change = Change { setting: Setting::Affinity(thread), from: "0".into(), to: "1".into() };
    let done = fix(tree.system(), &tree.state(), &[("shared-cores", change)]).unwrap();
    assert!(matches!(&*done, [Done::No(_)]), "{done:?}");
}

#[test]
fn those_are_suspected_who_set_the_like() {
    let suspected = |path: &str, running: &str| {
        let tree = Tree::new(HOST);
        tree.put(path, "5\n");
        tree.put("proc/77/comm", running);
        let entry =
            Entry { check: "x".into(), setting: Setting::file(path), was: "5".into(), set: "7".into() };
        let found = examine(tree.system(), &kvm(), &Saved { entries: vec![entry], lost: false });
        finding(&found, "drift").why.clone()
    };
    assert!(
        suspected("sys/fs/cgroup/machine.slice/cpu.weight", "tuned").contains("(systemd (daemon-reload))")
    );
    assert!(suspected("proc/irq/24/smp_affinity_list", "irqbalance").contains("(irqbalance)"));
    assert!(suspected("sys/kernel/mm/ksm/sleep_millisecs", "ksmtuned").contains("(ksmtuned)"));
    assert!(suspected("proc/sys/vm/swappiness", "numad").contains("no program that is known for it"));
}

#[test]
fn a_reboot_has_undone_everything() {
    let tree = ill();
    fix(tree.system(), &tree.state(), &changes(&tree)).unwrap();
    tree.put("proc/sys/kernel/random/boot_id", "another\n");
    let saved = Saved::read(&tree.state(), tree.system()).unwrap();
    assert!(saved.lost && saved.entries.is_empty());
    assert!(undo(tree.system(), &tree.state()).unwrap().is_empty());
    assert_eq!(tree.text(KSM).trim(), "0", "what is there now was not set by us");
}

#[test]
fn a_damaged_file_is_refused() {
    let tree = ill();
    std::fs::write(tree.state(), "{\"boot\": 7").unwrap();
    assert!(undo(tree.system(), &tree.state()).is_err());
    assert!(fix(tree.system(), &tree.state(), &changes(&tree)).is_err());
    assert_eq!(tree.text(KSM).trim(), "1", "nothing was changed");
}

#[test]
fn looking_changes_nothing() {
    let before_any = |tree: &Tree, instruments: &dyn Instruments| {
        let before = tree.snapshot();
        assert!(before.len() > 30, "{before:?}");
        found(tree, instruments);
        assert_eq!(before, tree.snapshot());
    };
    let tree = ill();
    before_any(&tree, &kvm());
    // Also by what measures this kernel.
    before_any(&tree, &Live);
    before_any(&Tree::new(super::GUEST), &kvm());
    before_any(&Tree::new(super::EMULATED), &super::under("TCGTCGTCGTCG"));
    // And deciding what to change.
    let before = tree.snapshot();
    assert!(!changes(&tree).is_empty());
    assert_eq!(before, tree.snapshot());
}

/// A real process, which is ended in any case.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_thread_is_bound_and_unbound() {
    let child = Sleeper(Command::new("sleep").arg("60").spawn().unwrap());
    let system = System::live();
    let pid = child.0.id();
    let thread = Thread::find(&system, pid, pid).unwrap();
    let before = thread.allowed(&system).unwrap();
    let setting = Setting::Affinity(thread.clone());
    let from = setting.current(&system).unwrap().unwrap();
    let to = before.first().unwrap().to_string();
    let tree = Tree::new("");
    let change = Change { setting: setting.clone(), from, to: to.clone() };
    if before.len() > 1 {
        let done = fix(&system, &tree.state(), &[("shared-cores", change)]).unwrap();
        assert!(all_done(&done), "{done:?}");
        assert_eq!(thread.allowed(&system).unwrap(), crate::cpus::parse(&to));
        let done = undo(&system, &tree.state()).unwrap();
        assert!(all_done(&done), "{done:?}");
    }
    assert_eq!(thread.allowed(&system).unwrap(), before);
    drop(child);
    assert_eq!(setting.current(&system).unwrap(), None, "it has ended");
}
