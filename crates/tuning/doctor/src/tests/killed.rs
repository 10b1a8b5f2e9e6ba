//! Kills of `--fix` and `--undo` at each of their writes; the next `--undo` restores what was there.

use super::remedies::{all_done, changes, ill, KSM, THP};
use super::tree::Tree;
use crate::remedy::{fix, undo, Done};
use crate::System;
use std::env;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicI64, Ordering};

/// The number of steps after which this process dies; it does not if that is negative.
static LEFT: AtomicI64 = AtomicI64::new(-1);
const ROOT: &str = "VSHMEM_DOCTOR_ROOT";
const STEPS: &str = "VSHMEM_DOCTOR_STEPS";
const UNDO: &str = "VSHMEM_DOCTOR_UNDO";

/// A step of what writes: here a victim may die.
pub fn step() {
    if LEFT.load(Ordering::Relaxed) >= 0 && LEFT.fetch_sub(1, Ordering::Relaxed) == 0 {
        // SAFETY: it ends this process, as anybody may.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

/// The process that is killed: this test in another one.
#[test]
#[ignore = "it is what the other tests kill"]
fn victim() {
    let root = env::var(ROOT).unwrap();
    let (system, file) = (System::below(&root), Path::new(&root).join("doctor.json"));
    // What is found is not yet a write.
    let changes = if env::var(UNDO).is_ok() { None } else { Some(super::remedies::changes_of(&system)) };
    LEFT.store(env::var(STEPS).unwrap().parse().unwrap(), Ordering::Relaxed);
    let done = match changes {
        Some(changes) => fix(&system, &file, &changes),
        None => undo(&system, &file),
    };
    assert!(all_done(&done.unwrap()));
}

fn run_victim(tree: &Tree, steps: usize, undoes: bool) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "tests::killed::victim"]);
    command.env(ROOT, tree.system().path("")).env(STEPS, steps.to_string());
    if undoes {
        command.env(UNDO, "1");
    }
    command.output().unwrap()
}

fn state(tree: &Tree) -> [String; 2] {
    [KSM, THP].map(|file| crate::text::chosen(tree.text(file).trim()).to_owned())
}

fn restore(tree: &Tree, before: &[String; 2], steps: usize) {
    let done = undo(tree.system(), &tree.state()).unwrap();
    assert!(done.iter().all(|it| !matches!(it, Done::No(_))), "killed after {steps} steps: {done:?}");
    assert_eq!(state(tree), *before, "killed after {steps} steps");
    assert!(!tree.state().exists(), "killed after {steps} steps: something is left to undo");
}

/// Kills at the first step, the second, and so on, until it comes to its end.
fn at_each_step(undoes: bool) -> usize {
    for steps in 0.. {
        let tree = ill();
        let before = state(&tree);
        if undoes {
            assert!(all_done(&fix(tree.system(), &tree.state(), &changes(&tree)).unwrap()));
        }
        let victim = run_victim(&tree, steps, undoes);
        if victim.status.success() {
            let expected = if undoes { before } else { ["0".into(), "madvise".into()] };
            assert_eq!(state(&tree), expected);
            return steps;
        }
        let said = String::from_utf8_lossy(&victim.stdout);
        assert_eq!(victim.status.signal(), Some(libc::SIGKILL), "after {steps} steps: {said}");
        restore(&tree, &before, steps);
    }
    unreachable!("the end is reached")
}

#[test]
fn a_fix_that_was_killed_at_any_write_is_undone() {
    // Two settings, each before and after its write, and the file twice: made, filled, in its place.
    assert_eq!(at_each_step(false), 2 * 2 + 2 * 4);
}

#[test]
fn an_undo_that_was_killed_at_any_write_is_done_by_the_next() {
    // The file is removed at the end.
    assert_eq!(at_each_step(true), 2 * 2 + 1);
}
