//! The keys by which pools are announced in XenStore, and what is believed of them.
//!
//! ```text
//! /local/domain/OWNER/data/vshmem/GUEST           only GUEST may read it, and what is below
//! /local/domain/OWNER/data/vshmem/GUEST/POOL      "SIZE PORT REF REF ...": what GUEST needs to attach the pool
//! /local/domain/GUEST/data/vshmem/OWNER/POOL      "VshmemReady": GUEST has attached it; only OWNER may read it
//! ```

use super::device::{Ticket, MOST_LISTS};
use super::store::{Access, Store};
use crate::error::Result;

/// What a domain says that has attached a pool.
pub const READY: &str = "VshmemReady";

/// A pool as one domain announces it to another.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// The domain that owns pools.
    pub owner: u16,
    /// The domain that is given pools.
    pub guest: u16,
}

impl Pair {
    /// Where the owner announces.
    pub fn announced(self) -> String {
        format!("/local/domain/{}/data/vshmem/{}", self.owner, self.guest)
    }

    /// Where the guest says what it has.
    pub fn answered(self) -> String {
        format!("/local/domain/{}/data/vshmem/{}", self.guest, self.owner)
    }

    /// Announces a pool. In one step for the reader: before the last one it sees nothing.
    pub fn announce(self, store: &mut Store, pool: &str, ticket: &Ticket) -> Result<()> {
        let access = Access {
            owner: self.owner,
            reader: Some(self.guest),
        };
        let directory = self.announced();
        if store.read(&directory)?.is_none() {
            let nobody = Access {
                reader: None,
                ..access
            };
            store.make(&format!("/local/domain/{}/data/vshmem", self.owner), nobody)?;
        }
        // Set anew each time: XenStore takes permissions for domains that don't exist yet, and forgets them.
        store.make(&directory, access)?;
        store.write(&format!("{directory}/{pool}"), &write(ticket), access)
    }

    /// Takes an announcement back, and the directory if it was the last one.
    pub fn withdraw(self, store: &mut Store, pool: &str) -> Result<()> {
        let directory = self.announced();
        store.remove(&format!("{directory}/{pool}"))?;
        if store.list(&directory)?.is_empty() {
            store.remove(&directory)?;
        }
        Ok(())
    }

    /// The domains to which an owner announces this pool.
    pub fn told(store: &mut Store, owner: u16, pool: &str) -> Result<Vec<u16>> {
        let mut told = Vec::new();
        for guest in store.list(&format!("/local/domain/{owner}/data/vshmem"))? {
            let Ok(guest) = guest.parse() else { continue };
            // What this domain answers to another one lies there, too, and is no ticket.
            let path = format!("{}/{pool}", Pair { owner, guest }.announced());
            let text = store.read(&path)?;
            if text.is_some_and(|text| read(&text).is_some()) {
                told.push(guest);
            }
        }
        Ok(told)
    }

    /// The pools that are announced, with what can be read of each.
    pub fn all(self, store: &mut Store) -> Result<Vec<(String, Option<Ticket>)>> {
        let directory = self.announced();
        let mut all = Vec::new();
        for pool in store.list(&directory)? {
            let text = store.read(&format!("{directory}/{pool}"))?;
            all.push((pool, text.as_deref().and_then(read)));
        }
        Ok(all)
    }

    /// Says, as the guest, that a pool is attached.
    pub fn answer(self, store: &mut Store, pool: &str) -> Result<()> {
        let access = Access {
            owner: self.guest,
            reader: Some(self.owner),
        };
        store.write(&format!("{}/{pool}", self.answered()), READY, access)
    }

    /// Says it no longer.
    pub fn unanswer(self, store: &mut Store, pool: &str) -> Result<()> {
        store.remove(&format!("{}/{pool}", self.answered()))
    }

    /// Whether the guest says that it has a pool attached.
    pub fn is_answered(self, store: &mut Store, pool: &str) -> Result<bool> {
        let answer = store.read(&format!("{}/{pool}", self.answered()))?;
        Ok(answer.as_deref() == Some(READY))
    }
}

pub(crate) fn write(ticket: &Ticket) -> String {
    let mut text = format!("{} {}", ticket.size, ticket.port);
    for reference in &ticket.refs {
        text += &format!(" {reference}");
    }
    text
}

/// Another domain wrote it, so it may be anything.
pub(crate) fn read(text: &str) -> Option<Ticket> {
    let mut numbers = text.split(' ');
    let size = numbers.next()?.parse().ok()?;
    let port = numbers.next()?.parse().ok()?;
    let refs: Vec<u32> = numbers
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    (1..=MOST_LISTS)
        .contains(&refs.len())
        .then_some(Ticket { size, port, refs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_read_as_they_were_written() {
        let ticket = Ticket {
            size: 16 << 20,
            port: 9,
            refs: vec![8, 4_000_000_000, 0, 7],
        };
        assert_eq!(read(&write(&ticket)), Some(ticket));
    }

    #[test]
    fn what_is_no_ticket_is_refused() {
        let many = format!("1 2{}", " 3".repeat(MOST_LISTS + 1));
        for bad in [
            "",
            "1",
            "1 2",
            "1 2 x",
            "1 2 -3",
            "1 2 4294967296",
            "1 2 3 ",
            &many,
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
