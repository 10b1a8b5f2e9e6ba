//! Claiming functions for machines, binding them to the driver by which a machine has them, and giving them
//! back. Each is whole or not at all, whatever fails; and after a kill at any step, [`Devices::repair`] gives
//! back functions whose holder is gone.

use crate::address::Address;
use crate::choose::{fitting, Assigned, Offer, Request};
use crate::driver::{bind_to_vfio, give_back, VFIO};
use crate::function::Function;
use crate::ledger::{Held, Holder, Ledger, Store};
use crate::obstacle::goes_along;
use crate::survey::{Survey, User};
use crate::tree::Tree;
use crate::virtuals;
use crate::want::Which;
use std::collections::{BTreeMap, BTreeSet};
use vshmem_base::error::{error, Error, Result};

/// The devices of a host, and their holders. The caller has the ledger's lock.
pub struct Devices<'a> {
    tree: &'a dyn Tree,
    store: &'a dyn Store,
    ledger: Ledger,
}

impl<'a> Devices<'a> {
    /// Reads the ledger.
    ///
    /// # Errors
    /// It can't be read.
    pub fn open(tree: &'a dyn Tree, store: &'a dyn Store) -> Result<Devices<'a>> {
        Ok(Devices { tree, store, ledger: Ledger::read(tree, store)? })
    }

    /// The functions that are held.
    pub fn held(&self) -> &[Held] {
        &self.ledger.held
    }

    /// Gives back the functions of holders that don't live any more.
    ///
    /// # Errors
    /// Something can't be given back, and stays written down for the next time.
    pub fn repair(&mut self, lives: &dyn Fn(&Holder) -> bool) -> Result<()> {
        self.release(&|held| !lives(&held.holder))
    }

    /// Claims functions for machines: all of them, or none. No driver is changed; virtual functions are made.
    /// A function that a machine holds and does not ask for stays its own.
    ///
    /// # Errors
    /// A machine can't get what it asks for.
    pub fn claim(&mut self, requests: &[Request], user: Option<User>) -> Result<Vec<Vec<Assigned>>> {
        let before = self.ledger.held.clone();
        self.claim_all(requests, user).map_err(|why| match self.go_back(before) {
            Ok(()) => why,
            Err(left) => left.about(&why.to_string()),
        })
    }

    /// Restores the holders before a claim, after which nothing was bound, and removes virtual functions that
    /// nobody holds.
    ///
    /// # Errors
    /// The ledger can't be written, or virtual functions can't be removed.
    pub fn go_back(&mut self, before: Vec<Held>) -> Result<()> {
        self.ledger.held = before;
        self.ledger.write(self.store)?;
        self.release(&|_| false)
    }

    fn claim_all(&mut self, requests: &[Request], user: Option<User>) -> Result<Vec<Vec<Assigned>>> {
        self.make_virtuals(requests)?;
        let survey = Survey::of(self.tree);
        let wants = || requests.iter().flat_map(|request| &request.wants);
        let reserved = wants().filter_map(|want| match want.which {
            Which::At(address) => Some(address),
            _ => None,
        });
        let reserved: BTreeSet<Address> = reserved.collect();
        let dropped = self.dropped(&survey, requests);
        let mut all = Vec::new();
        for request in requests {
            let offer =
                Offer { tree: self.tree, survey: &survey, ledger: &self.ledger, dropped: &dropped, user };
            let chosen = offer.choose(request, &reserved)?;
            for it in &chosen {
                self.write_down(&survey, it.address, &request.holder, &dropped)?;
            }
            all.push(chosen);
        }
        self.ledger.write(self.store)?;
        Ok(all)
    }

    /// Functions that the asking machines hold and don't ask for any more: another one of them may get these.
    fn dropped(&self, survey: &Survey, requests: &[Request]) -> BTreeSet<Address> {
        let mut dropped = BTreeSet::new();
        for request in requests {
            let fitting = fitting(survey, &self.ledger, request);
            let groups: Vec<u32> = fitting.iter().filter_map(|it| survey.find(*it)?.group).collect();
            let its = self.ledger.held.iter().filter(|held| held.holder == request.holder);
            let gone = its.filter(|held| !fitting.contains(&held.address) && !groups.contains(&held.group));
            dropped.extend(gone.map(|held| held.address));
        }
        dropped
    }

    /// Writes down that a machine holds a function, and those that go along with it.
    fn write_down(
        &mut self,
        survey: &Survey,
        address: Address,
        holder: &Holder,
        dropped: &BTreeSet<Address>,
    ) -> Result<()> {
        let missing = || error!("there is no PCI function {address} any more");
        let function = survey.find(address).ok_or_else(missing)?;
        let along = survey.group_of(function).filter(|it| goes_along(function, it));
        for it in std::iter::once(function).chain(along) {
            let given = it.address == address;
            match self.ledger.held.iter_mut().find(|held| held.address == it.address) {
                Some(held) if held.holder == *holder => held.given |= given,
                Some(held) if dropped.contains(&it.address) => {
                    (held.holder, held.given) = (holder.clone(), given)
                }
                Some(held) => {
                    let other = &held.holder.machine;
                    return Err(
                        error!("{} goes along with {address}, and {other} holds it", it.address).code(1)
                    );
                }
                None => self.ledger.held.push(Held {
                    address: it.address,
                    holder: holder.clone(),
                    given,
                    group: it.group.unwrap_or_default(),
                    driver: it.driver.clone(),
                    driver_override: it.driver_override.clone(),
                }),
            }
        }
        Ok(())
    }

    /// Makes virtual functions where some are wanted and there are none.
    fn make_virtuals(&mut self, requests: &[Request]) -> Result<()> {
        let mut wanted: BTreeMap<Address, u32> = BTreeMap::new();
        for want in requests.iter().flat_map(|request| &request.wants) {
            if let Which::VirtualOf(physical) = want.which {
                *wanted.entry(physical).or_default() += want.count;
            }
        }
        for (address, count) in wanted {
            let missing = || error!("there is no PCI function {address}").code(1).hint("See vshmem devices.");
            let physical = Function::read(self.tree, address).ok_or_else(missing)?;
            if !physical.vfs.is_empty() {
                continue;
            }
            if self.ledger.find(address).is_some() || physical.driver.as_deref() == Some(VFIO) {
                return Err(
                    error!("{address} is given away as a whole, and has no virtual functions").code(1)
                );
            }
            let made = virtuals::planned(self.tree, &physical, count)?;
            self.ledger.virtuals.retain(|it| it.physical != address);
            self.ledger.virtuals.push(made.clone());
            self.ledger.write(self.store)?;
            virtuals::make(self.tree, &made)?;
            virtuals::restore_autoprobe(self.tree, &made)?;
            for it in self.ledger.virtuals.iter_mut().filter(|it| it.physical == address) {
                it.autoprobe = None;
            }
        }
        Ok(())
    }

    /// Binds the functions of these holders to [`VFIO`], all or none.
    ///
    /// # Errors
    /// One can't be bound. All have the drivers again that they had.
    pub fn bind(&self, whose: &dyn Fn(&Held) -> bool) -> Result<()> {
        let driver = |held: &Held| Function::read(self.tree, held.address).and_then(|it| it.driver);
        let all = self.ledger.held.iter().filter(|held| whose(held));
        let all: Vec<&Held> = all.filter(|held| driver(held).as_deref() != Some(VFIO)).collect();
        for (done, held) in all.iter().enumerate() {
            if let Err(why) = bind_to_vfio(self.tree, held.address) {
                let back = all[..=done].iter().rev().filter_map(|held| give_back(self.tree, held).err());
                // All of them, even after a failure.
                let left: Vec<Error> = back.collect();
                return Err(left.into_iter().next().map_or(why.clone(), |left| left.about(&why.to_string())));
            }
        }
        Ok(())
    }

    /// Gives back the functions of these holders, and removes virtual functions that were made and that
    /// nobody holds.
    ///
    /// # Errors
    /// Something can't be given back, and stays written down. The rest is.
    pub fn release(&mut self, whose: &dyn Fn(&Held) -> bool) -> Result<()> {
        let mut trouble = None;
        let all: Vec<Held> = self.ledger.held.iter().filter(|held| whose(held)).cloned().collect();
        for held in all {
            match give_back(self.tree, &held) {
                Ok(()) => {
                    self.ledger.held.retain(|it| it.address != held.address);
                    self.ledger.write(self.store)?;
                }
                Err(why) => trouble = trouble.or(Some(why)),
            }
        }
        for made in self.ledger.virtuals.clone() {
            let vfs = Function::read(self.tree, made.physical).map(|it| it.vfs).unwrap_or_default();
            if vfs.iter().any(|address| self.ledger.find(*address).is_some()) {
                continue;
            }
            match virtuals::remove(self.tree, &made) {
                Ok(()) => {
                    self.ledger.virtuals.retain(|it| it.physical != made.physical);
                    self.ledger.write(self.store)?;
                }
                Err(why) => trouble = trouble.or(Some(why)),
            }
        }
        trouble.map_or(Ok(()), Err)
    }
}
