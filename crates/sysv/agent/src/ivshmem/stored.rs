//! The descriptors that the keeper has stored, and their labels.

use crate::ivshmem::fd_store::{Connection, END, FETCH};
use crate::ivshmem::peer_table::PeerTable;
use crate::ivshmem::served_pool::StoredPool;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use vshmem_base::error::{Error, Explain, Result};

/// The keeper's label of the lock.
pub const LOCK: &str = "lock";
/// The keeper's label of the control socket.
pub const CONTROL: &str = "control";
/// The keeper's label of the listening socket for metrics, which the address follows.
pub const METRICS: &str = "metrics/";

/// The keeper's label of a pool.
pub fn pool_label(pool: &str) -> String {
    format!("pool/{pool}/")
}

/// The keeper's label of a peer.
pub fn peer_label(pool: &str, slot: u16) -> String {
    format!("pool/{pool}/peer/{slot}/")
}

/// All descriptors that the keeper has stored, by label.
pub struct StoredFds {
    entries: BTreeMap<String, Vec<OwnedFd>>,
    /// The keeper's pid.
    pub keeper_pid: u32,
}

impl StoredFds {
    /// Fetches them from the keeper.
    pub fn fetch(keeper: &Connection) -> Result<StoredFds> {
        let failed = || "the process that restarts this one does not hand over what it has".to_string();
        keeper.send(FETCH, "", &[]).explain(failed)?;
        let mut entries = BTreeMap::new();
        loop {
            match keeper.receive().explain(failed)? {
                Some((END, label, _)) => {
                    return Ok(StoredFds { entries, keeper_pid: label.parse().unwrap_or(0) });
                }
                Some((_, label, fds)) => drop(entries.insert(label, fds)),
                None => return Err(Error::new(failed())),
            }
        }
    }

    /// Takes the descriptors with a label.
    pub fn take(&mut self, label: &str) -> Vec<OwnedFd> {
        self.entries.remove(label).unwrap_or_default()
    }

    /// Takes the endpoint for metrics: its address and its socket.
    pub fn endpoint(&mut self) -> Option<(String, OwnedFd)> {
        let mut labels = self.entries.keys();
        let label = labels.find(|label| label.starts_with(METRICS))?.clone();
        let listener = self.take(&label).pop()?;
        Some((label[METRICS.len()..].into(), listener))
    }

    /// The names of the pools.
    pub fn pools(&self) -> Vec<String> {
        let names = self.entries.keys().filter_map(|label| {
            let name = label.strip_prefix("pool/")?.strip_suffix('/')?;
            (!name.contains('/')).then(|| name.to_string())
        });
        names.collect()
    }

    /// Takes the peers of a pool: their slots and descriptors.
    pub fn peers(&mut self, pool: &str) -> Vec<(u16, Vec<OwnedFd>)> {
        let prefix = format!("pool/{pool}/peer/");
        let labels: Vec<String> =
            self.entries.keys().filter(|label| label.starts_with(&prefix)).cloned().collect();
        let peer = |label: String| {
            let slot = label[prefix.len()..].trim_end_matches('/').parse().ok()?;
            Some((slot, self.take(&label)))
        };
        labels.into_iter().filter_map(peer).collect()
    }
}

impl StoredPool {
    /// The pool that has these descriptors.
    pub fn of(name: &str, fds: Vec<OwnedFd>) -> Result<StoredPool> {
        let missing = || Error::new("some of its descriptors are missing");
        let mut fds = fds.into_iter();
        let (file, listener) = (fds.next().ok_or_else(missing)?, fds.next().ok_or_else(missing)?);
        let peer_table = PeerTable::open(fds.next().ok_or_else(missing)?)
            .explain(|| "its peer table can't be read".into())?;
        let eventfds: Vec<OwnedFd> = fds.collect();
        if eventfds.len() != peer_table.vectors() {
            return Err(missing());
        }
        Ok(StoredPool { name: name.into(), file, listener, peer_table, eventfds })
    }
}
