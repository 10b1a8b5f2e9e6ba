//! The peers that connect to the back end and leave it.

use super::{check_peer_process, Server, ACCEPTS_PER_EVENT};
use crate::ivshmem::fd_store::{REMOVE, STORE};
use crate::ivshmem::served_pool::{new_eventfds, Peer};
use crate::ivshmem::stored::peer_label;
use rustix::event::PollFlags;
use rustix::net::SocketFlags;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use vshmem_base::error::{Error, Explain, Result};

impl Server<'_> {
    pub(super) fn accept_peers(&mut self, pool: u32) {
        for _ in 0..ACCEPTS_PER_EVENT {
            let Some(served) = self.pools.get(&pool) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = rustix::net::accept_with(&served.stored.listener, flags) else {
                break;
            };
            if let Err(error) = self.add_peer(pool, socket) {
                self.log(&format!("a machine was turned away: {error}"));
            }
        }
        self.announce(pool);
    }

    fn add_peer(&mut self, pool: u32, socket: OwnedFd) -> Result<()> {
        let pid = check_peer_process(socket.as_fd())?;
        let names = &self.names;
        let name = names.get(&pid).cloned().unwrap_or_else(|| name_of(pid));
        let Some(served) = self.pools.get_mut(&pool) else {
            return Ok(());
        };
        let slot = served
            .free_slot()
            .ok_or_else(|| Error::new("the pool has, or had, as many peers as it can have"))?;
        let eventfds =
            new_eventfds(served.stored.peer_table.vectors()).explain(|| "could not make eventfds".into())?;
        let label = peer_label(&served.stored.name, slot);
        let mut fds = vec![socket.as_fd()];
        fds.extend(eventfds.iter().map(AsFd::as_fd));
        // First to the keeper, so that it has all peers that are in the peer table.
        let stored = self.keeper.send(STORE, &label, &fds);
        let peer = Peer { socket, eventfds, name, behind: false };
        served.add_peer(slot, peer, pid);
        if let Err(error) = stored {
            self.log(&format!("the process that restarts this one can't be reached: {error}"));
        }
        Ok(())
    }

    pub(super) fn peer_event(&mut self, pool: u32, slot: u16, flags: PollFlags) {
        let Some(served) = self.pools.get_mut(&pool) else {
            return;
        };
        let Some(peer) = served.peers.get(&slot) else {
            return;
        };
        let ended = PollFlags::IN | PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        if flags.intersects(ended) && has_ended(peer.socket.as_fd()) {
            self.remove_peer(pool, slot);
            self.announce(pool);
        } else if flags.contains(PollFlags::OUT) {
            self.announce(pool);
        }
    }

    fn remove_peer(&mut self, pool: u32, slot: u16) {
        let Some(served) = self.pools.get_mut(&pool) else {
            return;
        };
        let Some(peer) = served.remove_peer(slot) else {
            return;
        };
        // The keeper has it too, so closing it would not end the connection.
        let _ = rustix::net::shutdown(&peer.socket, rustix::net::Shutdown::Both);
        let label = peer_label(&served.stored.name, slot);
        self.tell_keeper(REMOVE, &label, &[]);
    }

    /// Sends all peers of a pool the announcements that they lack. A peer whose connection is broken is
    /// removed.
    pub(super) fn announce(&mut self, pool: u32) {
        while let Some(served) = self.pools.get_mut(&pool) {
            let broken = served.announce();
            if broken.is_empty() {
                return;
            }
            for slot in broken {
                self.remove_peer(pool, slot);
            }
        }
    }
}

/// Whether a connection has ended. Peers never send anything, so one that does has violated the protocol.
fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let flags = rustix::net::RecvFlags::DONTWAIT;
    !matches!(
        rustix::net::recv(socket, &mut [0u8; 16], flags),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR)
    )
}

/// The name of a machine, by its process: QEMU's -name, or else the program and the pid.
fn name_of(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
    let given = words.iter().position(|word| word == "-name");
    if let Some(value) = given.and_then(|at| words.get(at + 1)) {
        let name = value.split(',').next().unwrap_or_default();
        return name.strip_prefix("guest=").unwrap_or(name).into();
    }
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{}[{pid}]", program.trim())
}
