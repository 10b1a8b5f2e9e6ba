//! As whom programs run.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has a program begin as this user, with these groups and no others. To whom that is not allowed, the program is not started. What the
/// kernel forgets when a process changes its user (`PR_SET_PDEATHSIG`) is to be asked for afterwards.
pub fn switch(command: &mut Command, uid: u32, gid: u32, groups: Vec<u32>) {
    let switch = move || {
        // SAFETY: these calls take plain values, and setgroups a list that lives across the call; all of them
        // are safe in a forked child.
        let refused = unsafe {
            libc::setgroups(groups.len(), groups.as_ptr()) < 0
                || libc::setgid(gid) < 0
                || libc::setuid(uid) < 0
        };
        match refused {
            true => Err(io::Error::last_os_error()),
            false => Ok(()),
        }
    };
    // SAFETY: the closure makes system calls only; it takes no lock and no memory.
    unsafe { command.pre_exec(switch) };
}
