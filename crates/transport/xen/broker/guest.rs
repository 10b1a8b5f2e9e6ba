//! A domain that is given pools: it attaches what is announced to it, and lets go of what no longer is.

use super::announce::Pair;
use super::care::Care;
use super::device::{Device, Ticket};
use super::pause::Pause;
use super::store::Store;
use super::{end_signals, own_id, wait, Tell, AT_LEAST};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_transport::xen::Xen;
use vshmem_transport::{PoolRef, Transport};

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
    /// Bytes of all pools together, at the most.
    most: u64,
    store: Store,
    device: Device,
    attached: BTreeMap<String, Attached>,
    /// What could not be attached is said once.
    said: BTreeSet<String>,
    /// It is tried again later, and less often each time: an owner may announce what costs much to refuse.
    refused: BTreeMap<String, Pause>,
}

const TRY_AGAIN_AT_LAST: Duration = Duration::from_secs(10);

struct Attached {
    ticket: Ticket,
    care: Option<Care>,
}

/// Attaches the pools that a domain gives to this one, as long as they have `most` bytes together: room for what is attached is this
/// kernel's, and the owner says how much there is.
///
/// # Errors
/// There is no Xen or no driver here, or nothing was announced in time.
pub fn join(owner: u16, most: u64, until: Until, tell: Tell) -> Result<()> {
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
        most,
        device: Device::open(id)?,
        store,
        attached: BTreeMap::new(),
        said: BTreeSet::new(),
        refused: BTreeMap::new(),
    };
    guest.store.watch(&guest.pair.announced())?;
    guest.forget_old()?;
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
        guest.attend(tell);
        if wait(&mut guest.store, &end)? {
            return guest.leave(tell);
        }
    }
}

impl Guest {
    /// Makes what is attached agree with what is announced.
    fn look(&mut self, tell: Tell) -> Result<()> {
        self.follow_id(tell)?;
        let announced = self.pair.all(&mut self.store)?;
        let gone = self.attached.iter().filter(|(pool, attached)| {
            !announced
                .iter()
                .any(|(name, now)| name == *pool && now.as_ref() == Some(&attached.ticket))
        });
        for pool in gone.map(|(pool, _)| pool.clone()).collect::<Vec<_>>() {
            self.detach(&pool, tell)?;
        }
        let is_announced = |pool: &String| announced.iter().any(|(name, _)| name == pool);
        self.said.retain(is_announced);
        self.refused.retain(|pool, _| is_announced(pool));
        for (pool, ticket) in announced {
            match ticket {
                Some(ticket) if !self.attached.contains_key(&pool) => {
                    if self.refused.get(&pool).is_none_or(Pause::is_over) {
                        self.attach(&pool, ticket, tell)?;
                    }
                }
                Some(_) => {}
                // An owner's process has just begun to write it, or it is nonsense.
                None => self.say(&pool, "its announcement can't be understood yet", tell),
            }
        }
        Ok(())
    }

    fn attach(&mut self, pool: &str, ticket: Ticket, tell: Tell) -> Result<()> {
        if !self.has_room(ticket.size) {
            let why = format!(
                "all together would be larger than {} MiB; `vshmem xen join --at-most` sets that",
                self.most >> 20
            );
            self.say(pool, &why, tell);
            return Ok(());
        }
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
                self.refused.remove(pool);
                let care = None;
                self.attached.insert(pool.into(), Attached { ticket, care });
            }
            Err(error) => {
                self.say(pool, &error.to_string(), tell);
                let before = self.refused.get(pool).copied();
                let pause = Pause::after(before, AT_LEAST, TRY_AGAIN_AT_LAST);
                self.refused.insert(pool.into(), pause);
            }
        }
        Ok(())
    }

    fn has_room(&self, size: u64) -> bool {
        let sizes = self.attached.values().map(|it| it.ticket.size);
        sizes.fold(size, u64::saturating_add) <= self.most
    }

    fn detach(&mut self, pool: &str, tell: Tell) -> Result<()> {
        self.let_go(pool)?;
        self.pair.unanswer(&mut self.store, pool)?;
        tell(&format!(
            "The pool {pool} was let go, as domain {} has withdrawn it or is gone.",
            self.pair.owner
        ));
        Ok(())
    }

    /// Takes a pool away from this domain's programs, this one first.
    fn let_go(&mut self, pool: &str) -> Result<()> {
        if let Some(care) = self
            .attached
            .remove(pool)
            .and_then(|attached| attached.care)
        {
            leave(care, pool);
        }
        self.device.remove(pool, self.pair.owner)
    }

    /// A domain that is saved loses its pools, and is another one when it is restored.
    fn follow_id(&mut self, tell: Tell) -> Result<()> {
        let id = own_id(&mut self.store)?;
        if id == self.pair.guest {
            return Ok(());
        }
        for pool in self.attached.keys().cloned().collect::<Vec<_>>() {
            self.let_go(&pool)?;
        }
        tell(&format!(
            "This domain was {}, and is {id} now.",
            self.pair.guest
        ));
        self.pair.guest = id;
        self.device = Device::open(id)?;
        self.store.watch(&self.pair.announced())
    }

    /// Lets go of pools that a process before this one has attached, and the owner has withdrawn since.
    fn forget_old(&mut self) -> Result<()> {
        let announced = self.pair.all(&mut self.store)?;
        let mut old = Vec::new();
        let each = &mut |pool: &PoolRef| {
            old.extend(String::from_utf8(pool.name().to_vec()));
            true
        };
        Xen.discover(each)
            .map_err(|e| Error::new(format!("this domain's pools can't be listed: {e}")))?;
        old.retain(|pool| announced.iter().all(|(name, _)| name != pool));
        for pool in old {
            self.device.remove(&pool, self.pair.owner)?;
            // A pool of this domain's own, which it has announced to that one, has the same key.
            if self.pair.is_answered(&mut self.store, &pool)? {
                self.pair.unanswer(&mut self.store, &pool)?;
            }
        }
        Ok(())
    }

    /// Sees to it that somebody cleans up in the pools after processes that died.
    fn attend(&mut self, tell: Tell) {
        self.forget_gone(tell);
        let mut wrong = Vec::new();
        for (pool, attached) in &mut self.attached {
            if attached.care.is_none() {
                match Care::open(pool) {
                    Ok(care) => attached.care = Some(care),
                    Err(error) => wrong.push((pool.clone(), error)),
                }
            }
        }
        for (pool, error) in wrong {
            if self.said.insert(pool.clone()) {
                tell(&format!(
                    "Nobody cleans up in the pool {pool} after processes of this domain: {error}."
                ));
            }
        }
    }

    /// Lets go of pools that the driver does not have any more: the domain was saved, or another process of root's has taken them away.
    /// They are attached again if they are announced.
    fn forget_gone(&mut self, tell: Tell) {
        let gone = self.attached.keys().filter(|pool| !is_there(pool));
        for pool in gone.cloned().collect::<Vec<_>>() {
            if let Some(care) = self.attached.remove(&pool).and_then(|it| it.care) {
                care.forget();
            }
            tell(&format!("The pool {pool} is gone."));
        }
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

    /// Lets go of everything.
    fn leave(&mut self, tell: Tell) -> Result<()> {
        for pool in self.attached.keys().cloned().collect::<Vec<_>>() {
            self.let_go(&pool)?;
            self.pair.unanswer(&mut self.store, &pool)?;
            tell(&format!("The pool {pool} was let go."));
        }
        Ok(())
    }
}

/// Can the pool be used? Its file can't be opened once it was taken away.
fn is_there(pool: &str) -> bool {
    File::open(Path::new("/dev/vshmem-xen").join(pool)).is_ok()
}

fn leave(care: Care, pool: &str) {
    if is_there(pool) {
        care.leave();
    } else {
        care.forget();
    }
}
