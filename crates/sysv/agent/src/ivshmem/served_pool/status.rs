//! The status of a served pool, for the control socket.

use super::ServedPool;
use crate::ivshmem::control::{MemberStatus, PeerStatus, PoolStatus};
use std::fs;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

impl ServedPool {
    /// The status for the control socket.
    pub fn status(&self) -> PoolStatus {
        let path = format!("/proc/self/fd/{}", self.stored.file.as_raw_fd());
        let path = fs::read_link(path).unwrap_or_default();
        let peers = self.peers.iter().map(|(slot, peer)| {
            let entry = self.stored.peer_table.entry(*slot);
            PeerStatus {
                peer: self.peer_id(*slot),
                name: peer.name.clone(),
                pid: entry.pid.load(Relaxed),
                since: entry.since.load(Relaxed),
                behind: peer.behind,
            }
        });
        let mut members = Vec::new();
        self.pool.members(|index, name, alive| {
            let known = self.pool.member_peer(index);
            members.push(MemberStatus {
                member: index,
                name: String::from_utf8_lossy(name).into_owned(),
                alive,
                peer: known.map(|(peer, _)| peer),
                since: known.map(|(_, since)| since).filter(|since| *since != 0),
            });
        });
        PoolStatus {
            name: self.stored.name.clone(),
            path: path.to_string_lossy().trim_end_matches(" (deleted)").into(),
            size: self.pool.mem().len() as u64,
            vectors: self.stored.peer_table.vectors(),
            socket: self.socket.to_string_lossy().into_owned(),
            rung: self.doorbells,
            given_back: self.given_back.load(Relaxed),
            quarantined: self.quarantined(),
            peers: peers.collect(),
            members,
        }
    }
}
