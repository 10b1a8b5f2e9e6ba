//! What a program in dom0 asks about other domains.

use super::announce::Pair;
use super::store::Store;
use crate::error::Result;

/// Domain 0, which owns the pools of clusters.
const DOM0: u16 = 0;

/// Whether the domain of this id is the one with this UUID. Ids are given again, UUIDs are not.
///
/// # Errors
/// There is no XenStore here.
pub fn is_domain(domain: u16, uuid: &str) -> Result<bool> {
    let found = Store::open()?.read(&format!("/local/domain/{domain}/vm"))?;
    Ok(found.as_deref().and_then(|path| path.strip_prefix("/vm/")) == Some(uuid))
}

/// Whether a domain has attached this pool of dom0's.
///
/// # Errors
/// There is no XenStore here.
pub fn has_attached(domain: u16, pool: &str) -> Result<bool> {
    let pair = Pair {
        owner: DOM0,
        guest: domain,
    };
    pair.is_answered(&mut Store::open()?, pool)
}

/// How many consoles this domain has beside its first one.
///
/// # Errors
/// There is no XenStore here.
pub fn further_consoles() -> Result<usize> {
    Ok(Store::open()?.list("device/console")?.len())
}
