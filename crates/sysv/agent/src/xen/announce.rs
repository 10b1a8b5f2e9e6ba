//! The announcements of pools in XenStore: their keys, and parsing the values of other domains.
//!
//! ```text
//! /local/domain/OWNER/data/vshmem/GUEST           only GUEST may read it, and what is below
//! /local/domain/OWNER/data/vshmem/GUEST/POOL      "SIZE PORT REF REF ...": what GUEST needs to attach the pool
//! /local/domain/GUEST/data/vshmem/OWNER/POOL      "VshmemReady": GUEST has attached it; only OWNER may read it
//! ```

use super::device::{GrantInfo, MAX_LISTS};
use super::xenstore::{Access, XenStore};
use vshmem_base::error::Result;

/// The value by which a domain says that it has attached a pool.
pub const READY: &str = "VshmemReady";

/// An owner of pools, and a domain that it announces them to.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// The domain that owns pools.
    pub owner: u16,
    /// The domain that is given pools.
    pub guest: u16,
}

impl Pair {
    /// The directory in which the owner announces pools.
    pub fn announcements(self) -> String {
        format!("/local/domain/{}/data/vshmem/{}", self.owner, self.guest)
    }

    /// The directory in which the guest says which pools it has attached.
    pub fn attachments(self) -> String {
        format!("/local/domain/{}/data/vshmem/{}", self.guest, self.owner)
    }

    /// Announces a pool. The reader sees nothing before the last step.
    pub fn announce(self, store: &mut XenStore, pool: &str, info: &GrantInfo) -> Result<()> {
        let access = Access { owner: self.owner, reader: Some(self.guest) };
        let directory = self.announcements();
        if store.read(&directory)?.is_none() {
            let owner_only = Access { reader: None, ..access };
            let parent = format!("/local/domain/{}/data/vshmem", self.owner);
            store.make(&parent, owner_only)?;
        }
        // Set each time: XenStore accepts permissions for domains that don't exist yet, and drops them.
        store.make(&directory, access)?;
        store.write(&format!("{directory}/{pool}"), &write(info), access)
    }

    /// Removes an announcement, and the directory if it was the last one.
    pub fn withdraw(self, store: &mut XenStore, pool: &str) -> Result<()> {
        let directory = self.announcements();
        store.remove(&format!("{directory}/{pool}"))?;
        if store.list(&directory)?.is_empty() {
            store.remove(&directory)?;
        }
        Ok(())
    }

    /// The domains to which an owner announces this pool.
    pub fn guests(store: &mut XenStore, owner: u16, pool: &str) -> Result<Vec<u16>> {
        let mut guests = Vec::new();
        for guest in store.list(&format!("/local/domain/{owner}/data/vshmem"))? {
            let Ok(guest) = guest.parse() else { continue };
            // This domain's own attachments lie there, too; their values are no announcements.
            let path = format!("{}/{pool}", Pair { owner, guest }.announcements());
            let text = store.read(&path)?;
            if text.is_some_and(|text| read(&text).is_some()) {
                guests.push(guest);
            }
        }
        Ok(guests)
    }

    /// The pools that are announced; `None` for an announcement that can't be parsed.
    pub fn all(self, store: &mut XenStore) -> Result<Vec<(String, Option<GrantInfo>)>> {
        let directory = self.announcements();
        let mut all = Vec::new();
        for pool in store.list(&directory)? {
            let text = store.read(&format!("{directory}/{pool}"))?;
            all.push((pool, text.as_deref().and_then(read)));
        }
        Ok(all)
    }

    /// Says, as the guest, that a pool is attached.
    pub fn set_ready(self, store: &mut XenStore, pool: &str) -> Result<()> {
        let access = Access { owner: self.guest, reader: Some(self.owner) };
        store.write(&format!("{}/{pool}", self.attachments()), READY, access)
    }

    /// Says, as the guest, that a pool is no longer attached.
    pub fn clear_ready(self, store: &mut XenStore, pool: &str) -> Result<()> {
        store.remove(&format!("{}/{pool}", self.attachments()))
    }

    /// Whether the guest says that it has attached a pool.
    pub fn is_ready(self, store: &mut XenStore, pool: &str) -> Result<bool> {
        let value = store.read(&format!("{}/{pool}", self.attachments()))?;
        Ok(value.as_deref() == Some(READY))
    }
}

/// The value that announces a pool.
pub(crate) fn write(info: &GrantInfo) -> String {
    let mut text = format!("{} {}", info.size, info.port);
    for reference in &info.refs {
        text += &format!(" {reference}");
    }
    text
}

/// Parses such a value, which is untrusted: another domain wrote it.
pub(crate) fn read(text: &str) -> Option<GrantInfo> {
    let mut numbers = text.split(' ');
    let size = numbers.next()?.parse().ok()?;
    let port = numbers.next()?.parse().ok()?;
    let refs: Vec<u32> = numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?;
    (1..=MAX_LISTS).contains(&refs.len()).then_some(GrantInfo { size, port, refs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_parsed_as_they_were_written() {
        let info = GrantInfo { size: 16 << 20, port: 9, refs: vec![8, 4_000_000_000, 0, 7] };
        assert_eq!(read(&write(&info)), Some(info));
    }

    #[test]
    fn invalid_announcements_are_refused() {
        let many = format!("1 2{}", " 3".repeat(MAX_LISTS + 1));
        for bad in ["", "1", "1 2", "1 2 x", "1 2 -3", "1 2 4294967296", "1 2 3 ", &many] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
