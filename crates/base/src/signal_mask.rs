//! The signal mask of programs that are started.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes a program start with no signal blocked. It would inherit the mask of the thread that starts it.
/// Handlers don't survive `exec`, and ignored signals stay ignored, as under nohup.
pub fn unblock(command: &mut Command) {
    let unblock = || {
        // SAFETY: the set is initialised before it is used; both calls are safe in a forked child.
        let outcome = unsafe {
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
        };
        match outcome {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes two system calls; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(unblock) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_blocked() {
        let blocked = |command: &mut Command| {
            let command = command.args(["^SigBlk:", "/proc/self/status"]);
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        // SAFETY: the set is initialised before it is used; only this thread's mask changes.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        assert_eq!(blocked(&mut Command::new("grep")), "SigBlk:\t0000000000010000\n");
        let mut command = Command::new("grep");
        unblock(&mut command);
        assert_eq!(blocked(&mut command), "SigBlk:\t0000000000000000\n");
    }
}
