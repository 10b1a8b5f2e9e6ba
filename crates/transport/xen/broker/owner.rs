//! The domain that owns a pool: it grants it to the domains that are to have it when they appear, announces it to them,
//! and takes it back when they are gone.

use super::announce::Pair;
use super::care::Care;
use super::claim;
use super::device::{Device, Ticket};
use super::domain::DOM0;
use super::pause::Pause;
use super::presence::Presence;
use super::store::{Store, INTRODUCED, RELEASED};
use super::withdrawal::{take_away, FAREWELL};
use super::{end_signals, own_id, wait, Tell, AT_LEAST};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use vshmem_pool::Limits;

/// When a domain is tried again that could not be given the pool: at first, and at last.
const TRY_AGAIN: Duration = Duration::from_secs(5);
const TRY_AGAIN_AT_LAST: Duration = Duration::from_secs(60);
/// And when another one has given it back. A dead domain's grants are free a second or two after it is.
const TRY_AGAIN_SOON: Duration = Duration::from_secs(2);

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
    presence: Presence,
    /// The pool itself, until it is withdrawn.
    care: Option<Care>,
    /// Who has it now.
    granted: BTreeMap<u16, Granted>,
    /// Who could not be given it, or told.
    refused: BTreeMap<u16, Refusal>,
}

struct Granted {
    /// None: it was taken back, but the domain has it mapped.
    ticket: Option<Ticket>,
    announced: bool,
    ready: bool,
    /// Until this is over, it is not heard: it may say one thing and another in turn, or have the pool from a process before this one, and be
    /// about to say so.
    pause: Option<Pause>,
    /// It is to have the pool no more. If it has not let go by then, the grant is taken back all the same.
    leaving: Option<Instant>,
}

struct Refusal {
    why: String,
    pause: Pause,
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
    let care = claim::take(&how, fits, &device, id)?;
    tell(&format!("The pool {} is there.", how.pool));
    if id == DOM0 {
        // Other domains are not told who comes and goes, so they look once a second.
        store.watch(INTRODUCED)?;
        store.watch(RELEASED)?;
    }
    let mut owner = Owner {
        presence: Presence::new(id, how.to.clone()),
        how,
        own_id: id,
        store,
        device,
        care: Some(care),
        granted: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    owner.inherit()?;
    loop {
        owner.look(tell)?;
        if wait(&mut owner.store, &end)? {
            return owner.withdraw(tell);
        }
    }
}

/// A name that can be part of a XenStore path. Pools elsewhere may have dots in theirs.
pub(super) fn check_name(pool: &str) -> Result<()> {
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

impl Owner {
    /// Finds out to whom a process before this one has given the pool, and what it has announced.
    fn inherit(&mut self) -> Result<()> {
        let granted = self.device.granted(&self.how.pool)?;
        for id in Pair::told(&mut self.store, self.own_id, &self.how.pool)? {
            if !granted.contains(&id) {
                let (pair, store) = (self.pair(id), &mut self.store);
                self.device
                    .by_turns(|| pair.withdraw(store, &self.how.pool))?;
            }
        }
        for id in granted {
            let ready = self.has_member(id);
            self.grant(id, ready)?;
        }
        Ok(())
    }

    /// Makes who has the pool agree with who is to have it and exists.
    fn look(&mut self, tell: Tell) -> Result<()> {
        let present = self.presence.look(&mut self.store)?;
        let mut all = present.clone();
        all.extend(self.granted.keys());
        self.refused.retain(|id, _| all.contains(id));
        for id in all {
            let done = match present.contains(&id) && self.stays(id) {
                true => self.serve(id, tell),
                false => self.part(id, tell),
            };
            // Others are served all the same.
            match done {
                Ok(true) => drop(self.refused.remove(&id)),
                Ok(false) => {}
                Err(why) => self.refuse(id, &why, tell),
            }
        }
        self.bury_strangers()
    }

    /// One that is to have the pool keeps it if it was about to leave, unless it has lost the grant: then it has to let go first.
    fn stays(&mut self, id: u16) -> bool {
        let Some(granted) = self.granted.get_mut(&id) else {
            return true;
        };
        if granted.ticket.is_some() && granted.leaving.take().is_some() {
            granted.announced = false;
        }
        granted.ticket.is_some()
    }

    fn pair(&self, guest: u16) -> Pair {
        Pair {
            owner: self.own_id,
            guest,
        }
    }

    /// Gives a domain the pool, if it has not got it, and listens what it says. False: it is not its turn yet.
    fn serve(&mut self, id: u16, tell: Tell) -> Result<bool> {
        if !self.granted.get(&id).is_some_and(|it| it.announced) {
            if self.refused.get(&id).is_some_and(|it| !it.pause.is_over()) {
                return Ok(false);
            }
            if !self.granted.contains_key(&id) {
                self.grant(id, false)?;
            }
            self.announce(id, tell)?;
        }
        self.hear(id, tell)?;
        Ok(true)
    }

    fn grant(&mut self, id: u16, ready: bool) -> Result<()> {
        let granted = Granted {
            ticket: Some(self.device.grant(&self.how.pool, self.how.size, id)?),
            announced: false,
            ready,
            pause: ready.then(|| Pause::of(AT_LEAST)),
            leaving: None,
        };
        self.granted.insert(id, granted);
        Ok(())
    }

    fn announce(&mut self, id: u16, tell: Tell) -> Result<()> {
        let (pair, pool) = (self.pair(id), &self.how.pool);
        let Some(granted) = self.granted.get_mut(&id) else {
            return Ok(());
        };
        let Some(ticket) = &granted.ticket else {
            return Ok(());
        };
        let store = &mut self.store;
        self.device
            .by_turns(|| pair.announce(store, pool, ticket))?;
        store.watch(&pair.answered())?;
        granted.announced = true;
        if !granted.ready {
            tell(&format!("The pool {pool} is given to domain {id}."));
        }
        Ok(())
    }

    /// It is said once, and tried again later: it may be for want of what others give back.
    fn refuse(&mut self, id: u16, why: &Error, tell: Tell) {
        let why = why.to_string();
        let before = self.refused.get(&id);
        let pause = Pause::after(before.map(|it| it.pause), TRY_AGAIN, TRY_AGAIN_AT_LAST);
        if before.is_none_or(|before| before.why != why) {
            tell(&format!("{why}. That is tried again."));
        }
        self.refused.insert(id, Refusal { why, pause });
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
            if granted.pause.is_some_and(|pause| !pause.is_over()) {
                return Ok(());
            }
            granted.pause = Some(Pause::after(granted.pause, AT_LEAST, TRY_AGAIN_AT_LAST));
            granted.ready = ready;
            let how = if ready { "is ready" } else { "has let go" };
            tell(&format!("Domain {id} {how}: {pool}."));
            if !ready {
                self.bury(id);
            }
        } else if let (false, true, Some(ticket)) = (ready, self.own_id != DOM0, &granted.ticket) {
            let store = &mut self.store;
            self.device
                .by_turns(|| pair.announce(store, pool, ticket))?;
        }
        Ok(())
    }

    /// Takes the pool back from a domain that is gone, or is to have it no more: then from its programs first, which have it until the
    /// domain lets go of it. Until then they belong to the pool's processes, whatever they are granted. True when that is done.
    fn part(&mut self, id: u16, tell: Tell) -> Result<bool> {
        let has_member = self.has_member(id);
        let (pair, pool) = (self.pair(id), &self.how.pool);
        let Some(granted) = self.granted.get_mut(&id) else {
            return Ok(true);
        };
        let store = &mut self.store;
        let deadline = match granted.leaving {
            Some(deadline) => deadline,
            None => {
                self.device.by_turns(|| pair.withdraw(store, pool))?;
                *granted.leaving.insert(Instant::now() + FAREWELL)
            }
        };
        let overdue = Instant::now() >= deadline;
        // One that was never ready may be about to say that it is.
        let answered = pair.is_answered(store, pool)? || has_member && !granted.ready && !overdue;
        let has_it = self.presence.exists(id) && answered;
        if has_it && (granted.ticket.is_none() || !overdue) {
            return Ok(false);
        }
        if granted.ticket.take().is_some() {
            self.device.revoke(pool, id)?;
        }
        if has_it {
            tell(&format!(
                "Domain {id} does not let go of the pool {pool}: what it has mapped it keeps until it does, or is gone."
            ));
            return Ok(false);
        }
        store.unwatch(&pair.answered())?;
        tell(&format!("The pool {pool} is taken back from domain {id}."));
        self.granted.remove(&id);
        self.bury(id);
        for refusal in self.refused.values_mut() {
            refusal.pause = Pause::of(TRY_AGAIN_SOON);
        }
        Ok(true)
    }

    /// Declares a domain dead in the pool, so that nobody waits for what their processes held: whoever needs it cleans up after them.
    fn bury(&self, id: u16) {
        let Some(pool) = self.care.as_ref().map(Care::pool) else {
            return;
        };
        pool.members(|member, _, alive| {
            let peer = pool.member_peer(member).map(|(peer, _)| peer);
            if alive && peer == Some(id) {
                pool.declare_dead(member);
            }
        });
    }

    /// Those that don't have the pool have died, though a process before this one may not have come to say so. Or it took the pool back
    /// from them, and they have not let go yet.
    fn bury_strangers(&mut self) -> Result<()> {
        for id in self.members() {
            if id == self.own_id || self.granted.contains_key(&id) {
                continue;
            }
            let pair = self.pair(id);
            if self.presence.exists(id) && pair.is_answered(&mut self.store, &self.how.pool)? {
                let granted = Granted {
                    ticket: None,
                    announced: false,
                    ready: true,
                    pause: None,
                    leaving: Some(Instant::now()),
                };
                self.granted.insert(id, granted);
                self.store.watch(&pair.answered())?;
            } else {
                self.bury(id);
            }
        }
        Ok(())
    }

    /// The domains that take part in the pool.
    fn members(&self) -> BTreeSet<u16> {
        let mut all = BTreeSet::new();
        if let Some(pool) = self.care.as_ref().map(Care::pool) {
            pool.members(|member, _, alive| {
                all.extend(pool.member_peer(member).filter(|_| alive).map(|it| it.0));
            });
        }
        all
    }

    fn has_member(&self, id: u16) -> bool {
        self.members().contains(&id)
    }

    /// Withdraws the pool from everybody, and removes it when they have let go, or at least been told.
    fn withdraw(&mut self, tell: Tell) -> Result<()> {
        let pool = &self.how.pool;
        let taken = take_away(&mut self.store, &self.device, (self.own_id, pool));
        if let Some(care) = self.care.take() {
            care.leave();
        }
        self.device.remove(pool, self.own_id)?;
        taken?;
        tell(&format!("The pool {pool} is withdrawn."));
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
