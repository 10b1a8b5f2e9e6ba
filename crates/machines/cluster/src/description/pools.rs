//! The pools that a description means, and the machines that get them.

use super::cluster::{Description, Pool, Size};
use super::fault::Fault;
use vshmem_base::error::{error, Error};
use vshmem_base::{memory, size};
use vshmem_hypervisor::launcher::options::{MachineOptions, PoolOptions};
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_inspect::host_pool::check_name;
use vshmem_placement::pages::Pages;
use vshmem_pool::layout::PAGE;

/// The name of a cluster's own pool in descriptions, and as a rule in its machines.
pub const OWN: &str = "default";

/// The pools of a description, the cluster's own first. The machines, each with its group's name, get those
/// that are theirs.
pub fn pools(
    description: &Description,
    (launcher, accel): (&dyn Launcher, Option<&str>),
    machines: &mut [(MachineOptions, String)],
) -> Result<Vec<PoolOptions>, Fault> {
    let own = description.pools.get(OWN).cloned().unwrap_or_default();
    let others = description.pools.iter().filter(|(name, _)| *name != OWN);
    let pages = description.pages.as_ref().and_then(|pages| pages.pools);
    let own_name = String::from(OWN);
    let mut all = Vec::new();
    for (name, pool) in std::iter::once((&own_name, &own)).chain(others) {
        let made = options(name, pool, pages, launcher)?;
        if made.host.is_none() {
            let total = memory::total().filter(|_| !launcher.facts().has_own_memory);
            let room = Room { total, reach: launcher.largest_pool(accel) };
            room.check(name, made.size).map_err(|error| Fault::because(&["pools", name, "size"], error))?;
        }
        all.push(made);
        give(name, pool, machines)?;
    }
    Ok(all)
}

/// The options of a pool, which is in these pages unless it says itself.
fn options(
    name: &str,
    pool: &Pool,
    pages: Option<Pages>,
    launcher: &dyn Launcher,
) -> Result<PoolOptions, Fault> {
    let facts = launcher.facts();
    let at = |key| ["pools", name, key];
    check_name(name).map_err(|error| Fault::because(&["pools", name], error))?;
    if pool.host.is_some() {
        let of_others = [
            (name == OWN, "host", "the pool \"default\" is the cluster's own, and made with it"),
            (pool.size.is_some(), "size", "the pool has its size already"),
            (pool.align.is_some(), "align", "the pool's segments lie where it was made to put them"),
            (pool.transport.is_some(), "transport", "the pool comes by the transport that it was made for"),
            (pool.pages.is_some(), "pages", "the pool has its pages already"),
            (pool.node.is_some(), "node", "the pool's memory is where it was made to be"),
        ];
        if let Some((_, key, why)) = of_others.into_iter().find(|(wrong, ..)| *wrong) {
            return Err(Fault::new(&at(key), why));
        }
    }
    let size = pool.size.map_or(facts.pool_size, |Size(bytes)| bytes);
    if !size.is_power_of_two() || size < vshmem_pool::MIN_POOL {
        return Err(Fault::new(&at("size"), "a pool's size is a power of two, 1M or more: 64M, 256M, 1G"));
    }
    let align = pool.align.map_or(PAGE, |Size(bytes)| bytes);
    if !align.is_power_of_two() || align < PAGE {
        return Err(Fault::new(
            &at("align"),
            "segments begin at multiples of a power of two, 4K or more: 2M",
        ));
    }
    let chosen = pool.transport.as_deref();
    if let Some(chosen) = chosen.filter(|chosen| !facts.transports.contains(chosen)) {
        let (by, all) = (facts.name, facts.transports.join(", "));
        let what = format!("machines that {by} starts are not given pools by {chosen}: choose one of {all}");
        return Err(Fault::new(&at("transport"), what));
    }
    let transport = chosen.filter(|chosen| *chosen != facts.transports[0]).map(Into::into);
    let (host, reserve) = (pool.host.clone(), pool.reserve);
    let pages = pool.pages.or(pages).filter(|_| host.is_none());
    // What stands before a pool that is persistent memory is no whole page of 1 GiB.
    if let Some(page) = pages.and_then(Pages::reserved) {
        if size < page || transport.is_some() && page > vshmem_transport::head::HEAD {
            let what =
                format!("the pool can't be in pages of {}: it is no whole number of them", size::show(page));
            let key = if pool.pages.is_some() { "pages" } else { "size" };
            return Err(Fault::new(&at(key), what));
        }
    }
    if (pages.is_some() || pool.node.is_some()) && facts.has_own_memory {
        let key = if pool.node.is_some() { "node" } else { "pages" };
        return Err(Fault::new(&at(key), format!("{} gives pools their memory itself", facts.name)));
    }
    Ok(PoolOptions { name: name.into(), host, size, align, transport, reserve, pages, node: pool.node })
}

/// The room for a pool: memory of the host and addresses of a machine, as far as they are known.
struct Room {
    /// The host's memory.
    total: Option<u64>,
    /// The largest that a machine can address.
    reach: Option<u64>,
}

impl Room {
    /// An error unless a pool of this size can be used whole. A small host still gets one of the default
    /// size, which takes memory only where it is used.
    fn check(&self, name: &str, size: u64) -> Result<(), Error> {
        let wanted = size::show(size);
        if let Some(total) = self.total.filter(|total| size > (*total).max(vshmem_pool::DEFAULT_POOL)) {
            let has = size::show(total);
            return Err(error!(
                "the pool {name} would have {wanted}, and this host has {has} of memory in all"
            )
            .hint("Make it smaller: --pool-size, or size in the file."));
        }
        if let Some(most) = self.reach.filter(|most| size > *most).map(size::show) {
            return Err(error!(
                "the pool {name} would have {wanted}, and machines can address one of {most}"
            )
            .hint("Make it smaller: --pool-size, or size in the file."));
        }
        Ok(())
    }
}

/// Gives a pool to its machines.
fn give(name: &str, pool: &Pool, machines: &mut [(MachineOptions, String)]) -> Result<(), Fault> {
    let Some(wanted) = &pool.machines else {
        machines.iter_mut().for_each(|(machine, _)| machine.pools.push(name.into()));
        return Ok(());
    };
    for (place, of) in wanted.iter().enumerate() {
        let is_it = |(machine, group): &&mut (MachineOptions, String)| machine.name == *of || group == of;
        let mut found = machines.iter_mut().filter(is_it).peekable();
        if found.peek().is_none() {
            let what = format!("there is no machine or group of machines {of}");
            return Err(Fault::new(&["pools", name, "machines", &place.to_string()], what));
        }
        for (machine, _) in found {
            if !machine.pools.iter().any(|had| had == name) {
                machine.pools.push(name.into());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_fits_into_the_host_and_into_machines() {
        let why = |total, reach, size| {
            let checked = Room { total, reach }.check("a", size);
            checked.map_err(|error| error.to_string()).err().unwrap_or_default()
        };
        let (total, reach) = (Some(24 << 30), Some(512 << 30));
        assert!(why(total, reach, 1 << 40).contains("1T, and this host has 24G"));
        assert!(why(None, reach, 1 << 40).contains("1T, and machines can address one of 512G"));
        assert!(why(Some(2 << 40), reach, 1 << 40).contains("512G"));
        assert_eq!(why(total, reach, 16 << 30), "");
        assert_eq!(why(Some(512 << 20), reach, 1 << 30), "", "the default");
        assert_eq!(why(None, None, 1 << 50), "");
    }
}
