//! The presence of a pool's recipients: which of them exist. Only dom0 can list domains and their names. In
//! another domain, all recipients that are given by id may exist.

use super::domain::{dead_domains, DOM0};
use super::xenstore::XenStore;
use super::POLL_INTERVAL;
use std::collections::BTreeSet;
use std::time::Instant;
use vshmem_base::error::Result;

/// The recipients of a pool, and the domains that exist.
pub struct Presence {
    own_id: u16,
    /// The recipients' ids and names.
    to: Vec<String>,
    existing: BTreeSet<u16>,
    /// Domains that have ended but were not destroyed yet.
    dead: BTreeSet<u16>,
    /// `dead` is to be updated, but not before `due`.
    is_stale: bool,
    due: Instant,
}

impl Presence {
    /// The recipients of a pool of domain `own_id`.
    pub fn new(own_id: u16, to: Vec<String>) -> Presence {
        Presence {
            own_id,
            to,
            existing: BTreeSet::new(),
            dead: BTreeSet::new(),
            is_stale: true,
            due: Instant::now(),
        }
    }

    /// The recipients that exist.
    pub fn update(&mut self, store: &mut XenStore) -> Result<BTreeSet<u16>> {
        let mut recipients: BTreeSet<u16> = self.to.iter().filter_map(|to| to.parse().ok()).collect();
        if self.own_id == DOM0 {
            self.existing.clear();
            for id in store.list("/local/domain")? {
                let name = store.read(&format!("/local/domain/{id}/name"))?;
                let Ok(id) = id.parse() else { continue };
                self.existing.insert(id);
                if name.is_some_and(|name| self.to.contains(&name)) {
                    recipients.insert(id);
                }
            }
            // A domain that is resumed is no longer dead, which XenStore does not report.
            self.is_stale |= store.has_released() || !self.dead.is_disjoint(&recipients);
            self.update_dead();
        }
        recipients.retain(|id| *id != self.own_id && self.exists(*id));
        Ok(recipients)
    }

    /// Whether a domain exists, as far as this one knows.
    pub fn exists(&self, id: u16) -> bool {
        self.own_id != DOM0 || self.existing.contains(&id) && !self.dead.contains(&id)
    }

    /// Updates the dead domains. If that fails, it is tried again.
    fn update_dead(&mut self) {
        if !self.is_stale || Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + POLL_INTERVAL;
        if let Ok(dead) = dead_domains() {
            self.dead = dead;
            self.is_stale = false;
        }
    }
}
