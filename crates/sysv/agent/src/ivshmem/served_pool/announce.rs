//! Announcements to peers: each is told of the peers and eventfds that it does not know yet.
//!
//! There are no queues of messages. The peers that are connected, and their eventfds, are compared with those
//! that a peer was told of according to the peer table, and the difference is sent as far as the peer reads.
//! So a peer that never reads costs a fixed amount of memory, and a new back end goes on where the previous
//! one stopped.
//!
//! # When the back end dies
//! The peer table is written after each message. So when a back end dies, there is one message of which it is
//! not known whether it was sent. It counts as sent ([`PeerTable::complete_in_flight`]), because no message
//! may be sent twice: QEMU frees twice what is removed twice, and takes a vector that comes twice for the
//! next one.
//!
//! [`PeerTable::complete_in_flight`]: crate::ivshmem::peer_table::PeerTable::complete_in_flight

use super::{ServedPool, HOST};
use crate::ivshmem::message;
use crate::ivshmem::peer_table::{peer_id, Announced, MAX_PEERS};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

impl ServedPool {
    /// Sends all peers the announcements that they lack. Returns the slots of those whose connection is
    /// broken.
    pub fn announce(&mut self) -> Vec<u16> {
        let slots: Vec<u16> = self.peers.keys().copied().collect();
        slots.into_iter().filter(|slot| !self.announce_to(*slot)).collect()
    }

    /// Sends one peer the announcements that it lacks, as far as it reads. False if the connection is broken.
    fn announce_to(&mut self, recipient: u16) -> bool {
        let result = self.send_difference(recipient);
        let Some(peer) = self.peers.get_mut(&recipient) else {
            return true;
        };
        let is_temporary = |e: &io::Error| {
            // Linux limits how many descriptors of a user are in flight.
            e.kind() == io::ErrorKind::WouldBlock || e.raw_os_error() == Some(libc::ETOOMANYREFS)
        };
        peer.behind = result.as_ref().is_err_and(is_temporary);
        peer.behind || result.is_ok()
    }

    fn send_difference(&self, recipient: u16) -> io::Result<()> {
        self.greet(recipient)?;
        for subject in 0..MAX_PEERS as u16 {
            if subject != recipient {
                self.announce_subject(recipient, subject)?;
            }
        }
        // Its own vectors come last: by then it knows all others.
        self.announce_subject(recipient, recipient)
    }

    fn greet(&self, recipient: u16) -> io::Result<()> {
        let Some(peer) = self.peers.get(&recipient) else {
            return Ok(());
        };
        let greeted = &self.stored.peer_table.entry(recipient).greeted;
        let memory = Some(self.stored.file.as_fd());
        let greeting =
            [(message::VERSION, None), (i64::from(self.peer_id(recipient)), None), (message::MEMORY, memory)];
        for (number, fd) in greeting.into_iter().skip(greeted.load(Relaxed) as usize) {
            let next = greeted.load(Relaxed) + 1;
            let send = || message::send(peer.socket.as_fd(), number, fd);
            self.stored.peer_table.greet(recipient, next, send)?;
        }
        Ok(())
    }

    fn announce_subject(&self, recipient: u16, subject: u16) -> io::Result<()> {
        let table = &self.stored.peer_table;
        let Some(peer) = self.peers.get(&recipient) else {
            return Ok(());
        };
        let generation = table.entry(subject).generation.load(Relaxed);
        let mut announced = table.announced(recipient, subject);
        if announced.generation != generation {
            // That the previous peer in this slot is gone is not announced: QEMU would free its eventfds, and
            // free them again when its own device is unplugged.
            announced.vectors = 0;
        }
        if generation == 0 {
            return Ok(());
        }
        let eventfds = self.eventfds(subject);
        for (vector, eventfd) in eventfds.iter().enumerate().skip(announced.vectors) {
            let after = Announced { generation, vectors: vector + 1 };
            let id = peer_id(generation).into();
            let send = || message::send(peer.socket.as_fd(), id, Some(eventfd.as_fd()));
            table.announce(recipient, subject, after, send)?;
        }
        Ok(())
    }

    fn eventfds(&self, slot: u16) -> &[OwnedFd] {
        match slot {
            HOST => &self.stored.eventfds,
            _ => self.peers.get(&slot).map_or(&[], |peer| &peer.eventfds),
        }
    }
}
