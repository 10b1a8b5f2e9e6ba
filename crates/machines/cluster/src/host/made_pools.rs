//! The pools that are made for a cluster: their files, and their memory.

use super::pages::difference;
use super::populate::{populate, Wanted};
use std::path::Path;
use vshmem_base::directories::private_directory;
use vshmem_base::error::{error, Result};
use vshmem_hypervisor::launcher::options::{ClusterOptions, PoolOptions, Progress};
use vshmem_hypervisor::shared::pool;
use vshmem_hypervisor::state::record::MadePool;
use vshmem_inspect::host_pool::UNRESERVED;
use vshmem_inspect::pools::{check_room, reserve, Form};
use vshmem_placement::binding;
use vshmem_placement::pages::{Pages, PoolNodes};
use vshmem_placement::rules::{Insist, Memory};

/// Makes the file of a pool, without memory.
pub fn create(path: &Path, wanted: &PoolOptions) -> Result<()> {
    prepare(path)?;
    let form = Form { head: wanted.transport.is_some(), align: wanted.align };
    pool::create(&pool::reference(path), wanted.size, form)
}

/// Makes the directory of a pool in reserved pages. Directories of other pools are made with them.
pub fn prepare(path: &Path) -> Result<()> {
    match path.parent() {
        Some(directory) if pool::reference(path).contains('/') => private_directory(directory),
        _ => Ok(()),
    }
}

/// Binds the memory of a pool to its nodes, and takes all of it if that was asked for, or it is in large
/// pages. Preferences that were not met are reported.
///
/// # Errors
/// There is not enough memory, or it is not where it must be.
pub fn back(
    made: &mut MadePool,
    wanted: &PoolOptions,
    options: &ClusterOptions,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    let given = made.pages.given;
    let is_large = given.is_some_and(|pages| pages != Pages::Small);
    let fill = wanted.reserve || options.pages.prealloc || is_large;
    if !fill && made.node.is_none() {
        return Ok(());
    }
    let reference = made.path.to_string_lossy().into_owned();
    if wanted.reserve && !options.pages.prealloc && !is_large && made.node.is_none() {
        return reserve(&reference, UNRESERVED);
    }
    if fill {
        check_room(&reference, UNRESERVED)?;
    }
    let all_strict = options.pages.insist == Insist::Strict;
    let strict = all_strict || options.placement.is_some_and(|rules| rules.memory == Memory::Strict);
    let mut node = made.node;
    if let Some(Err(why)) = node.map(|_| binding::check_permitted()) {
        let what =
            format!("this host does not let the memory of the pool {} be bound to nodes: {why}", made.name);
        if strict {
            return Err(error!("{what}").hint("Containers need the capability SYS_NICE for it."));
        }
        report(Progress::Warning(what));
        node = None;
    }
    let how = Wanted { name: &made.name, pages: given, node, strict, fill, threads: options.pages.threads };
    if let Some((populated, resident)) = populate(&made.path, how, report)? {
        made.pages.populated = Some(populated);
        made.resident = Some(resident);
    }
    if fill {
        // Now it can't fail for want of memory, and keeps what it has.
        reserve(&reference, UNRESERVED)?;
    }
    check(made, all_strict, strict, report)
}

/// Compares the nodes and pages of a pool's memory with those that were asked for.
fn check(
    made: &MadePool,
    strict_pages: bool,
    strict_nodes: bool,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    let MadePool { name, pages, node, resident, .. } = made;
    let mut warn = |why: String| report(Progress::Warning(why));
    pages.fallbacks.iter().cloned().for_each(&mut warn);
    let Some(found) = resident else { return Ok(()) };
    let of_pages = pages.given.and_then(|given| difference(given, made.size, found));
    let on = found.on();
    let of_nodes = match node {
        Some(PoolNodes::Node(number)) if on.iter().any(|other| other != *number) => {
            Some(format!("it is on node {on}, and not on node {number} alone"))
        }
        _ => None,
    };
    for (why, strict) in [(of_pages, strict_pages), (of_nodes, strict_nodes)] {
        match why.map(|why| format!("the memory of the pool {name} is not as it was asked for: {why}")) {
            Some(why) if strict => return Err(error!("{why}")),
            Some(why) => warn(why),
            None => (),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vshmem_placement::binding::Resident;
    use vshmem_placement::pages::Given;

    fn made(given: Pages, nodes: &[(u32, u64)], page: u64) -> MadePool {
        let resident = Resident {
            nodes: nodes.iter().copied().collect(),
            pages: [(page, nodes.iter().map(|(_, bytes)| bytes).sum())].into(),
            transparent_huge: 0,
        };
        MadePool {
            name: "a".into(),
            path: "/p".into(),
            size: 4 << 20,
            pages: Given { wanted: Some(given), given: Some(given), ..Given::default() },
            node: Some(PoolNodes::Node(1)),
            resident: Some(resident),
        }
    }

    #[test]
    fn a_pool_that_is_not_as_it_was_asked_for_is_told_or_refused() {
        let told = |made: &MadePool, pages, nodes| {
            let mut all = Vec::new();
            let done = check(made, pages, nodes, &mut |step| match step {
                Progress::Warning(why) => all.push(why),
                other => panic!("{other:?}"),
            });
            (done.map_err(|why| why.to_string()), all)
        };
        let fine = made(Pages::TwoMib, &[(1, 4 << 20)], 2 << 20);
        assert_eq!(told(&fine, true, true), (Ok(()), vec![]));
        let far = made(Pages::TwoMib, &[(0, 2 << 20), (1, 2 << 20)], 2 << 20);
        let why =
            "the memory of the pool a is not as it was asked for: it is on node 0-1, and not on node 1 alone";
        assert_eq!(told(&far, true, false), (Ok(()), vec![why.into()]));
        assert_eq!(told(&far, true, true).0.unwrap_err(), why);
        let small = made(Pages::Transparent, &[(1, 4 << 20)], 4096);
        assert_eq!(told(&small, false, true).1.len(), 1);
        assert!(told(&small, true, true).0.unwrap_err().contains("are in transparent huge pages"));
    }
}
