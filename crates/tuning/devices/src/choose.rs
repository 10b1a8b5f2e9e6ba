//! The choice of functions for a machine. It changes nothing.

use crate::address::Address;
use crate::function::Function;
use crate::ledger::{Held, Holder, Ledger};
use crate::obstacle::obstacles;
use crate::survey::{Survey, User};
use crate::tree::Tree;
use crate::want::{Want, Which};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vshmem_base::error::{error, Error, Result};

/// A machine's request for functions.
#[derive(Debug, Clone)]
pub struct Request {
    /// The machine.
    pub holder: Holder,
    /// Its wishes.
    pub wants: Vec<Want>,
}

/// A function that a machine gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Assigned {
    /// Its address.
    pub address: Address,
    /// Its kind: nvme, network, gpu and so on.
    pub kind: String,
    /// Its IOMMU group.
    pub group: u32,
    /// The memory node that it is near to, if the firmware says so.
    pub node: Option<u32>,
}

/// A host on which functions are chosen.
pub struct Offer<'a> {
    /// The kernel's files.
    pub tree: &'a dyn Tree,
    /// All functions.
    pub survey: &'a Survey,
    /// The holders of functions.
    pub ledger: &'a Ledger,
    /// Functions that the asking machines hold, and don't ask for any more.
    pub dropped: &'a BTreeSet<Address>,
    /// The user who asks; `None`: rights don't matter.
    pub user: Option<User>,
}

/// The functions that a machine holds already and that fit its request.
pub fn fitting(survey: &Survey, ledger: &Ledger, request: &Request) -> BTreeSet<Address> {
    let mut fitting = BTreeSet::new();
    for want in &request.wants {
        let its =
            survey.functions.iter().filter(|it| want.which.is(it) && holds(ledger, request, it.address));
        let its: Vec<Address> = its.map(|it| it.address).filter(|it| !fitting.contains(it)).collect();
        fitting.extend(its.into_iter().take(want.count as usize));
    }
    fitting
}

/// True if the machine that asks holds a function already.
fn holds(ledger: &Ledger, request: &Request, address: Address) -> bool {
    ledger.find(address).is_some_and(|held| held.given && held.holder == request.holder)
}

impl Offer<'_> {
    /// The entry of a function that stays with its holder.
    fn holder(&self, address: Address) -> Option<&Held> {
        self.ledger.find(address).filter(|_| !self.dropped.contains(&address))
    }

    /// The functions that a machine gets: those that it holds already as far as they will do, then free ones,
    /// near to those first. It gets `reserved` ones only if it asks for their address.
    ///
    /// # Errors
    /// There are too few; it says why.
    pub fn choose(&self, request: &Request, reserved: &BTreeSet<Address>) -> Result<Vec<Assigned>> {
        let mut chosen: Vec<&Function> = Vec::new();
        // Other functions of their groups go to the same machine with these.
        let exact = request.wants.iter().filter_map(|want| match want.which {
            Which::At(address) => Some(address),
            _ => None,
        });
        let together: Vec<Address> = exact.collect();
        for want in &request.wants {
            let all = self.survey.functions.iter().filter(|it| want.which.is(it) && !it.is_bridge());
            let is_open = |it: &&Function| {
                let is_exact = matches!(want.which, Which::At(_));
                is_exact || !reserved.contains(&it.address)
            };
            let all: Vec<&Function> = all.filter(is_open).collect();
            let is_chosen =
                |chosen: &[&Function], it: &Function| chosen.iter().any(|had| had.address == it.address);
            let held = all
                .iter()
                .filter(|it| holds(self.ledger, request, it.address))
                .filter(|it| !is_chosen(&chosen, it));
            let mut its: Vec<&Function> = held.take(want.count as usize).copied().collect();
            let mut free: Vec<&Function> = all
                .iter()
                .filter(|it| self.holder(it.address).is_none() && !is_chosen(&chosen, it))
                .filter(|it| obstacles(self.tree, self.survey, it, &together, self.user).is_empty())
                .copied()
                .collect();
            free.sort_by_key(|it| {
                let mut near = chosen.iter().chain(&its).map(|had| had.node);
                (!near.any(|node| node == it.node), it.address)
            });
            its.extend(free.into_iter().take(want.count as usize - its.len()));
            if its.len() < want.count as usize {
                return Err(self.lacking(&request.holder, want, &all, its.len(), &together));
            }
            chosen.extend(its);
        }
        Ok(chosen.into_iter().map(assigned).collect())
    }

    fn lacking(
        &self,
        who: &Holder,
        want: &Want,
        all: &[&Function],
        got: usize,
        together: &[Address],
    ) -> Error {
        let machine = &who.machine;
        let why = |it: &&Function| match self.holder(it.address) {
            Some(held) => {
                let cluster = held.holder.cluster.file_name().unwrap_or_default().to_string_lossy();
                format!("{} is held by {} of the cluster {cluster}", it.address, held.holder.machine)
            }
            None => {
                let all = obstacles(self.tree, self.survey, it, together, self.user);
                let reasons: Vec<_> = all.into_iter().map(|it| it.why).collect();
                match reasons.is_empty() {
                    true => format!("{} goes to it already", it.address),
                    false => format!("{}: {}", it.address, reasons.join("; ")),
                }
            }
        };
        let reasons: Vec<String> = all.iter().map(why).collect();
        let what = match (&want.which, all.is_empty(), want.count) {
            (which, true, _) => format!("there is no device {which} on this host"),
            (which, _, 1) => format!("{which} can't be had: {}", reasons.join(". ")),
            (which, _, count) => format!("{got} of {count} {which} can be had: {}", reasons.join(". ")),
        };
        error!("{machine} does not get its devices: {what}")
            .code(1)
            .hint("vshmem devices --explain says how to mend it.")
    }
}

fn assigned(function: &Function) -> Assigned {
    let (kind, group) = (function.kind().into(), function.group.unwrap_or_default());
    Assigned { address: function.address, kind, group, node: function.node }
}
