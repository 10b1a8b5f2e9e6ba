//! What the worker does to itself: identity, fork, exec, signals.

use crate::link::Link;
use crate::{check, parse, Reply, Worker};
use std::ffi::CString;

extern "C" fn ignore(_signal: libc::c_int) {}

/// Handles SIGUSR1 by doing nothing (so it interrupts), ignores SIGUSR2 (so it must not), and
/// reaps forked children by itself.
pub fn prepare() {
    // SAFETY: a zeroed sigaction is a valid value; the handler is an extern "C" function that
    // touches nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        libc::signal(libc::SIGUSR2, libc::SIG_IGN);
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    die_with_harness();
}

/// A worker that is blocked when the harness dies should not stay behind. Not for forked ones: the death of
/// the worker that made them must not end them. (The kernel also forgets it when the worker changes its
/// identity; then the harness's own cleaning up must do.)
fn die_with_harness() {
    let harness = std::env::var("WORKER_HARNESS").ok().and_then(|pid| pid.parse::<i32>().ok());
    // SAFETY: neither call touches memory of ours.
    unsafe {
        if harness == Some(libc::getppid()) {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
    }
}

/// `euid N`, `egid N`, `uid N`, `groups N...`
pub fn identity(line: &str) -> Reply {
    let mut words = line.split_whitespace();
    let what = words.next().unwrap_or_default();
    let numbers: Vec<u32> = words.filter_map(parse).map(|n| n as u32).collect();
    // SAFETY: plain calls; setgroups reads `numbers.len()` group ids from the vector.
    let result = unsafe {
        match what {
            "euid" => libc::seteuid(numbers[0]),
            "egid" => libc::setegid(numbers[0]),
            "uid" => libc::setuid(numbers[0]),
            _ => libc::setgroups(numbers.len(), numbers.as_ptr()),
        }
    };
    check(result.into()).map(|_| String::new())
}

/// The child becomes another worker, with a connection of its own.
pub fn fork(worker: &mut Worker) -> Reply {
    // SAFETY: the worker has one thread, so the child may go on with everything.
    let child = check(unsafe { libc::fork() }.into())?;
    if child == 0 {
        worker.link.reconnect();
        crate::serve(worker);
    }
    Ok(format!("child=%{child}"))
}

/// Starts the same program anew in this process. The answer is the new program's `hello`.
pub fn exec(link: &Link) -> Reply {
    let program = CString::new("/proc/self/exe").expect("no zero byte");
    let name = CString::new("worker").expect("no zero byte");
    let socket = CString::new(link.socket_name()).expect("no zero byte");
    let arguments = [name.as_ptr(), socket.as_ptr(), std::ptr::null()];
    // SAFETY: the strings and the null-terminated array live across the call.
    unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
    Err(crate::errno())
}
