//! A row of a table of settings, and the properties of a job that it depends on.

use std::path::PathBuf;

/// The properties of a job that its settings depend on.
#[derive(Debug, Clone, Default)]
pub struct Situation {
    /// The launcher's daemon, by which an MPI may tell its versions apart.
    pub daemon: PathBuf,
    /// The MPI passes messages between ranks of one host by itself, past UCX.
    pub passes_within_hosts: bool,
    /// The program uses OpenSHMEM.
    pub shmem: bool,
    /// Some of the ranks share no pool with others.
    pub mixed: bool,
    /// All hosts of a mixed job have a network card with verbs.
    pub verbs: bool,
    /// A host has more ranks than processors.
    pub oversubscribed: bool,
    /// Ranks keep more processors of machines busy than there are below these.
    pub crowded: bool,
    /// Hosts share a kernel, and its processors are shared out among them.
    pub apportioned: bool,
    /// MiB of each rank's symmetric heap, if the pool does not have room for the usual size.
    pub heap: Option<u64>,
    /// File in which UCX is to write the transports that it takes; `None`: nobody reads them.
    pub log: Option<String>,
}

/// A variable of ranks and of their launcher.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its value; `None`: it is not set.
    pub value: fn(&Situation) -> Option<String>,
    /// The reason why it is set.
    pub reason: &'static str,
    /// The harm that a user's own value does, if it does any.
    pub harm: fn(&str, &Situation) -> Option<&'static str>,
}

/// MiB of a symmetric heap for each of so many ranks in a pool of this size: their segments take at most half
/// of it. `None`: the usual size has room, or no useful one has.
pub fn symmetric_heap(pool_size: u64, ranks: u32) -> Option<u64> {
    // A heap's segment is a power of two here, of which this much is not the program's.
    const USUAL: u64 = 512;
    const ADDED: u64 = 4;
    let share = (pool_size >> 20) / 2 / u64::from(ranks.max(1));
    let block = (share + 1).next_power_of_two() / 2;
    (4 * ADDED..USUAL).contains(&block).then(|| block - ADDED)
}

/// A row's value that does not depend on anything.
pub fn set(value: &str) -> Option<String> {
    Some(value.into())
}

/// The harm of a user's own value, where there is none.
pub fn harmless(_: &str, _: &Situation) -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaps_fit_into_the_pool() {
        assert_eq!(symmetric_heap(1 << 30, 1), None);
        assert_eq!(symmetric_heap(1 << 30, 2), Some(252));
        assert_eq!(symmetric_heap(1 << 30, 3), Some(124));
        assert_eq!(symmetric_heap(1 << 30, 4), Some(124));
        assert_eq!(symmetric_heap(64 << 20, 2), Some(12));
        assert_eq!(symmetric_heap(16 << 20, 2), None);
        assert_eq!(symmetric_heap(0, 0), None);
    }
}
