//! The domain that owns a pool: it grants it to the domains that are to have it when they appear, announces it to them,
//! and takes it back when they are gone.

use super::announce::Pair;
use super::care::Care;
use super::claim::{self, Claim, Taken};
use super::device::{Device, Ticket};
use super::domain::{dead_domains, DOM0};
use super::store::{Store, INTRODUCED, RELEASED};
use super::{end_signals, own_id, wait, Tell, AT_LEAST};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use vshmem_ipc::census::Census;
use vshmem_pool::Limits;

/// How long guests are given to let go of a pool that is withdrawn.
const FAREWELL: Duration = Duration::from_secs(5);
/// When a domain is tried again that could not be given the pool.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Messages of 64 KiB fit, with a little to spare.
const LONGEST_MESSAGE: u32 = 65536 + 4096;

/// As in the pools of other machines: Linux's limits, except that a queue holds a few messages of 64 KiB.
pub fn usual_limits() -> Limits {
    Limits {
        msgmax: LONGEST_MESSAGE,
        msgmnb: 4 * LONGEST_MESSAGE,
        ..Limits::default()
    }
}

/// A pool, and who is to have it.
#[derive(Debug, Clone)]
pub struct Own {
    /// The pool's name.
    pub pool: String,
    /// Its size in bytes.
    pub size: u64,
    /// The domains that are to have it: ids, or in dom0 names. They need not exist yet.
    pub to: Vec<String>,
    /// Its System V limits, if it is made.
    pub limits: Limits,
}

/// Says so if a pool with these limits does not allow what was asked for.
pub type Fits<'a> = &'a dyn Fn(Limits) -> std::result::Result<(), String>;

struct Owner {
    how: Own,
    own_id: u16,
    store: Store,
    device: Device,
    /// The pool itself, until it is withdrawn.
    care: Option<Care>,
    census: Census,
    /// Who has it now.
    granted: BTreeMap<u16, Granted>,
    /// Who could not be given it: why, and when that is tried again.
    refused: BTreeMap<u16, (String, Instant)>,
    /// Who exists only for dom0 to look at what is left.
    dead: BTreeSet<u16>,
}

struct Granted {
    ticket: Ticket,
    ready: bool,
    /// It is not taken for silent before: it has the pool from a process before this one, and may be about to say so.
    patience: Instant,
}

/// Makes a pool, or takes over one that is there, and serves it until the process is asked to end. Then it is withdrawn.
///
/// # Errors
/// There is no Xen or no driver here, or the pool can't be made, or another process serves it, or `fits` refuses the limits that it got.
pub fn own(how: Own, fits: Fits, tell: Tell) -> Result<()> {
    check_name(&how.pool)?;
    let mut store = Store::open()?;
    let id = own_id(&mut store)?;
    check_domains(&how.to, id)?;
    let end = end_signals()?;
    let device = Device::open(id)?;
    let (_claim, care) = claim::take(&how, fits, &device, id)?;
    tell(&format!("The pool {} is there.", how.pool));
    if id == DOM0 {
        // Other domains are not told who comes and goes, so they look once a second.
        store.watch(INTRODUCED)?;
        store.watch(RELEASED)?;
    }
    let mut owner = Owner {
        how,
        own_id: id,
        store,
        device,
        care: Some(care),
        census: Census::default(),
        granted: BTreeMap::new(),
        refused: BTreeMap::new(),
        dead: dead_domains(id),
    };
    owner.inherit()?;
    loop {
        owner.look(tell)?;
        if let Some(care) = &mut owner.care {
            care.tick(Some(&mut owner.census));
        }
        if wait(&mut owner.store, &end)? {
            return owner.withdraw(tell);
        }
    }
}

/// A name that can be part of a XenStore path. Pools elsewhere may have dots in theirs.
fn check_name(pool: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match pool.chars().all(fine) {
        true => Ok(()),
        false => Err(Error::new(format!(
            "{pool:?} is no name for a pool that XenStore announces: use letters, digits, dashes and underscores"
        ))),
    }
}

/// Only dom0 knows what domains are called.
fn check_domains(to: &[String], own_id: u16) -> Result<()> {
    let is_id = |to: &String| to.parse::<u16>().is_ok();
    match to.iter().find(|to| own_id != DOM0 && !is_id(to)) {
        None => Ok(()),
        Some(name) => Err(Error::new(format!(
            "this domain is not told which one is called {name:?}: give ids, which `xl list` in dom0 shows"
        ))),
    }
}

/// What `withdraw` has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// A pool that nobody served; it is gone.
    Removed,
    /// A pool that another process serves, and which stays.
    Served,
    /// No such pool.
    Nothing,
}

/// Takes a pool of this domain's away from everybody, if the process was killed that served it.
///
/// # Errors
/// There is no driver here, or it refuses.
pub fn withdraw(pool: &str) -> Result<Left> {
    let mut store = Store::open()?;
    let id = own_id(&mut store)?;
    let device = Device::open(id)?;
    let _claim = match Claim::of(pool)? {
        Taken::Ours(claim) => claim,
        Taken::Served => return Ok(Left::Served),
        Taken::NoPool => return Ok(Left::Nothing),
    };
    let told = Pair::told(&mut store, id, pool)?;
    take_away(&mut store, &device, (id, pool), &told)?;
    device.remove(pool, id)?;
    Ok(Left::Removed)
}

/// Withdraws a pool from these domains, and gives them a while to let go of it.
fn take_away(
    store: &mut Store,
    device: &Device,
    (owner, pool): (u16, &str),
    guests: &[u16],
) -> Result<()> {
    let pair = |guest| Pair { owner, guest };
    for &guest in guests {
        device.by_turns(|| pair(guest).withdraw(store, pool))?;
    }
    let begun = Instant::now();
    for &guest in guests {
        while begun.elapsed() < FAREWELL && pair(guest).is_answered(store, pool)? {
            std::thread::sleep(Duration::from_millis(50));
        }
        device.revoke(pool, guest)?;
    }
    Ok(())
}

impl Owner {
    /// Finds out to whom a process before this one has given the pool, and what it has announced.
    fn inherit(&mut self) -> Result<()> {
        let pool = &self.how.pool;
        let granted = self.device.granted(pool)?;
        for id in Pair::told(&mut self.store, self.own_id, pool)? {
            if !granted.contains(&id) {
                let pair = self.pair(id);
                self.device
                    .by_turns(|| pair.withdraw(&mut self.store, pool))?;
            }
        }
        for id in granted {
            let ticket = self.device.grant(&self.how.pool, self.how.size, id)?;
            self.announce(id, ticket, self.has_member(id))?;
        }
        Ok(())
    }

    /// Makes who has the pool agree with who is to have it and exists.
    fn look(&mut self, tell: Tell) -> Result<()> {
        // One that was resumed is none of them any more, of which there is no word.
        if self.store.has_released() || !self.dead.is_empty() {
            self.dead = dead_domains(self.own_id);
        }
        let present = self.present()?;
        let gone = self.granted.keys().filter(|id| !present.contains(id));
        for id in gone.copied().collect::<Vec<_>>() {
            self.take_back(id, tell)?;
        }
        self.refused.retain(|id, _| present.contains(id));
        for id in present {
            match self.serve(id, tell) {
                Ok(()) => {}
                Err(why) => self.refuse(id, &why, tell),
            }
        }
        self.bury_strangers();
        Ok(())
    }

    /// The domains that are to have the pool and exist. Only dom0 knows who exists and how they are called.
    fn present(&mut self) -> Result<Vec<u16>> {
        let mut present = Vec::new();
        if self.own_id != DOM0 {
            present.extend(self.how.to.iter().filter_map(|to| to.parse::<u16>().ok()));
        } else {
            for id in self.store.list("/local/domain")? {
                let name = self.store.read(&format!("/local/domain/{id}/name"))?;
                let is_meant = self.how.to.contains(&id)
                    || name.is_some_and(|name| self.how.to.contains(&name));
                present.extend(id.parse::<u16>().ok().filter(|_| is_meant));
            }
        }
        present.retain(|id| *id != self.own_id && !self.dead.contains(id));
        Ok(present)
    }

    fn pair(&self, guest: u16) -> Pair {
        Pair {
            owner: self.own_id,
            guest,
        }
    }

    fn serve(&mut self, id: u16, tell: Tell) -> Result<()> {
        let is_due = |(_, due): &(String, Instant)| Instant::now() >= *due;
        if !self.granted.contains_key(&id) {
            if !self.refused.get(&id).is_none_or(is_due) {
                return Ok(());
            }
            let ticket = self.device.grant(&self.how.pool, self.how.size, id)?;
            if let Err(error) = self.announce(id, ticket, false) {
                self.device.revoke(&self.how.pool, id)?;
                return Err(error);
            }
            self.refused.remove(&id);
            tell(&format!(
                "The pool {} is given to domain {id}.",
                self.how.pool
            ));
        }
        self.hear(id, tell)
    }

    /// Others are served all the same. It is said once, and tried again later: it may be for want of what others give back.
    fn refuse(&mut self, id: u16, why: &Error, tell: Tell) {
        let (why, due) = (why.to_string(), Instant::now() + TRY_AGAIN);
        let before = self.refused.insert(id, (why.clone(), due));
        if before.is_none_or(|(before, _)| before != why) {
            let every = TRY_AGAIN.as_secs();
            tell(&format!("{why}. That is tried again every {every} s."));
        }
    }

    fn announce(&mut self, id: u16, ticket: Ticket, ready: bool) -> Result<()> {
        let (pair, pool, store) = (self.pair(id), &self.how.pool, &mut self.store);
        self.device
            .by_turns(|| pair.announce(store, pool, &ticket))?;
        store.watch(&pair.answered())?;
        let patience = Instant::now() + AT_LEAST;
        let granted = Granted {
            ticket,
            ready,
            patience,
        };
        self.granted.insert(id, granted);
        Ok(())
    }

    /// Listens whether a domain is ready. As long as it is not, it is told again: it may have been made only now, and XenStore
    /// forgets permissions for domains that don't exist.
    fn hear(&mut self, id: u16, tell: Tell) -> Result<()> {
        let (pair, pool) = (self.pair(id), &self.how.pool);
        let ready = pair.is_answered(&mut self.store, pool)?;
        let Some(granted) = self.granted.get_mut(&id) else {
            return Ok(());
        };
        if ready != granted.ready {
            if !ready && Instant::now() < granted.patience {
                return Ok(());
            }
            granted.ready = ready;
            let how = if ready { "is ready" } else { "has let go" };
            tell(&format!("Domain {id} {how}: {pool}."));
            if !ready {
                self.bury(&|peer| peer == id);
            }
        } else if !ready && self.own_id != DOM0 {
            let (ticket, store) = (&granted.ticket, &mut self.store);
            self.device
                .by_turns(|| pair.announce(store, pool, ticket))?;
        }
        Ok(())
    }

    fn take_back(&mut self, id: u16, tell: Tell) -> Result<()> {
        let (pair, pool, store) = (self.pair(id), &self.how.pool, &mut self.store);
        self.device.by_turns(|| pair.withdraw(store, pool))?;
        store.unwatch(&pair.answered())?;
        self.device.revoke(pool, id)?;
        self.granted.remove(&id);
        tell(&format!("The pool {pool} is taken back from domain {id}."));
        self.bury(&|peer| peer == id);
        Ok(())
    }

    /// Declares domains dead in the pool, so that nobody waits for what their processes held: whoever needs it cleans up after them.
    fn bury(&self, is_dead: &dyn Fn(u16) -> bool) {
        let Some(pool) = self.care.as_ref().map(Care::pool) else {
            return;
        };
        pool.members(|member, _, alive| {
            let peer = pool.member_peer(member).map(|(peer, _)| peer);
            if alive && peer.is_some_and(is_dead) {
                pool.bury_member(member);
            }
        });
    }

    /// Those that don't have the pool have died, though a process before this one may not have come to say so.
    fn bury_strangers(&self) {
        self.bury(&|peer| peer != self.own_id && !self.granted.contains_key(&peer));
    }

    /// Whether a domain takes part in the pool.
    fn has_member(&self, id: u16) -> bool {
        let mut has = false;
        if let Some(pool) = self.care.as_ref().map(Care::pool) {
            pool.members(|member, _, alive| {
                has |= alive && pool.member_peer(member).is_some_and(|(peer, _)| peer == id);
            });
        }
        has
    }

    /// Withdraws the pool from everybody, and removes it when they have let go, or at least been told.
    fn withdraw(&mut self, tell: Tell) -> Result<()> {
        let all: Vec<u16> = self.granted.keys().copied().collect();
        let which = (self.own_id, self.how.pool.as_str());
        take_away(&mut self.store, &self.device, which, &all)?;
        if let Some(care) = self.care.take() {
            care.leave();
        }
        self.device.remove(&self.how.pool, self.own_id)?;
        tell(&format!("The pool {} is withdrawn.", self.how.pool));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_xenstore_takes() {
        assert!(check_name("cluster-default_2").is_ok());
        for bad in ["a.b", "a/b", "a b"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_dom0_gives_pools_by_name() {
        let to = ["3".into(), "vm0".into()];
        assert!(check_domains(&to, DOM0).is_ok());
        assert!(check_domains(&to[..1], 2).is_ok());
        let error = check_domains(&to, 2).expect_err("a name").to_string();
        assert!(error.contains("\"vm0\""), "{error}");
    }
}
