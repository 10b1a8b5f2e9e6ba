//! Which of the domains that are to have a pool exist. Only dom0 knows who exists, and what they are called; in another domain all that
//! are named by id may.

use super::domain::{dead_domains, DOM0};
use super::store::Store;
use super::AT_LEAST;
use crate::error::Result;
use std::collections::BTreeSet;
use std::time::Instant;

/// What is known of the domains.
pub struct Presence {
    own_id: u16,
    to: Vec<String>,
    existing: BTreeSet<u16>,
    /// Those that exist only until somebody looks at what is left of them.
    dead: BTreeSet<u16>,
    /// Whether these are to be looked for, and not before when.
    stale: bool,
    due: Instant,
}

impl Presence {
    /// For a domain whose pool these ids and names are to have.
    pub fn new(own_id: u16, to: Vec<String>) -> Presence {
        Presence {
            own_id,
            to,
            existing: BTreeSet::new(),
            dead: BTreeSet::new(),
            stale: true,
            due: Instant::now(),
        }
    }

    /// Those that are to have the pool, and exist.
    pub fn look(&mut self, store: &mut Store) -> Result<BTreeSet<u16>> {
        let mut meant: BTreeSet<u16> = self.to.iter().filter_map(|to| to.parse().ok()).collect();
        if self.own_id == DOM0 {
            self.existing.clear();
            for id in store.list("/local/domain")? {
                let name = store.read(&format!("/local/domain/{id}/name"))?;
                let Ok(id) = id.parse() else { continue };
                self.existing.insert(id);
                if name.is_some_and(|name| self.to.contains(&name)) {
                    meant.insert(id);
                }
            }
            // One that is resumed is none of the dead any more, of which there is no word.
            self.stale |= store.has_released() || !self.dead.is_disjoint(&meant);
            self.bury();
        }
        meant.retain(|id| *id != self.own_id && self.exists(*id));
        Ok(meant)
    }

    /// As far as this domain knows.
    pub fn exists(&self, id: u16) -> bool {
        self.own_id != DOM0 || self.existing.contains(&id) && !self.dead.contains(&id)
    }

    /// Looks for the dead. What was known stays so if that fails, and it is tried again.
    fn bury(&mut self) {
        if !self.stale || Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + AT_LEAST;
        if let Ok(dead) = dead_domains() {
            self.dead = dead;
            self.stale = false;
        }
    }
}
