//! The process at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The pid of the process at the other end, which is 0 if it has none in the PID namespace of this process,
/// and its user.
///
/// # Errors
/// The descriptor is none of a Unix socket.
pub fn peer_of(socket: impl AsFd) -> io::Result<(i32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of the structure, which lives across the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut len,
        )
    };
    match result {
        0 => Ok((peer.pid, peer.uid)),
        _ => Err(io::Error::last_os_error()),
    }
}
