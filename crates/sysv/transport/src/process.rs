//! Processes of this kernel: telling one from others, and whether it lives, is stopped, or runs another
//! program.
//!
//! A liveness lock tells most of it. But the kernel releases it late, and at exec, although the process goes
//! on. So code that judges processes of its own kernel asks here.

use core::ffi::CStr;
use core::fmt::Write;
use core::time::Duration;

use crate::ending;
use crate::stat::{self, Stat};
use crate::sys;
use crate::syscall;
use crate::text::Text;
use crate::Handle;

/// A number for the namespaces in which pids and start times mean something; 0: unknown.
fn namespaces() -> u32 {
    inode(c"/proc/self/ns/pid")
        .map_or(0, |pid| namespaces_number(pid, inode(c"/proc/self/ns/time").unwrap_or(0)))
}

/// The number of a PID and a time namespace, by their inodes. The kernel numbers namespaces of all kinds from
/// one place on, so those that exist at the same time have numbers next to each other.
pub fn namespaces_number(pid: u32, time: u32) -> u32 {
    (pid ^ time.rotate_left(16)).max(1)
}

pub use vshmem_pool::layout::NO_LIVENESS_LOCK;

/// The clock ticks in it.
const TICKS_MASK: u64 = NO_LIVENESS_LOCK - 1;

/// The calling process's start as the pool keeps it: its namespaces in the high half, 31 bits of
/// clock ticks in the low half. 0: unknown.
pub fn started() -> u64 {
    let ticks = stat::of(None).map_or(0, |stat| stat.start) & TICKS_MASK;
    u64::from(namespaces()) << 32 | ticks
}

/// A fork, as the process knows it just before: from that its child learns when and where it began. To ask
/// /proc takes microseconds, and more in a new process.
#[derive(Clone, Copy, Debug)]
pub struct Fork {
    parent: u32,
    /// The time just before, by the parent's clock that counts from the kernel's start.
    before: Duration,
}

/// A child that finds its parent's clock to be so far behind asks /proc.
const SOON: Duration = Duration::from_secs(1);

impl Fork {
    /// Now, by the process that has this pid.
    pub fn now(pid: u32) -> Fork {
        Fork { parent: pid, before: sys::time(libc::CLOCK_BOOTTIME) }
    }

    /// For the child: does its parent live, as far as both see each other?
    pub fn parent_lives(&self) -> bool {
        // SAFETY: takes nothing, changes nothing.
        unsafe { syscall!(libc::SYS_getppid) == self.parent as isize }
    }

    /// The start of the child, as [`started`] gives it, by the clock. `parents`: its parent's.
    ///
    /// The child is in its parent's namespaces if both see the same pid and clock: a parent in another PID
    /// namespace has pid 0, and time namespaces exist to have other clocks. One that is ahead by less than
    /// [`SOON`] looks like a child that was scheduled late, and is as good. Not seen is that the parent moved
    /// itself to another time namespace after `parents` was noted; its child is then unknown there once it
    /// has executed another program.
    #[inline]
    pub fn started_in_child(&self, parents: u64) -> u64 {
        let now = sys::time(libc::CLOCK_BOOTTIME);
        let is_soon = now.checked_sub(self.before).is_some_and(|late| late < SOON);
        let is_same = self.parent_lives() && is_soon;
        let known = Some((parents >> 32) as u32).filter(|its| is_same && *its != 0);
        started_at(now, known.unwrap_or_else(namespaces), parents)
    }
}

/// The start of a child of the process that noted `parents`, as the pool keeps it while nobody knows when it
/// began.
pub fn unknown_start(parents: u64) -> u64 {
    parents & 0xffff_ffff << 32
}

fn inode(path: &CStr) -> Option<u32> {
    sys::stat_at(libc::AT_FDCWD, path, 0).ok().map(|stat| stat.st_ino as u32)
}

/// The start of a process that began just now and has no /proc, or may have none, by the clock; then it is
/// taken to be in its parent's namespaces.
pub fn started_now(parents: u64) -> u64 {
    started_at(sys::time(libc::CLOCK_BOOTTIME), namespaces(), parents)
}

#[inline]
fn started_at(now: Duration, namespaces: u32, parents: u64) -> u64 {
    let ticks = now.as_millis() as u64 * TICKS / 1000;
    let namespaces = if namespaces == 0 { unknown_start(parents) } else { u64::from(namespaces) << 32 };
    namespaces | ticks & TICKS_MASK
}

/// Clock ticks per second, as files in /proc count them (USER_HZ).
const TICKS: u64 = 100;

/// Whether the process of this kernel that took a slot of a pool, and noted `pid` and `started` there, is
/// alive. False only if it is certainly dead.
pub fn is_alive(handle: &Handle, slot: u32, pid: u32, started: u64) -> bool {
    if started & NO_LIVENESS_LOCK != 0 {
        return !is_gone(pid, started) && !has_left(pid, started);
    }
    match handle.alive(slot) {
        Some(alive) => alive && !has_left(pid, started),
        None => !is_gone(pid, started),
    }
}

/// Whether the process that noted `pid` and `started` is certainly dead. For when its liveness lock can't be
/// queried.
pub fn is_gone(pid: u32, started: u64) -> bool {
    let (theirs, ticks) = ((started >> 32) as u32, started & TICKS_MASK);
    if pid == 0 || theirs == 0 || theirs != namespaces() {
        return false;
    }
    if has_no_process(pid) {
        return true;
    }
    // The pid may have been given to another process.
    ticks != 0 && stat::of(Some(pid)).is_some_and(|stat| !has_noted(stat.start, ticks))
}

/// Whether no process has this pid, as far as this one sees.
fn has_no_process(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { syscall!(libc::SYS_kill, pid, 0) == -(libc::ESRCH as isize) }
}

/// Whether a process has exited although it seems to hold its liveness lock. The kernel closes its files
/// before it releases the lock, so others may know of its exit already; and readers of its memory (/proc,
/// DAMON) keep that, and so the lock, a little longer.
pub fn has_left(pid: u32, started: u64) -> bool {
    let theirs = (started >> 32) as u32;
    if pid == 0 || theirs == 0 {
        return false;
    }
    is_over(pid) && theirs == namespaces()
}

/// Whether the process that has this pid will certainly never do anything again, or there is none.
pub fn is_over(pid: u32) -> bool {
    ending::is_over(pid).unwrap_or_else(|| has_no_process(pid))
}

/// Whether the process that noted `pid` and `started` is certainly alive. If it has lost its liveness lock
/// all the same, it runs another program now. A zombie is over, unless other threads of its process go on.
pub fn has_executed(pid: u32, started: u64) -> bool {
    let (theirs, ticks) = ((started >> 32) as u32, started & TICKS_MASK);
    // Most that are asked for are gone, which is told sooner than what the caller's namespaces are.
    if pid == 0 || theirs == 0 || ticks == 0 || has_no_process(pid) || theirs != namespaces() {
        return false;
    }
    let alive = |stat: Stat| has_noted(stat.start, ticks) && ending::is_over(pid) != Some(true);
    stat::of(Some(pid)).is_some_and(alive)
}

/// Whether the process that has the pid now, and began at `start`, is the one that noted it. A forked child
/// notes its start late, by as long as it was not scheduled. A later process with the same pid begins after
/// what was noted; soon after, where a container is restarted: its first process has pid 1, too, and its
/// namespaces may have the numbers of those that ended.
fn has_noted(start: u64, noted: u64) -> bool {
    noted.wrapping_sub(start) & TICKS_MASK <= TICKS_MASK / 2
}

/// Whether the process that noted `pid` and `started` is certainly stopped now, by a signal or a debugger.
pub fn is_stopped(pid: u32, started: u64) -> bool {
    let (theirs, ticks) = ((started >> 32) as u32, started & TICKS_MASK);
    if pid == 0 || theirs == 0 || theirs != namespaces() {
        return false;
    }
    match stat::of(Some(pid)).filter(|stat| has_noted(stat.start, ticks)) {
        // The main thread has ended, but others have not.
        Some(stat) if stat.state == b'Z' => a_thread_is_stopped(pid),
        Some(stat) => STOPPED.contains(&stat.state),
        None => false,
    }
}

/// States of processes that are stopped by a signal, and by a debugger.
const STOPPED: &[u8] = b"Tt";

fn a_thread_is_stopped(pid: u32) -> bool {
    let mut stopped = false;
    let listed = ending::each_thread(pid, |thread| {
        let mut path = Text::<64>::new();
        stopped |= write!(path, "/proc/{pid}/task/{thread}/stat").is_ok()
            && stat::at(path.c_str()).is_some_and(|stat| STOPPED.contains(&stat.state));
    });
    listed && stopped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_living_are_not_declared_dead() {
        let me = std::process::id();
        assert!(!is_gone(me, started()));
        assert!(!is_gone(me, 0));
        assert!(!is_gone(0, started()));
        assert!(is_gone(me, started() - 1), "who had the pid before");
        assert!(!is_gone(me, (started() - 1) ^ 1 << 40), "another namespace's");
        assert!(!is_gone(me, started() + 1000), "noted late");
        assert!(has_executed(me, started()) && !has_executed(me, started() - 1));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !matches!(stat::of(Some(child.id())), Some(Stat { state: b'Z', .. })) {
            std::thread::yield_now();
        }
        let noted = started_now(started());
        assert!(!has_executed(child.id(), noted), "a zombie is not here");
        child.wait().unwrap();
        assert!(!has_executed(child.id(), noted));
        assert!(is_gone(child.id(), started()));
        assert!(has_left(child.id(), started()));
        assert!(!has_left(std::process::id(), started()));
        assert!(!has_left(0, started()));
        assert!(!has_left(child.id(), started() ^ 1 << 40), "another namespace");
    }

    #[test]
    fn namespaces_are_told_apart() {
        let first = 0xf000_0100;
        let numbers: std::collections::BTreeSet<u32> = (first..first + 64)
            .flat_map(|pid| (first..first + 64).map(move |time| namespaces_number(pid, time)))
            .collect();
        assert_eq!(numbers.len(), 64 * 64);
        assert!(!numbers.contains(&0));
    }

    #[test]
    fn starts_are_told_apart_though_they_wrap() {
        for start in [0, 7, TICKS_MASK - 3, TICKS_MASK] {
            let after = |ticks: u64| start.wrapping_add(ticks) & TICKS_MASK;
            assert!(has_noted(start, start) && has_noted(start, after(1)));
            assert!(has_noted(start, after(5000)));
            assert!(!has_noted(after(1), start) && !has_noted(after(5000), start));
        }
    }

    #[test]
    fn who_is_stopped_is_known_to_be() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, noted) = (child.id(), started_now(started()));
        assert!(!is_stopped(pid, noted));
        // SAFETY: signals to a child of our own.
        unsafe {
            libc::kill(pid as i32, libc::SIGSTOP);
            libc::waitpid(pid as i32, core::ptr::null_mut(), libc::WUNTRACED);
        }
        assert!(is_stopped(pid, noted));
        assert!(!is_stopped(pid, noted - 1000), "who had the pid before");
        assert!(!is_stopped(pid, noted ^ 1 << 40), "another namespace");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(pid, noted));
    }

    #[test]
    fn a_fresh_child_notes_about_its_real_start() {
        let (fork, parents) = (Fork::now(std::process::id()), started());
        // SAFETY: the child only compares and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let soon = |late: u64| late.wrapping_sub(started()) <= 10 * TICKS;
            let good = soon(started_now(parents)) && soon(fork.started_in_child(parents));
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
    }

    /// Needs root, and is void without.
    #[test]
    fn a_fresh_child_knows_that_it_is_in_other_namespaces() {
        let other_clock =
            || std::fs::write("/proc/self/timens_offsets", "boottime 100 0").map_or(libc::EPERM, |()| 0);
        for (flag, then) in [(0, None), (libc::CLONE_NEWPID, None), (CLONE_NEWTIME, Some(other_clock))] {
            let parents = started();
            // SAFETY: it asks, forks, and leaves, as its child does.
            let code = unsafe {
                exit_code(|| {
                    if flag != 0 && libc::unshare(flag) != 0 || then.is_some_and(|then| then() != 0) {
                        return 0;
                    }
                    let fork = Fork::now(std::process::id());
                    exit_code(|| {
                        let (found, right) = (fork.started_in_child(parents) >> 32, u64::from(namespaces()));
                        i32::from(found != right || (right == parents >> 32) != (flag == 0))
                    })
                })
            };
            assert_eq!(code, 0, "unshare({flag:#x})");
        }
    }

    const CLONE_NEWTIME: i32 = 0x80;

    /// The exit code of a child that calls `ends`.
    unsafe fn exit_code(ends: impl FnOnce() -> i32) -> i32 {
        let mut status = 0;
        // SAFETY: the caller vouches for what the child calls; it is waited for.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(ends()),
                child => libc::waitpid(child, &mut status, 0),
            };
        }
        libc::WEXITSTATUS(status)
    }
}
