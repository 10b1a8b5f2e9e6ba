//! A machine of the launcher of processes, from inside: its first process. It listens at the channels'
//! sockets, has an agent serve each connection, and reaps the orphans.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{exit, Command, Stdio};
use std::thread;
use vshmem_base::directories::channel_socket;
use vshmem_base::signal_mask;
use vshmem_session::commands::local;

/// The word by which this program is executed for it.
pub const WORD: &str = "machine";
/// The directory of the links to its pools, in its directory.
pub const LINKS: &str = "pools";
/// The directory of the links to its pools, as it is seen inside.
pub const POOLS: &str = "/mnt/pools";

/// Blocks the signals that a machine waits for, so that they wait for it: the kernel drops those for a first
/// process that has no handler for them.
pub fn block_signals() -> libc::sigset_t {
    // SAFETY: the set is initialised before it is used; the calls are safe in a forked child.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

/// Runs the machine.
pub fn main(channels: usize) -> ! {
    // The threads below inherit it.
    let signals = block_signals();
    thread::spawn(end_unless_kept);
    let directory = Path::new(POOLS).parent().expect("it has one");
    for channel in 0..channels {
        let listener = UnixListener::bind(channel_socket(directory, channel)).expect("a new socket");
        thread::spawn(move || serve(&listener));
    }
    loop {
        // SAFETY: the set is initialised, and nothing is told of the signal.
        if unsafe { libc::sigwaitinfo(&raw const signals, std::ptr::null_mut()) } == libc::SIGTERM {
            exit(0);
        }
        // SAFETY: no status is asked for.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
    }
}

/// Ends the machine with the process that starts it, unless that has kept it.
fn end_unless_kept() {
    if !matches!(std::io::stdin().read(&mut [0]), Ok(1)) {
        exit(1);
    }
}

/// Has agents serve the connections to a channel. The first process reaps them.
#[allow(clippy::zombie_processes)]
fn serve(listener: &UnixListener) {
    for connection in listener.incoming().flatten() {
        let mut agent = Command::new("/proc/self/exe");
        agent.arg0(local::NAME).stdin(OwnedFd::from(connection)).stdout(Stdio::null());
        signal_mask::unblock(&mut agent);
        agent.spawn().expect("an agent");
    }
}
