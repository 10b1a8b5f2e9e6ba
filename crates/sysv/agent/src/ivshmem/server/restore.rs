//! The restoration of a previous back end's pools and peers.

use super::Server;
use crate::ivshmem::fd_store::REMOVE;
use crate::ivshmem::served_pool::{ServedPool, StoredPool};
use crate::ivshmem::stored::{peer_label, pool_label, StoredFds};
use std::fs;

impl Server<'_> {
    /// Restores the pools and peers of a previous back end.
    pub(super) fn restore(&mut self, mut stored: StoredFds) {
        self.drop_excluded(&mut stored);
        for name in stored.pools() {
            let restored = StoredPool::of(&name, stored.take(&pool_label(&name)))
                .and_then(|pool| ServedPool::open(pool, self.program.directory.pool(&name)));
            let mut served = match restored {
                Ok(served) => served,
                Err(error) => {
                    self.log(&format!("the pool {name} is lost: {error}"));
                    self.tell_keeper(REMOVE, &pool_label(&name), &[]);
                    continue;
                }
            };
            for (slot, mut fds) in stored.peers(&name) {
                if fds.is_empty() {
                    continue;
                }
                let eventfds = fds.split_off(1);
                let socket = fds.remove(0);
                let copy = socket.try_clone();
                if !served.restore_peer(slot, socket, eventfds) {
                    // It was not entered yet, or was removed already.
                    if let Ok(socket) = copy {
                        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
                    }
                    self.tell_keeper(REMOVE, &peer_label(&name, slot), &[]);
                }
            }
            served.finish_restore();
            let pool = self.add(served);
            self.announce(pool);
        }
    }

    /// Drops the pools that are excluded, without opening them.
    fn drop_excluded(&mut self, stored: &mut StoredFds) {
        let list = self.program.directory.excluded();
        let text = fs::read_to_string(&list).unwrap_or_default();
        let served = stored.pools();
        for name in text.lines().filter(|name| served.iter().any(|it| it == name)) {
            for (_, fds) in stored.peers(name) {
                // The keeper has it too, so closing it would not end the connection.
                let socket = fds.first();
                let _ = socket.map(|it| rustix::net::shutdown(it, rustix::net::Shutdown::Both));
            }
            let label = pool_label(name);
            self.tell_keeper(REMOVE, &label, &[]);
            stored.take(&label);
            let _ = fs::remove_file(self.program.directory.pool(name));
            self.log(&format!("restarted without the pool {name}, as requested: it is served no longer"));
        }
        let _ = fs::remove_file(list);
    }
}
