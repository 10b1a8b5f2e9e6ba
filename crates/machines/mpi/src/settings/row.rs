//! A row of the table of settings, and what it depends on.

use crate::implementation::{Kind, Mpi};

/// What decides which settings a job needs.
#[derive(Debug, Clone)]
pub struct Situation {
    /// The MPI.
    pub kind: Kind,
    /// PRRTE launches it: Open MPI from version 5 on.
    pub prrte: bool,
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
    /// Where UCX is to write which transports it takes, if somebody wants to know.
    pub log: Option<String>,
}

impl Situation {
    /// That of a job of this MPI.
    pub fn new(mpi: &Mpi, mixed: bool, oversubscribed: bool) -> Situation {
        Situation {
            kind: mpi.kind,
            prrte: mpi.has_prrte(),
            shmem: mpi.shmem,
            mixed,
            verbs: false,
            oversubscribed,
            crowded: false,
            apportioned: false,
            heap: None,
            log: None,
        }
    }
}

/// A variable of the ranks', and of their launcher's.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its value; `None`: it is not set.
    pub value: fn(&Situation) -> Option<String>,
    /// Why it is set.
    pub reason: &'static str,
    /// What goes wrong with a user's own value, if something does.
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

impl Row {
    /// Whether the variable means anything to the job's MPI.
    pub fn concerns(&self, situation: &Situation) -> bool {
        match situation.kind {
            Kind::Mpich => !["OMPI_", "PRTE_", "SMA_"].iter().any(|prefix| self.name.starts_with(prefix)),
            Kind::OpenMpi => !self.name.starts_with("MPIR_"),
        }
    }
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
