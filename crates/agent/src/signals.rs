//! Being asked to end.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A signalfd for the signals that ask a process to end. They are blocked from now on.
pub fn termination_fd() -> io::Result<OwnedFd> {
    // SAFETY: the set is filled before it is used, and lives across the calls; the new descriptor is owned
    // here.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        for signal in [libc::SIGHUP, libc::SIGTERM, libc::SIGINT] {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
