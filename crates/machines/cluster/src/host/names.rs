//! Names for completion on the command line, from records. Nothing is made, opened or cleaned up for it, and
//! unreadable records have no names.

use std::fs;
use std::path::{Path, PathBuf};
use vshmem_base::directories::{is_private, names_in, runtime_path};
use vshmem_hypervisor::launcher::table::attached::{Attached, ATTACHED};
use vshmem_hypervisor::state::record::{Granted, Record};

/// The user's runtime directory, if it exists.
fn runtime() -> Option<PathBuf> {
    let path = runtime_path();
    let is_ours = fs::symlink_metadata(&path).is_ok_and(|meta| is_private(&meta));
    is_ours.then_some(path)
}

fn names(relative: impl AsRef<Path>) -> Vec<String> {
    let directory = runtime().map(|runtime| runtime.join(relative));
    let names = directory.and_then(|directory| names_in(&directory).ok());
    names.unwrap_or_default()
}

fn record(cluster: &str) -> Option<Record> {
    runtime()?;
    Record::read(cluster).ok().flatten()
}

/// Names of clusters.
pub fn clusters() -> Vec<String> {
    names("")
}

/// Names of a cluster's machines.
pub fn machines(cluster: &str) -> Vec<String> {
    let machines = record(cluster).map(|record| record.machines);
    let machines = machines.into_iter().flatten();
    machines.map(|machine| machine.name).collect()
}

/// Names of attached machines.
pub fn attached() -> Vec<String> {
    names(ATTACHED)
}

/// Names of the pools that a cluster's machines and attached ones have.
pub fn granted(cluster: &str) -> Vec<String> {
    let ours = record(cluster).map(|record| record.machines);
    let ours = ours.into_iter().flatten().flat_map(|machine| machine.pools);
    let others = attached();
    let others = others
        .iter()
        .filter_map(|name| Attached::read(name).ok().flatten())
        .flat_map(|machine| machine.pools);
    let mut names: Vec<String> = ours.chain(others).map(|Granted { name, .. }| name).collect();
    names.sort();
    names.dedup();
    names
}
