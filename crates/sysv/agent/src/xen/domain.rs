//! The domains of this host, as dom0 knows them.

use super::announce::Pair;
use super::xenstore::XenStore;
use std::collections::BTreeSet;
use std::io;
use std::process::{Command, Stdio};
use vshmem_base::error::{Error, Explain, Result};

/// Domain 0, which owns the pools of clusters.
pub(super) const DOM0: u16 = 0;

/// The domains that have ended but were not destroyed yet, such as one that crashed with
/// `on_crash="preserve"`. XenStore does not tell them from others, so xl is asked; where it is not installed,
/// there are none.
///
/// # Errors
/// xl fails.
pub(super) fn dead_domains() -> Result<BTreeSet<u16>> {
    let mut command = Command::new("xl");
    command.arg("list").stdin(Stdio::null());
    let output = match command.stderr(Stdio::null()).output() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        output => output.explain(|| "xl could not be started".into())?,
    };
    match output.status.success() {
        true => Ok(ended_in(&String::from_utf8_lossy(&output.stdout))),
        false => Err(Error::new("xl could not list the domains")),
    }
}

/// The domains that `xl list` shows as shut down, crashed or dying. Names, which come first, may contain
/// spaces.
fn ended_in(list: &str) -> BTreeSet<u16> {
    let ended = |line: &str| {
        let mut fields = line.split_whitespace().rev();
        let state = fields.nth(1)?;
        let id = fields.nth(2)?.parse().ok()?;
        (state.len() == 6 && state.contains(['s', 'c', 'd'])).then_some(id)
    };
    list.lines().skip(1).filter_map(ended).collect()
}

/// Whether the domain of this id has this UUID. Ids are used again, UUIDs are not.
///
/// # Errors
/// There is no XenStore here.
pub fn is_domain(domain: u16, uuid: &str) -> Result<bool> {
    let found = XenStore::open()?.read(&format!("/local/domain/{domain}/vm"))?;
    Ok(found.as_deref().and_then(|path| path.strip_prefix("/vm/")) == Some(uuid))
}

/// Whether a domain has attached this pool of dom0.
///
/// # Errors
/// There is no XenStore here.
pub fn has_attached(domain: u16, pool: &str) -> Result<bool> {
    let pair = Pair { owner: DOM0, guest: domain };
    pair.is_ready(&mut XenStore::open()?, pool)
}

/// The number of consoles that this domain has beside its first one.
///
/// # Errors
/// There is no XenStore here.
pub fn further_consoles() -> Result<usize> {
    Ok(XenStore::open()?.list("device/console")?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As xl 4.17 writes it.
    #[test]
    fn domains_that_have_ended_are_found() {
        let list = "\
Name                                        ID   Mem VCPUs\tState\tTime(s)
Domain-0                                     0  1024     2     r-----     191.4
vm0                                          3   300     1     -b----      10.2
two words                                    4   300     1     ---sc-      10.2
vm2                                          5   300     1     --p---       0.0
vm3                                          6   300     1     ---sr-       7.1
(null)                                       7     0     1     --ps-d       7.1
";
        assert_eq!(ended_in(list), BTreeSet::from([4, 6, 7]));
        assert!(ended_in("").is_empty());
    }
}
