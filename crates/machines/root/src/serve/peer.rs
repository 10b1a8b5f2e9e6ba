//! Who a client is, as far as the kernel tells.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// A client, whose connections count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A process that this one can see.
    Process(i32),
    /// A user, of which a process is that this one can't see: machines that root has started.
    User(u32),
    /// A process of this user's that this one can't see.
    Unseen,
}

impl Peer {
    /// The process or user at the other end of a connection.
    pub fn of(stream: &UnixStream) -> io::Result<Peer> {
        // rustix takes no process that can't be seen from here: its number is 0.
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes so many bytes there at the most.
        let got = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &mut length,
            )
        };
        match got {
            0 => Ok(Peer::from(peer, rustix::process::geteuid().as_raw())),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn from(peer: libc::ucred, own: u32) -> Peer {
        match (peer.pid, peer.uid) {
            (0, user) if user == own => Peer::Unseen,
            (0, user) => Peer::User(user),
            (process, _) => Peer::Process(process),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_apart_as_far_as_they_are_seen() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(Peer::of(&one).unwrap(), Peer::Process(std::process::id() as i32));
        let peer = |pid, uid| Peer::from(libc::ucred { pid, uid, gid: 7 }, 1000);
        assert_eq!(peer(0, 65001), Peer::User(65001));
        assert_eq!(peer(0, 1000), Peer::Unseen);
        assert_eq!(peer(12, 1000), Peer::Process(12));
    }
}
