//! A guest: a domain that attaches the pools that are announced to it, and detaches those that no longer are.

use super::announce::Pair;
use super::backoff::Backoff;
use super::device::{Device, GrantInfo};
use super::open::join_attached;
use super::xenstore::XenStore;
use super::{end_signals, own_id, wait, Report, POLL_INTERVAL};
use crate::maintained_pool::MaintainedPool;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error, Result};
use vshmem_transport::xen::Xen;
use vshmem_transport::{PoolRef, Transport};

/// The time until which [`join`] serves pools.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// The time at which the process is asked to end. Then the pools are detached.
    Ended,
    /// The time at which there is a pool, or this much time has passed. Pools stay attached.
    Any(Duration),
}

struct Guest {
    pair: Pair,
    /// Most bytes of all pools together.
    max_bytes: u64,
    store: XenStore,
    device: Device,
    attached: BTreeMap<String, Attached>,
    /// Pools whose failure was reported, which is done once.
    reported: BTreeSet<String>,
    /// Pools that the driver refused. They are tried again ever less often: an owner may announce pools that
    /// cost much to refuse.
    refused: BTreeMap<String, Backoff>,
}

const LAST_RETRY: Duration = Duration::from_secs(10);

struct Attached {
    info: GrantInfo,
    joined: Option<MaintainedPool>,
}

/// Attaches the pools that a domain gives to this one, up to `max_bytes` together: mapping them takes pages
/// of this kernel, and the owner decides on their sizes.
///
/// # Errors
/// There is no Xen or no driver here, or no pool was announced in time.
pub fn join(owner: u16, max_bytes: u64, until: Until, report: Report) -> Result<()> {
    let mut store = XenStore::open()?;
    let id = own_id(&mut store)?;
    if id == owner {
        return Err(Error::new("This domain is the owner itself: it has its pools from `vshmem xen own`."));
    }
    let end = end_signals()?;
    let mut guest = Guest {
        pair: Pair { owner, guest: id },
        max_bytes,
        device: Device::open(id)?,
        store,
        attached: BTreeMap::new(),
        reported: BTreeSet::new(),
        refused: BTreeMap::new(),
    };
    guest.store.watch(&guest.pair.announcements())?;
    guest.detach_stale()?;
    let begun = Instant::now();
    loop {
        guest.update(report)?;
        if let Until::Any(limit) = until {
            if !guest.attached.is_empty() {
                return Ok(());
            }
            if begun.elapsed() >= limit {
                return Err(guest.no_pool());
            }
        }
        guest.join_attached(report);
        if wait(&mut guest.store, &end)? {
            return guest.detach_all(report);
        }
    }
}

impl Guest {
    /// Attaches pools that are announced, and detaches those that no longer are.
    fn update(&mut self, report: Report) -> Result<()> {
        self.follow_id(report)?;
        let announced = self.pair.all(&mut self.store)?;
        let gone = self.attached.iter().filter(|(pool, attached)| {
            !announced.iter().any(|(name, now)| name == *pool && now.as_ref() == Some(&attached.info))
        });
        for pool in gone.map(|(pool, _)| pool.clone()).collect::<Vec<_>>() {
            self.detach_withdrawn(&pool, report)?;
        }
        let is_announced = |pool: &String| announced.iter().any(|(name, _)| name == pool);
        self.reported.retain(is_announced);
        self.refused.retain(|pool, _| is_announced(pool));
        for (pool, info) in announced {
            match info {
                Some(info) if !self.attached.contains_key(&pool) => {
                    if self.refused.get(&pool).is_none_or(Backoff::is_over) {
                        self.attach(&pool, info, report)?;
                    }
                }
                Some(_) => {}
                // The owner is about to write it, or it is invalid.
                None => self.report_once(&pool, "its announcement can't be understood yet", report),
            }
        }
        Ok(())
    }

    fn attach(&mut self, pool: &str, info: GrantInfo, report: Report) -> Result<()> {
        if !self.is_within_limit(info.size) {
            let why = format!(
                "all together would be larger than {} MiB; `vshmem xen join --at-most` sets that",
                self.max_bytes >> 20
            );
            self.report_once(pool, &why, report);
            return Ok(());
        }
        let owner = self.pair.owner;
        match self.device.attach(pool, owner, &info) {
            Ok(is_new) => {
                self.pair.set_ready(&mut self.store, pool)?;
                let state = if is_new { "attached" } else { "was attached already" };
                report(&format!("The pool {pool} of domain {owner} {state}."));
                self.reported.remove(pool);
                self.refused.remove(pool);
                let joined = None;
                self.attached.insert(pool.into(), Attached { info, joined });
            }
            Err(error) => {
                self.report_once(pool, &error.to_string(), report);
                let last = self.refused.get(pool).copied();
                let backoff = Backoff::after(last, POLL_INTERVAL, LAST_RETRY);
                self.refused.insert(pool.into(), backoff);
            }
        }
        Ok(())
    }

    fn is_within_limit(&self, size: u64) -> bool {
        let sizes = self.attached.values().map(|it| it.info.size);
        sizes.fold(size, u64::saturating_add) <= self.max_bytes
    }

    fn detach_withdrawn(&mut self, pool: &str, report: Report) -> Result<()> {
        self.detach(pool)?;
        self.pair.clear_ready(&mut self.store, pool)?;
        report(&format!(
            "The pool {pool} was let go, as domain {} has withdrawn it or is gone.",
            self.pair.owner
        ));
        Ok(())
    }

    /// Takes a pool away from this domain's programs, this one first.
    fn detach(&mut self, pool: &str) -> Result<()> {
        if let Some(joined) = self.attached.remove(pool).and_then(|it| it.joined) {
            match can_open(pool) {
                true => joined.leave(),
                false => joined.abandon(),
            }
        }
        self.device.remove(pool, self.pair.owner)
    }

    /// Follows a change of this domain's id: a domain that is saved loses its pools, and has another id when
    /// it is restored.
    fn follow_id(&mut self, report: Report) -> Result<()> {
        let id = own_id(&mut self.store)?;
        if id == self.pair.guest {
            return Ok(());
        }
        for pool in self.attached.keys().cloned().collect::<Vec<_>>() {
            self.detach(&pool)?;
        }
        report(&format!("This domain was {}, and is {id} now.", self.pair.guest));
        self.pair.guest = id;
        self.device = Device::open(id)?;
        self.store.watch(&self.pair.announcements())
    }

    /// Detaches pools that a previous process has attached, and the owner has withdrawn since.
    fn detach_stale(&mut self) -> Result<()> {
        let announced = self.pair.all(&mut self.store)?;
        let mut stale = Vec::new();
        let each = &mut |pool: &PoolRef| {
            stale.extend(String::from_utf8(pool.name().to_vec()));
            true
        };
        Xen.discover(each).map_err(|e| error!("this domain's pools can't be listed: {e}"))?;
        stale.retain(|pool| announced.iter().all(|(name, _)| name != pool));
        for pool in stale {
            self.device.remove(&pool, self.pair.owner)?;
            // An announcement of this domain's own pool to that domain has the same key.
            if self.pair.is_ready(&mut self.store, &pool)? {
                self.pair.clear_ready(&mut self.store, &pool)?;
            }
        }
        Ok(())
    }

    /// Joins attached pools, so that this process cleans up in them after processes that died.
    fn join_attached(&mut self, report: Report) {
        self.drop_vanished(report);
        let mut failed = Vec::new();
        for (pool, attached) in &mut self.attached {
            if attached.joined.is_none() {
                match join_attached(pool) {
                    Ok(joined) => attached.joined = Some(joined),
                    Err(error) => failed.push((pool.clone(), error)),
                }
            }
        }
        for (pool, error) in failed {
            if self.reported.insert(pool.clone()) {
                report(&format!(
                    "Nobody cleans up in the pool {pool} after processes of this domain: {error}."
                ));
            }
        }
    }

    /// Drops pools that the driver does not have any more: the domain was saved, or another process of root
    /// has removed them. They are attached again if they are announced.
    fn drop_vanished(&mut self, report: Report) {
        let gone = self.attached.keys().filter(|pool| !can_open(pool));
        for pool in gone.cloned().collect::<Vec<_>>() {
            if let Some(joined) = self.attached.remove(&pool).and_then(|it| it.joined) {
                joined.abandon();
            }
            report(&format!("The pool {pool} is gone."));
        }
    }

    /// Reports once why a pool is not attached.
    fn report_once(&mut self, pool: &str, why: &str, report: Report) {
        if self.reported.insert(pool.into()) {
            report(&format!("The pool {pool} is not attached: {why}."));
        }
    }

    fn no_pool(&self) -> Error {
        error!(
            "Domain {} has given no pool to this one (domain {}): have it run `vshmem xen own POOL --to {}`.",
            self.pair.owner, self.pair.guest, self.pair.guest
        )
    }

    /// Detaches all pools.
    fn detach_all(&mut self, report: Report) -> Result<()> {
        for pool in self.attached.keys().cloned().collect::<Vec<_>>() {
            self.detach(&pool)?;
            self.pair.clear_ready(&mut self.store, &pool)?;
            report(&format!("The pool {pool} was let go."));
        }
        Ok(())
    }
}

/// Whether a pool's file can be opened, which it can't be after the driver has lost the pool.
fn can_open(pool: &str) -> bool {
    File::open(Path::new("/dev/vshmem-xen").join(pool)).is_ok()
}
