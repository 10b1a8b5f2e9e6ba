//! Is a process over before the kernel has put everything of it away?
//!
//! A process that ends gives up its memory first, then its files, and at last what it had locked in them. Who waits for the end of its
//! pipe knows of its death before its life lock is free; and its main thread may be gone while others work on. What tells both
//! apart for certain is memory: a thread that has none will never do anything again.

use crate::raw::{self, syscall};
use crate::text::Text;
use core::fmt::Write;

/// Has a thread memory, its own or its process's? `None`: that can't be known, for want of permission or of the system call.
fn has_memory(thread: u32) -> Option<bool> {
    // To move no pages of a process only looks up its memory, or fails with EINVAL if it has none.
    // SAFETY: no page is named, so no address is used.
    let result = unsafe {
        syscall!(
            libc::SYS_move_pages,
            thread,
            0usize,
            0usize,
            0usize,
            0usize,
            0
        )
    };
    match -result as i32 {
        0 => Some(true),
        libc::EINVAL | libc::ESRCH => Some(false),
        _ => None,
    }
}

/// Will a process that has this pid certainly never do anything again? `None`: that can't be known.
pub fn is_over(pid: u32) -> Option<bool> {
    if has_memory(pid)? {
        return Some(false);
    }
    // The main thread has ended. Have all others?
    let mut path = Text::<40>::new();
    write!(path, "/proc/{pid}/task").ok()?;
    let mut over = Some(true);
    let listed = raw::each_name(path.c_str(), |name| {
        let thread = core::str::from_utf8(name).ok().and_then(|n| n.parse().ok());
        match thread.map(has_memory) {
            Some(Some(true)) => over = Some(false),
            Some(None) => over = over.filter(|over| !over),
            _ => {}
        }
    });
    // Without the list, the process is gone, or there is no /proc.
    if listed {
        over
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_living_are_not_over() {
        assert_eq!(is_over(std::process::id()), Some(false));
        assert_eq!(is_over(raw::gettid()), Some(false));
    }

    #[test]
    fn who_has_ended_is_over_before_its_parent_knows() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert_eq!(is_over(child.id()), Some(false));
        drop(child.stdin.take());
        while is_over(child.id()) != Some(true) {
            std::thread::yield_now();
        }
        assert!(child.wait().unwrap().success());
        assert_ne!(is_over(child.id()), Some(false));
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
                libc::pthread_create(
                    &mut thread,
                    core::ptr::null(),
                    for_a_while,
                    core::ptr::null_mut(),
                );
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
