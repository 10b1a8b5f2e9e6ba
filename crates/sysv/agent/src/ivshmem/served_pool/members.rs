//! The member of the pool that each peer is.

use super::ServedPool;
use std::sync::atomic::Ordering::Relaxed;

impl ServedPool {
    /// Binds each peer to the member that it is. A member that has not written its peer id is found by its
    /// name. If several have the name, since the machine was restarted, the newest is alive: the one that no
    /// back end has seen before. (The order of entries says less, since they are used again.) Of entries with
    /// the same identity, which a kernel made at the same time by mistake, the first counts.
    pub(super) fn bind_members(&mut self) {
        let pool = &self.pool;
        for (slot, peer) in &self.peers {
            let id = self.peer_id(*slot);
            let mut found = Vec::new();
            pool.members(|index, name, alive| {
                let known = pool.member_peer(index);
                let is_it = known.is_some_and(|(peer, _)| peer == id)
                    || known.is_none() && name == peer.name.as_bytes();
                if alive && index != self.member && is_it {
                    let is_new = known.is_none_or(|(_, since)| since == 0);
                    found.push((is_new, index, pool.member_identity(index)));
                }
            });
            let Some((is_new, _, identity)) = found.iter().max().copied() else {
                continue;
            };
            let first = found.iter().filter(|found| found.2 == identity).map(|found| found.1).min();
            for (_, index, _) in found.iter().filter(|found| Some(found.1) != first) {
                pool.declare_dead(*index);
            }
            if let Some(first) = first.filter(|_| is_new) {
                let since = self.stored.peer_table.entry(*slot).since.load(Relaxed);
                pool.set_member_peer(first, id, since);
            }
        }
    }
}
