//! Judging whether a process is over before the kernel has released all that it had.
//!
//! A process that ends releases its memory first, then its files, and last its locks on them. A reader of its
//! pipe knows of its death before its liveness lock is free; and its main thread may be gone while others go
//! on. Memory tells the two apart: a thread that has none will never do anything again.

use core::fmt::Write;

use crate::directory::each_entry;
use crate::stat;
use crate::sys::read_file;
use crate::syscall;
use crate::text::Text;

/// Whether a thread has memory, its own or its process's. `None`: unknown.
fn has_memory(process: u32, thread: u32) -> Option<bool> {
    // To move no pages of a thread only looks up its memory, or fails with EINVAL if it has none.
    // SAFETY: no page is named, so no address is used.
    let result = unsafe { syscall!(libc::SYS_move_pages, thread, 0usize, 0usize, 0usize, 0usize, 0) };
    match -result as i32 {
        0 => Some(true),
        libc::EINVAL | libc::ESRCH => Some(false),
        // It is another user's, or a filter forbids the call (as Docker's).
        _ => has_memory_by_proc(process, thread),
    }
}

/// Whether a thread has memory, by /proc: slowly, without any permission.
fn has_memory_by_proc(process: u32, thread: u32) -> Option<bool> {
    let mut path = Text::<64>::new();
    write!(path, "/proc/{process}/task/{thread}/statm").ok()?;
    let mut buffer = [0; 128];
    match read_file(path.c_str(), &mut buffer) {
        // Its size comes first.
        Some(statm) if !statm.is_empty() => Some(!statm.starts_with(b"0 ")),
        _ => {
            // It is gone, or hidden.
            // SAFETY: signal 0 only asks.
            let result = unsafe { syscall!(libc::SYS_tgkill, process, thread, 0) };
            (result == -(libc::ESRCH as isize)).then_some(false)
        }
    }
}

/// Most threads of a process whose main thread has ended that are looked at.
const THREADS: usize = 64;

/// Whether the process that has this pid will certainly never do anything again. `None`: unknown.
pub fn is_over(pid: u32) -> Option<bool> {
    if has_memory(pid, pid)? {
        return Some(false);
    }
    // The main thread has ended. Have all others? While they are asked one by one, one may make another and
    // end, or become the main thread by exec. So they are asked twice, and there must be none that was not
    // there at first.
    let mut known = [0; THREADS];
    let first = all_without_memory(pid, &mut known, None)?;
    let same = known;
    let second = first && all_without_memory(pid, &mut known, Some(&same))?;
    Some(second)
}

/// Calls `each` with the threads of a process. False if they can't be listed, or not all of them.
pub fn each_thread(pid: u32, mut each: impl FnMut(u32)) -> bool {
    let mut path = Text::<40>::new();
    write!(path, "/proc/{pid}/task").is_ok()
        && each_entry(path.c_str(), &mut |_, name| {
            let number = name.to_str().ok().and_then(|name| name.parse().ok());
            number.into_iter().for_each(&mut each);
            true
        })
        .is_ok()
}

/// Whether all threads, which are written to `threads`, have no memory and were `known` before. `None`:
/// unknown.
fn all_without_memory(
    pid: u32,
    threads: &mut [u32; THREADS],
    known: Option<&[u32; THREADS]>,
) -> Option<bool> {
    let (mut count, mut all, mut certain) = (0, true, true);
    let listed = each_thread(pid, |thread| {
        let Some(place) = threads.get_mut(count) else {
            certain = false;
            return;
        };
        (*place, count) = (thread, count + 1);
        all &= known.is_none_or(|known| known.contains(&thread));
        match has_memory(pid, thread) {
            Some(has) => all &= !has,
            None => certain = false,
        }
    });
    // Without a list, or without its main thread there, the process is gone, or in the middle of an exec, or
    // there is no /proc.
    certain &= listed && threads[..count].contains(&pid);
    // The kernel's list ends early where a thread goes while it is read.
    certain = certain && stat::of(Some(pid)).is_some_and(|stat| stat.threads == count);
    match (all, certain) {
        (false, _) => Some(false),
        (true, true) => Some(true),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::process::{Command, Stdio};

    fn gettid() -> u32 {
        // SAFETY: takes nothing, changes nothing.
        unsafe { syscall!(libc::SYS_gettid) as u32 }
    }

    #[test]
    fn the_living_are_not_over() {
        assert_eq!(is_over(std::process::id()), Some(false));
        assert_eq!(is_over(gettid()), Some(false));
    }

    #[test]
    fn who_has_ended_is_over_before_its_parent_knows() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        assert_eq!(is_over(child.id()), Some(false));
        drop(child.stdin.take());
        while is_over(child.id()) != Some(true) {
            std::thread::yield_now();
        }
        assert!(child.wait().unwrap().success());
        assert_ne!(is_over(child.id()), Some(false));
    }

    #[test]
    fn without_permission_proc_tells_the_same() {
        let me = std::process::id();
        assert_eq!(has_memory_by_proc(me, me), Some(true));
        assert_eq!(has_memory_by_proc(1, 1), Some(true));
        // A thread of the kernel.
        assert!([Some(false), None].contains(&has_memory_by_proc(2, 2)));
        let mut child = Command::new("true").spawn().unwrap();
        while has_memory_by_proc(child.id(), child.id()) != Some(false) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(has_memory_by_proc(child.id(), child.id()), Some(false));
    }

    /// A child whose main thread ends long before another one.
    #[test]
    fn a_process_is_over_with_its_last_thread() {
        extern "C" fn for_a_while(_: *mut libc::c_void) -> *mut libc::c_void {
            // SAFETY: plain calls.
            unsafe {
                libc::usleep(300_000);
                libc::_exit(7)
            }
        }
        // SAFETY: the child only makes plain calls.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                let mut thread = core::mem::zeroed();
                libc::pthread_create(&mut thread, core::ptr::null(), for_a_while, core::ptr::null_mut());
                libc::syscall(libc::SYS_exit, 0);
            }
        }
        let stat = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        while !stat().contains(") Z ") {
            std::thread::yield_now();
        }
        assert_eq!(is_over(child as u32), Some(false), "{}", stat());
        while is_over(child as u32) != Some(true) {
            std::thread::yield_now();
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 7);
    }
}
