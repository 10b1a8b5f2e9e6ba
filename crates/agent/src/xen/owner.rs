//! The domain that owns a pool: it grants it to the domains that are to have it when they appear, announces it to them,
//! and takes it back when they are gone.

use super::announce::Pair;
use super::care::Care;
use super::device::{Device, Ticket};
use super::store::Store;
use super::{end_signals, own_id, wait, Tell};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vshmem_ipc::census::Census;
use vshmem_pool::{Limits, Params, Pool};

/// How long guests are given to let go of a pool that is withdrawn.
const FAREWELL: Duration = Duration::from_secs(5);

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
}

struct Granted {
    ticket: Ticket,
    ready: bool,
}

/// Makes a pool, or takes over one that is there, and serves it until the process is asked to end. Then it is withdrawn.
///
/// # Errors
/// There is no Xen or no driver here, or the pool can't be made or granted, or `fits` refuses the limits that it got.
pub fn own(how: Own, fits: Fits, tell: Tell) -> Result<()> {
    check_name(&how.pool)?;
    let mut store = Store::open()?;
    let id = own_id(&mut store)?;
    let end = end_signals()?;
    let device = Device::open(id)?;
    let new = device.create(&how.pool, how.size)?;
    let opened = open(&how, fits);
    if opened.is_err() && new {
        device.remove(&how.pool, id)?;
    }
    let care = opened?;
    tell(&format!("The pool {} is there.", how.pool));
    if id == 0 {
        // Other domains are not told who comes and goes, so they look once a second.
        store.watch("@introduceDomain")?;
        store.watch("@releaseDomain")?;
    }
    let mut owner = Owner {
        how,
        own_id: id,
        store,
        device,
        care: Some(care),
        census: Census::default(),
        granted: BTreeMap::new(),
    };
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

/// Takes a pool of this domain's away from everybody, whose owning process was killed.
///
/// # Errors
/// There is no driver here, or it refuses.
pub fn withdraw(pool: &str) -> Result<()> {
    let id = own_id(&mut Store::open()?)?;
    Device::open(id)?.remove(pool, id)
}

/// Opens the pool. Makes an empty one of the memory, unless it holds one: a process before this one has made it.
fn open(how: &Own, fits: Fits) -> Result<Care> {
    let name = &how.pool;
    let reference = vshmem_port::resolve(name.as_bytes()).explain_pool(name)?;
    let handle = vshmem_port::open(&reference).explain_pool(name)?;
    let memory = handle.mem();
    if memory.len() as u64 != how.size {
        return Err(Error::new(format!(
            "there is a pool {name} of {} bytes already: give that size, or end whoever serves it",
            memory.len()
        )));
    }
    if Pool::open(memory).is_err() {
        let limits = how.limits;
        Pool::format(memory, &Params { limits }).explain_pool(name)?;
        let made = Pool::open(memory).explain_pool(name)?;
        fits(*made.limits()).explain_pool(name)?;
    }
    Care::of(handle, name)
}

impl Owner {
    /// Makes who has the pool agree with who is to have it and exists.
    fn look(&mut self, tell: Tell) -> Result<()> {
        let present = self.present()?;
        let gone = self.granted.keys().filter(|id| !present.contains(id));
        for id in gone.copied().collect::<Vec<_>>() {
            self.take_back(id, tell)?;
        }
        for id in present {
            if !self.granted.contains_key(&id) {
                self.give(id, tell)?;
            }
            self.hear(id, tell)?;
        }
        Ok(())
    }

    /// The domains that are to have the pool and exist. Only dom0 knows who exists and how they are called.
    fn present(&mut self) -> Result<Vec<u16>> {
        let mut present = Vec::new();
        if self.own_id != 0 {
            present.extend(self.how.to.iter().filter_map(|to| to.parse::<u16>().ok()));
        } else {
            for id in self.store.list("/local/domain")? {
                let name = self.store.read(&format!("/local/domain/{id}/name"))?;
                let is_meant = self.how.to.contains(&id)
                    || name.is_some_and(|name| self.how.to.contains(&name));
                present.extend(id.parse::<u16>().ok().filter(|_| is_meant));
            }
        }
        present.retain(|&id| id != self.own_id);
        Ok(present)
    }

    fn pair(&self, guest: u16) -> Pair {
        Pair {
            owner: self.own_id,
            guest,
        }
    }

    fn give(&mut self, id: u16, tell: Tell) -> Result<()> {
        let ticket = self.device.grant(&self.how.pool, self.how.size, id)?;
        self.pair(id)
            .announce(&mut self.store, &self.how.pool, &ticket)?;
        self.store.watch(&self.pair(id).answered())?;
        tell(&format!(
            "The pool {} is given to domain {id}.",
            self.how.pool
        ));
        let ready = false;
        self.granted.insert(id, Granted { ticket, ready });
        Ok(())
    }

    /// Listens whether a domain is ready. As long as it is not, it is told again: it may have been made only now, and XenStore
    /// forgets permissions for domains that don't exist.
    fn hear(&mut self, id: u16, tell: Tell) -> Result<()> {
        let pair = self.pair(id);
        let ready = pair.is_answered(&mut self.store, &self.how.pool)?;
        let Some(granted) = self.granted.get_mut(&id) else {
            return Ok(());
        };
        if ready != granted.ready {
            granted.ready = ready;
            let how = if ready { "is ready" } else { "has let go" };
            tell(&format!("Domain {id} {how}: {}.", self.how.pool));
            if !ready {
                self.bury(id);
            }
        } else if !ready && self.own_id != 0 {
            pair.announce(&mut self.store, &self.how.pool, &granted.ticket)?;
        }
        Ok(())
    }

    fn take_back(&mut self, id: u16, tell: Tell) -> Result<()> {
        self.pair(id).withdraw(&mut self.store, &self.how.pool)?;
        self.device.revoke(&self.how.pool, id)?;
        self.granted.remove(&id);
        self.bury(id);
        tell(&format!(
            "The pool {} is taken back from domain {id}.",
            self.how.pool
        ));
        Ok(())
    }

    /// Declares a domain dead in the pool, so that nobody waits for what its processes held: whoever needs it cleans up after them.
    fn bury(&self, id: u16) {
        let Some(pool) = self.care.as_ref().map(Care::pool) else {
            return;
        };
        pool.members(|member, _, alive| {
            let peer = pool.member_peer(member).map(|(peer, _)| peer);
            if alive && peer == Some(id) {
                pool.bury_member(member);
            }
        });
    }

    /// Withdraws the pool from everybody, and removes it when they have let go, or at least been told.
    fn withdraw(&mut self, tell: Tell) -> Result<()> {
        let all: Vec<u16> = self.granted.keys().copied().collect();
        for &id in &all {
            self.pair(id).withdraw(&mut self.store, &self.how.pool)?;
        }
        let begun = Instant::now();
        for &id in &all {
            while begun.elapsed() < FAREWELL
                && self.pair(id).is_answered(&mut self.store, &self.how.pool)?
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            self.device.revoke(&self.how.pool, id)?;
        }
        if let Some(care) = self.care.take() {
            care.leave();
        }
        self.device.remove(&self.how.pool, self.own_id)?;
        tell(&format!("The pool {} is withdrawn.", self.how.pool));
        Ok(())
    }
}

/// Errors of other rooms, with the pool's name.
trait ExplainPool<T> {
    fn explain_pool(self, pool: &str) -> Result<T>;
}

impl<T, E: std::fmt::Display> ExplainPool<T> for std::result::Result<T, E> {
    fn explain_pool(self, pool: &str) -> Result<T> {
        self.map_err(|e| Error::new(format!("the pool {pool}: {e}")))
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
}
