//! Checks: everybody sees who lives, and the dead are seen to be dead.

use core::ptr;
use std::string::String;

use super::child::{linger, outlive_parent, soon, Child, End, Inside};
use super::subject::{ensure, same, Check, Open, Outcome, Subject, Verdict};
use crate::Liveness;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "liveness: an own lock is seen", make: own },
    Check { name: "liveness: a lock is seen from another process", make: seen },
    Check { name: "liveness: a slot can be claimed by one only", make: one_only },
    Check { name: "liveness: the first and the last slot work alike", make: all_slots },
    Check { name: "liveness: dead after SIGKILL", make: dead_after_kill },
    Check { name: "liveness: dead after exit", make: dead_after_exit },
    Check { name: "liveness: dead after exec", make: dead_after_exec },
    Check { name: "liveness: alive after the program closed all descriptors", make: alive_after_close },
    Check { name: "liveness: alive after the handle was closed", make: alive_after_handle },
    Check { name: "liveness: not inherited by a forked child", make: not_inherited },
    Check { name: "liveness: a lock claimed for a child outlives the parent", make: outlives_parent },
    Check { name: "liveness: a lock claimed for a child ends with the child", make: ends_with_child },
    Check { name: "liveness: a lock claimed for no child can be dropped", make: dropped_in_parent },
    Check { name: "liveness: seen from another PID namespace", make: seen_from_namespace },
];

/// A slot that nobody uses.
const SLOT: u32 = 65_100;

/// Claims the slot, or says that it can't.
fn claim(pool: &Open, slot: u32) -> Result<Liveness, String> {
    pool.handle.claim_liveness(slot).ok_or_else(|| "the slot could not be claimed".into())
}

/// Starts a child that claims the slot through a handle of its own, and then runs `then`.
fn start_claimer<'a>(
    subject: &'a Subject<'a>,
    then: impl FnOnce(&Inside) -> Result<(), String> + 'a,
) -> Result<Child, String> {
    let mut child = Child::start(|inside| {
        let pool = subject.open()?;
        claim(&pool, SLOT)?;
        inside.say();
        then(inside)
    })?;
    child.hear()?;
    Ok(child)
}

/// Checks that the slot is alive.
fn check_alive(pool: &Open) -> Result<(), String> {
    same(pool.handle.alive(SLOT), Some(true), "the slot")
}

/// Checks that the slot is dead soon, and that it can be claimed again.
fn check_dead(pool: &Open) -> Result<(), String> {
    soon(|| pool.handle.alive(SLOT) == Some(false), "the slot's death")?;
    let liveness = claim(pool, SLOT)?;
    // SAFETY: claimed by this process.
    unsafe { liveness.end() };
    same(pool.handle.alive(SLOT), Some(false), "the slot after it was claimed once more")
}

fn own(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    same(pool.handle.alive(SLOT), Some(false), "an unused slot")?;
    let liveness = claim(&pool, SLOT)?;
    check_alive(&pool)?;
    same(pool.handle.alive(SLOT + 1), Some(false), "the next slot")?;
    same(pool.handle.alive(SLOT - 1), Some(false), "the slot before")?;
    // SAFETY: claimed by this process.
    unsafe { liveness.end() };
    check_dead(&pool)?;
    pool.close();
    Ok(Verdict::Passed)
}

fn seen(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let child = start_claimer(subject, |inside| inside.wait_for_death())?;
    check_alive(&pool)?;
    same(child.kill(), End::Killed(libc::SIGKILL), "the child's end")?;
    check_dead(&pool)?;
    pool.close();
    Ok(Verdict::Passed)
}

fn one_only(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let child = start_claimer(subject, |inside| inside.wait_for_death())?;
    ensure(pool.handle.claim_liveness(SLOT).is_none(), "two processes hold one slot")?;
    drop(child);
    soon(|| pool.handle.alive(SLOT) == Some(false), "the slot's death")?;
    let liveness = claim(&pool, SLOT)?;
    ensure(pool.handle.claim_liveness(SLOT).is_none(), "one process holds a slot twice")?;
    check_alive(&pool)?;
    // SAFETY: claimed by this process.
    unsafe { liveness.end() };
    pool.close();
    Ok(Verdict::Passed)
}

fn all_slots(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    for slot in [0, 65_535] {
        if pool.handle.alive(slot) == Some(true) {
            return Ok(Verdict::Skipped("somebody uses the pool"));
        }
        let liveness = claim(&pool, slot)?;
        same(pool.handle.alive(slot), Some(true), "the slot")?;
        // SAFETY: claimed by this process.
        unsafe { liveness.end() };
        same(pool.handle.alive(slot), Some(false), "the slot after its end")?;
    }
    pool.close();
    Ok(Verdict::Passed)
}

fn dead_after_kill(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    // Also while it has threads that hold on to its memory.
    let child = start_claimer(subject, |inside| {
        std::thread::spawn(|| loop {
            core::hint::spin_loop();
        });
        inside.say();
        inside.wait_for_death()
    })?;
    check_alive(&pool)?;
    same(child.kill(), End::Killed(libc::SIGKILL), "the child's end")?;
    check_dead(&pool)?;
    pool.close();
    Ok(Verdict::Passed)
}

fn dead_after_exit(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let child = start_claimer(subject, |inside| inside.hear())?;
    check_alive(&pool)?;
    child.say();
    same(child.wait(), (End::Exited(0), String::new()), "the child's end")?;
    check_dead(&pool)?;
    pool.close();
    Ok(Verdict::Passed)
}

fn dead_after_exec(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let child = start_claimer(subject, |inside| {
        inside.hear()?;
        let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), c"sleep 30; :".as_ptr(), ptr::null()];
        // SAFETY: terminated strings in a terminated list.
        unsafe { libc::execv(c"/bin/sh".as_ptr(), arguments.as_ptr()) };
        Err("/bin/sh can't be run".into())
    })?;
    check_alive(&pool)?;
    child.say();
    check_dead(&pool)?;
    // Dead it was by exec, not because it had ended: the new program still runs.
    same(child.kill(), End::Killed(libc::SIGKILL), "the child's end")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn alive_after_close(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let mut child = start_claimer(subject, |inside| {
        // SAFETY: this child has no use for its descriptors.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
        same(closed, 0, "close_range")?;
        inside.say();
        inside.wait_for_death()
    })?;
    child.hear()?;
    check_alive(&pool)?;
    drop(child);
    check_dead(&pool)?;
    pool.close();
    Ok(Verdict::Passed)
}

fn alive_after_handle(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let other = subject.open()?;
    let liveness = claim(&other, SLOT)?;
    other.close();
    check_alive(&pool)?;
    // SAFETY: claimed by this process.
    unsafe { liveness.end() };
    check_dead(&pool)?;
    pool.close();
    Ok(Verdict::Passed)
}

fn not_inherited(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let word = pool.page_at(0);
    pool.put(word, 0);
    let mut child = start_claimer(subject, |inside| {
        let grandchild = Child::start(|_| {
            outlive_parent();
            inside.say();
            linger(|| pool.get(word) == 1);
            Ok(())
        })?;
        core::mem::forget(grandchild);
        inside.wait_for_death()
    })?;
    child.hear()?;
    check_alive(&pool)?;
    drop(child);
    let outcome = check_dead(&pool);
    pool.put(word, 1);
    outcome?;
    pool.close();
    Ok(Verdict::Passed)
}

/// Starts a process that claims the slot for a child of its own, forks it, drops its own share, and runs
/// `then`. The child keeps the lock and runs `grandchild`.
fn start_parent_of_claimer<'a>(
    subject: &'a Subject<'a>,
    grandchild: impl FnOnce(&Inside) -> Result<(), String> + 'a,
    then: impl FnOnce(&Inside) -> Result<(), String> + 'a,
) -> Result<Child, String> {
    let mut parent = Child::start(|inside| {
        let pool = subject.open()?;
        let liveness = pool.handle.claim_liveness_for_child(SLOT).ok_or("the slot could not be claimed")?;
        let child = Child::start(|own| {
            outlive_parent();
            // SAFETY: claimed for this child.
            unsafe { liveness.keep_in_child() };
            inside.say();
            grandchild(own)
        })?;
        // SAFETY: claimed for the child above, which exists now.
        unsafe { liveness.end() };
        core::mem::forget(child);
        then(inside)
    })?;
    parent.hear()?;
    Ok(parent)
}

fn outlives_parent(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let word = pool.page_at(0);
    pool.put(word, 0);
    let parent = start_parent_of_claimer(
        subject,
        |_| {
            let own = subject.open()?;
            soon(|| own.get(word) == 1, "the word to end")
        },
        |inside| inside.hear(),
    )?;
    check_alive(&pool)?;
    parent.say();
    same(parent.wait(), (End::Exited(0), String::new()), "the parent's end")?;
    check_alive(&pool)?;
    pool.put(word, 1);
    check_dead(&pool)?;
    pool.close();
    Ok(Verdict::Passed)
}

fn ends_with_child(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let (word, heirs_word) = (pool.page_at(0), pool.page_at(0) + 1);
    pool.put(word, 0);
    pool.put(heirs_word, 0);
    // The child has a child itself, which lives on without inheriting the lock; and so does the parent.
    let parent = start_parent_of_claimer(
        subject,
        |_| {
            let heir = Child::start(|_| {
                outlive_parent();
                linger(|| pool.get(heirs_word) == 1);
                Ok(())
            })?;
            core::mem::forget(heir);
            soon(|| pool.get(word) == 1, "the word to end")
        },
        |inside| inside.wait_for_death(),
    )?;
    check_alive(&pool)?;
    pool.put(word, 1);
    let outcome = check_dead(&pool);
    pool.put(heirs_word, 1);
    outcome?;
    drop(parent);
    pool.close();
    Ok(Verdict::Passed)
}

fn dropped_in_parent(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let liveness = pool.handle.claim_liveness_for_child(SLOT).ok_or("the slot could not be claimed")?;
    check_alive(&pool)?;
    // SAFETY: claimed above, and no child was made.
    unsafe { liveness.end() };
    check_dead(&pool)?;
    pool.close();
    Ok(Verdict::Passed)
}

fn seen_from_namespace(subject: &Subject) -> Outcome {
    if crate::sys::effective_user() != 0 {
        return Ok(Verdict::Skipped("needs root"));
    }
    let pool = subject.open()?;
    let liveness = claim(&pool, SLOT)?;
    let word = pool.page_at(0);
    pool.put(word, 0);
    let mut outer = Child::start(|outer| {
        // SAFETY: concerns the children of this child only.
        same(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0, "unshare")?;
        let inner = Child::start(|_| {
            // SAFETY: a query.
            let pid = unsafe { libc::getpid() };
            same(pid, 1, "the pid in a namespace of its own")?;
            let own = subject.open()?;
            same(own.handle.alive(SLOT), Some(true), "the slot of a process outside")?;
            same(own.handle.alive(SLOT + 1), Some(false), "an unused slot")?;
            claim(&own, SLOT + 2)?;
            outer.say();
            soon(|| own.get(word) == 1, "the word to end")
        })?;
        match inner.wait() {
            (End::Exited(0), _) => Ok(()),
            (_, message) => Err(message),
        }
    })?;
    outer.hear()?;
    same(pool.handle.alive(SLOT + 2), Some(true), "the slot of a process in a namespace")?;
    pool.put(word, 1);
    same(outer.wait(), (End::Exited(0), String::new()), "the processes in the namespace")?;
    soon(|| pool.handle.alive(SLOT + 2) == Some(false), "the slot's death")?;
    // SAFETY: claimed by this process.
    unsafe { liveness.end() };
    pool.close();
    Ok(Verdict::Passed)
}
