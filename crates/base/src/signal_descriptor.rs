//! Signals as a descriptor.

use rustix::io::read;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The signals that ask a process to end.
pub const TERMINATION: [i32; 3] = [libc::SIGHUP, libc::SIGTERM, libc::SIGINT];

/// Signals that are blocked and read from a descriptor instead (signalfd(2)).
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks these signals from now on.
    pub fn watch(signals: &[i32]) -> io::Result<Signals> {
        // SAFETY: the set is filled before it is used, and lives across the calls; the new descriptor is
        // owned here.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            for &signal in signals {
                libc::sigaddset(&mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) == 0 {
                let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
                if fd >= 0 {
                    return Ok(Signals(OwnedFd::from_raw_fd(fd)));
                }
            }
        }
        Err(io::Error::last_os_error())
    }

    /// The next signal that came, if any.
    pub fn next(&self) -> Option<i32> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        // Its first field is the signal.
        read(&self.0, &mut info).ok()?;
        info.first_chunk().map(|first| i32::from_ne_bytes(*first))
    }
}

impl std::os::fd::AsFd for Signals {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
