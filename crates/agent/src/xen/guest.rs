//! A domain that is given pools: it attaches what is announced to it, and lets go of what no longer is.

use super::announce::Pair;
use super::device::{Device, Ticket};
use super::store::Store;
use super::{end_signals, own_id, wait, Tell};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long pools are joined.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// Until the process is asked to end; then they are let go.
    Ended,
    /// Until there is at least one, so long at the most. They stay.
    Any(Duration),
}

struct Guest {
    pair: Pair,
    store: Store,
    device: Device,
    attached: BTreeMap<String, Ticket>,
    /// What could not be attached is said once.
    said: BTreeSet<String>,
}

/// Attaches the pools that a domain gives to this one.
///
/// # Errors
/// There is no Xen or no driver here, or nothing was announced in time.
pub fn join(owner: u16, until: Until, tell: Tell) -> Result<()> {
    let mut store = Store::open()?;
    let id = own_id(&mut store)?;
    if id == owner {
        return Err(Error::new(
            "This domain is the owner itself: it has its pools from `vshmem xen own`.",
        ));
    }
    let end = end_signals()?;
    let mut guest = Guest {
        pair: Pair { owner, guest: id },
        device: Device::open(id)?,
        store,
        attached: BTreeMap::new(),
        said: BTreeSet::new(),
    };
    guest.store.watch(&guest.pair.announced())?;
    let begun = Instant::now();
    loop {
        guest.look(tell)?;
        if let Until::Any(limit) = until {
            if !guest.attached.is_empty() {
                return Ok(());
            }
            if begun.elapsed() >= limit {
                return Err(guest.nothing());
            }
        }
        if wait(&mut guest.store, &end)? {
            return guest.leave(tell);
        }
    }
}

impl Guest {
    /// Makes what is attached agree with what is announced.
    fn look(&mut self, tell: Tell) -> Result<()> {
        let announced = self.pair.all(&mut self.store)?;
        let gone = self.attached.iter().filter(|(pool, ticket)| {
            !announced
                .iter()
                .any(|(name, now)| name == *pool && now.as_ref() == Some(ticket))
        });
        for pool in gone.map(|(pool, _)| pool.clone()).collect::<Vec<_>>() {
            self.detach(&pool, tell)?;
        }
        for (pool, ticket) in announced {
            match ticket {
                Some(ticket) if !self.attached.contains_key(&pool) => {
                    self.attach(&pool, ticket, tell)?;
                }
                Some(_) => {}
                // An owner's process has just begun to write it, or it is nonsense.
                None => self.say(&pool, "its announcement can't be understood yet", tell),
            }
        }
        Ok(())
    }

    fn attach(&mut self, pool: &str, ticket: Ticket, tell: Tell) -> Result<()> {
        let owner = self.pair.owner;
        match self.device.attach(pool, owner, &ticket) {
            Ok(new) => {
                self.pair.answer(&mut self.store, pool)?;
                let how = if new {
                    "attached"
                } else {
                    "was attached already"
                };
                tell(&format!("The pool {pool} of domain {owner} {how}."));
                self.said.remove(pool);
                self.attached.insert(pool.into(), ticket);
            }
            Err(error) => self.say(pool, &error.to_string(), tell),
        }
        Ok(())
    }

    fn detach(&mut self, pool: &str, tell: Tell) -> Result<()> {
        self.device.remove(pool)?;
        self.attached.remove(pool);
        self.pair.unanswer(&mut self.store, pool)?;
        tell(&format!(
            "The pool {pool} was let go, as domain {} has withdrawn it or is gone.",
            self.pair.owner
        ));
        Ok(())
    }

    /// Says once why a pool is not attached.
    fn say(&mut self, pool: &str, why: &str, tell: Tell) {
        if self.said.insert(pool.into()) {
            tell(&format!("The pool {pool} is not attached: {why}."));
        }
    }

    fn nothing(&self) -> Error {
        Error::new(format!(
            "Domain {} has given no pool to this one (domain {}): have it run `vshmem xen own POOL --to {}`.",
            self.pair.owner, self.pair.guest, self.pair.guest
        ))
    }

    fn leave(&mut self, tell: Tell) -> Result<()> {
        for pool in self.attached.keys().cloned().collect::<Vec<_>>() {
            self.device.remove(&pool)?;
            self.pair.unanswer(&mut self.store, &pool)?;
            tell(&format!("The pool {pool} was let go."));
        }
        Ok(())
    }
}
