//! The owner of a pool, a domain. It grants the pool to its recipients when they appear, announces it to
//! them, and takes it back when they are gone.

use super::announce::Pair;
use super::backoff::Backoff;
use super::device::{Device, GrantInfo};
use super::domain::DOM0;
use super::open;
use super::options::{check_name, CheckLimits, OwnOptions};
use super::presence::Presence;
use super::withdrawal::{withdraw_from_guests, DETACH_TIMEOUT};
use super::xenstore::{XenStore, INTRODUCED, RELEASED};
use super::{end_signals, own_id, wait, Report, POLL_INTERVAL};
use crate::maintained_pool::MaintainedPool;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error, Result};

/// The first back-off for a domain to which the pool could not be given.
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// The longest back-off for such a domain.
const LAST_RETRY: Duration = Duration::from_secs(60);
/// The back-off for such a domain when the pool was taken back from another one. A dead domain's grants are
/// free a second or two later.
const RETRY_AFTER_REVOKE: Duration = Duration::from_secs(2);

struct Owner {
    options: OwnOptions,
    own_id: u16,
    store: XenStore,
    device: Device,
    presence: Presence,
    /// The pool itself, until it is withdrawn.
    joined: Option<MaintainedPool>,
    /// The domains that have it.
    granted: BTreeMap<u16, Granted>,
    /// The domains to which it could not be granted or announced.
    failed: BTreeMap<u16, Failure>,
}

/// A domain to which the pool is granted.
struct Granted {
    /// `None`: the grant was revoked, but the domain still has the pool mapped.
    info: Option<GrantInfo>,
    is_announced: bool,
    is_ready: bool,
    /// The back-off during which changes of its readiness are ignored: it may alternate, or have the pool
    /// from a previous process and be about to say so.
    backoff: Option<Backoff>,
    /// The deadline for giving the pool back; after that the grant is revoked all the same.
    detach_by: Option<Instant>,
}

/// A domain to which the pool could not be given.
struct Failure {
    why: String,
    backoff: Backoff,
}

/// Creates a pool, or takes over one that is there, and serves it until the process is asked to end. Then it
/// is withdrawn.
///
/// # Errors
/// There is no Xen or no driver here, or the pool can't be created, or another process serves it, or `check`
/// refuses the limits that it got.
pub fn own(options: OwnOptions, check: CheckLimits, report: Report) -> Result<()> {
    check_name(&options.pool)?;
    let mut store = XenStore::open()?;
    let id = own_id(&mut store)?;
    check_domains(&options.to, id)?;
    let end = end_signals()?;
    let device = Device::open(id)?;
    let joined = open::create_or_take_over(&options, check, &device, id)?;
    report(&format!("The pool {} is there.", options.pool));
    if id == DOM0 {
        // Other domains are not notified of domains that come and go, so they look once a second.
        store.watch(INTRODUCED)?;
        store.watch(RELEASED)?;
    }
    let mut owner = Owner {
        presence: Presence::new(id, options.to.clone()),
        options,
        own_id: id,
        store,
        device,
        joined: Some(joined),
        granted: BTreeMap::new(),
        failed: BTreeMap::new(),
    };
    owner.take_over()?;
    loop {
        owner.update(report)?;
        if wait(&mut owner.store, &end)? {
            return owner.withdraw(report);
        }
    }
}

/// Checks that recipients can be found: only dom0 knows the names of domains.
fn check_domains(to: &[String], own_id: u16) -> Result<()> {
    let is_id = |to: &String| to.parse::<u16>().is_ok();
    match to.iter().find(|to| own_id != DOM0 && !is_id(to)) {
        None => Ok(()),
        Some(name) => Err(error!(
            "this domain is not told which one is called {name:?}: give ids, which `xl list` in dom0 shows"
        )),
    }
}

impl Owner {
    /// Takes over the grants and announcements of a previous process.
    fn take_over(&mut self) -> Result<()> {
        let granted = self.device.granted(&self.options.pool)?;
        for id in Pair::guests(&mut self.store, self.own_id, &self.options.pool)? {
            if !granted.contains(&id) {
                let (pair, store) = (self.pair(id), &mut self.store);
                self.device.locked(|| pair.withdraw(store, &self.options.pool))?;
            }
        }
        for id in granted {
            let is_ready = self.has_member(id);
            self.grant(id, is_ready)?;
        }
        Ok(())
    }

    /// Gives the pool to recipients that exist, and takes it back from other domains.
    fn update(&mut self, report: Report) -> Result<()> {
        let recipients = self.presence.update(&mut self.store)?;
        let mut all = recipients.clone();
        all.extend(self.granted.keys());
        self.failed.retain(|id, _| all.contains(id));
        for id in all {
            let result = match recipients.contains(&id) && self.cancel_detach(id) {
                true => self.serve(id, report),
                false => self.take_back(id, report),
            };
            // A failure with one domain does not affect the others.
            match result {
                Ok(true) => drop(self.failed.remove(&id)),
                Ok(false) => {}
                Err(why) => self.retry_later(id, &why, report),
            }
        }
        self.declare_others_dead()
    }

    /// Lets a recipient keep the pool that was about to be taken back. False: its grant was revoked, and it
    /// has to detach the pool first.
    fn cancel_detach(&mut self, id: u16) -> bool {
        let Some(granted) = self.granted.get_mut(&id) else {
            return true;
        };
        if granted.info.is_some() && granted.detach_by.take().is_some() {
            granted.is_announced = false;
        }
        granted.info.is_some()
    }

    fn pair(&self, guest: u16) -> Pair {
        Pair { owner: self.own_id, guest }
    }

    /// Gives a domain the pool, unless it has it, and follows its readiness. False: it is too early for a
    /// retry.
    fn serve(&mut self, id: u16, report: Report) -> Result<bool> {
        if !self.granted.get(&id).is_some_and(|it| it.is_announced) {
            if self.failed.get(&id).is_some_and(|it| !it.backoff.is_over()) {
                return Ok(false);
            }
            if !self.granted.contains_key(&id) {
                self.grant(id, false)?;
            }
            self.announce(id, report)?;
        }
        self.check_ready(id, report)?;
        Ok(true)
    }

    fn grant(&mut self, id: u16, is_ready: bool) -> Result<()> {
        let OwnOptions { pool, size, .. } = &self.options;
        let granted = Granted {
            info: Some(self.device.grant(pool, *size, id)?),
            is_announced: false,
            is_ready,
            backoff: is_ready.then(|| Backoff::of(POLL_INTERVAL)),
            detach_by: None,
        };
        self.granted.insert(id, granted);
        Ok(())
    }

    fn announce(&mut self, id: u16, report: Report) -> Result<()> {
        let (pair, pool) = (self.pair(id), &self.options.pool);
        let Some(granted) = self.granted.get_mut(&id) else {
            return Ok(());
        };
        let Some(info) = &granted.info else {
            return Ok(());
        };
        let store = &mut self.store;
        self.device.locked(|| pair.announce(store, pool, info))?;
        store.watch(&pair.attachments())?;
        granted.is_announced = true;
        if !granted.is_ready {
            report(&format!("The pool {pool} is given to domain {id}."));
        }
        Ok(())
    }

    /// Reports a failure once, and has it tried again later: it may be for want of what other domains give
    /// back.
    fn retry_later(&mut self, id: u16, why: &Error, report: Report) {
        let why = why.to_string();
        let last = self.failed.get(&id);
        let backoff = Backoff::after(last.map(|it| it.backoff), FIRST_RETRY, LAST_RETRY);
        if last.is_none_or(|last| last.why != why) {
            report(&format!("{why}. That is tried again."));
        }
        self.failed.insert(id, Failure { why, backoff });
    }

    /// Checks whether a domain has attached the pool. Until then the announcement is repeated: the domain may
    /// have been created only now, and XenStore drops permissions for domains that don't exist.
    fn check_ready(&mut self, id: u16, report: Report) -> Result<()> {
        let (pair, pool) = (self.pair(id), &self.options.pool);
        let is_ready = pair.is_ready(&mut self.store, pool)?;
        let Some(granted) = self.granted.get_mut(&id) else {
            return Ok(());
        };
        if is_ready != granted.is_ready {
            if granted.backoff.is_some_and(|backoff| !backoff.is_over()) {
                return Ok(());
            }
            granted.backoff = Some(Backoff::after(granted.backoff, POLL_INTERVAL, LAST_RETRY));
            granted.is_ready = is_ready;
            let change = if is_ready { "is ready" } else { "has let go" };
            report(&format!("Domain {id} {change}: {pool}."));
            if !is_ready {
                self.declare_dead(id);
            }
        } else if let (false, true, Some(info)) = (is_ready, self.own_id != DOM0, &granted.info) {
            let store = &mut self.store;
            self.device.locked(|| pair.announce(store, pool, info))?;
        }
        Ok(())
    }

    /// Takes the pool back from a domain that is gone, or is no longer to have it. In the latter case the
    /// domain detaches the pool first; until then its programs have it mapped and belong to the pool's
    /// processes, whether or not the grant was revoked. True when the pool is taken back.
    fn take_back(&mut self, id: u16, report: Report) -> Result<bool> {
        let has_member = self.has_member(id);
        let (pair, pool) = (self.pair(id), &self.options.pool);
        let Some(granted) = self.granted.get_mut(&id) else {
            return Ok(true);
        };
        let store = &mut self.store;
        let detach_by = match granted.detach_by {
            Some(deadline) => deadline,
            None => {
                self.device.locked(|| pair.withdraw(store, pool))?;
                *granted.detach_by.insert(Instant::now() + DETACH_TIMEOUT)
            }
        };
        let is_overdue = Instant::now() >= detach_by;
        // A domain that was not ready may be about to say that it is.
        let is_attached = pair.is_ready(store, pool)? || has_member && !granted.is_ready && !is_overdue;
        let has_it = self.presence.exists(id) && is_attached;
        if has_it && (granted.info.is_none() || !is_overdue) {
            return Ok(false);
        }
        if granted.info.take().is_some() {
            self.device.revoke(pool, id)?;
        }
        if has_it {
            report(&format!(
                "Domain {id} does not let go of the pool {pool}: what it has mapped it keeps until it does, or is gone."
            ));
            return Ok(false);
        }
        store.unwatch(&pair.attachments())?;
        report(&format!("The pool {pool} is taken back from domain {id}."));
        self.granted.remove(&id);
        self.declare_dead(id);
        for failure in self.failed.values_mut() {
            failure.backoff = Backoff::of(RETRY_AFTER_REVOKE);
        }
        Ok(true)
    }

    /// Declares a domain dead in the pool, so that no process waits for what the domain's processes hold.
    fn declare_dead(&self, id: u16) {
        let Some(pool) = self.joined.as_ref().map(MaintainedPool::pool) else {
            return;
        };
        pool.members(|member, _, alive| {
            let peer = pool.member_peer(member).map(|(peer, _)| peer);
            if alive && peer == Some(id) {
                pool.declare_dead(member);
            }
        });
    }

    /// Declares members dead that are not granted the pool, in case a previous process did not. Members from
    /// which it took the pool back may still have it attached.
    fn declare_others_dead(&mut self) -> Result<()> {
        for id in self.members() {
            if id == self.own_id || self.granted.contains_key(&id) {
                continue;
            }
            let pair = self.pair(id);
            if self.presence.exists(id) && pair.is_ready(&mut self.store, &self.options.pool)? {
                let granted = Granted {
                    info: None,
                    is_announced: false,
                    is_ready: true,
                    backoff: None,
                    detach_by: Some(Instant::now()),
                };
                self.granted.insert(id, granted);
                self.store.watch(&pair.attachments())?;
            } else {
                self.declare_dead(id);
            }
        }
        Ok(())
    }

    /// The domains that are members of the pool and alive.
    fn members(&self) -> BTreeSet<u16> {
        let mut all = BTreeSet::new();
        if let Some(pool) = self.joined.as_ref().map(MaintainedPool::pool) {
            pool.members(|member, _, alive| {
                all.extend(pool.member_peer(member).filter(|_| alive).map(|it| it.0));
            });
        }
        all
    }

    fn has_member(&self, id: u16) -> bool {
        self.members().contains(&id)
    }

    /// Withdraws the pool from all domains, and removes it.
    fn withdraw(&mut self, report: Report) -> Result<()> {
        let pool = &self.options.pool;
        let withdrawn = withdraw_from_guests(&mut self.store, &self.device, (self.own_id, pool));
        if let Some(joined) = self.joined.take() {
            joined.leave();
        }
        self.device.remove(pool, self.own_id)?;
        withdrawn?;
        report(&format!("The pool {pool} is withdrawn."));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dom0_gives_pools_by_name() {
        let to = ["3".into(), "vm0".into()];
        assert!(check_domains(&to, DOM0).is_ok());
        assert!(check_domains(&to[..1], 2).is_ok());
        let error = check_domains(&to, 2).expect_err("a name").to_string();
        assert!(error.contains("\"vm0\""), "{error}");
    }
}
