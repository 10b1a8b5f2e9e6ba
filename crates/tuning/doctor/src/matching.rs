//! The threads that must share a core, wherever the scheduler puts them: those that a matching of threads and
//! cores leaves over, and all that compete with them (Hall's theorem).

use crate::cpus::Cpus;
use std::collections::{BTreeMap, BTreeSet};

/// Threads on cores.
#[derive(Debug, Default)]
pub struct Matching {
    /// The thread that each core was given to.
    pub owners: BTreeMap<usize, usize>,
    /// Threads for which no core is left.
    pub left: Vec<usize>,
    /// Threads that compete for too few cores, with those.
    pub crowded: BTreeSet<usize>,
}

/// Gives each thread a core of its own out of those that it may use, as far as there are enough.
pub fn assign(threads: &[Cpus]) -> Matching {
    let mut matching = Matching::default();
    for thread in 0..threads.len() {
        if !matching.place(threads, thread, &mut BTreeSet::new()) {
            matching.left.push(thread);
        }
    }
    // A thread on a core that a thread without one may use competes with it, and so on.
    let mut wanting = matching.left.clone();
    while let Some(thread) = wanting.pop() {
        if matching.crowded.insert(thread) {
            wanting.extend(threads[thread].iter().filter_map(|core| matching.owners.get(core)));
        }
    }
    matching
}

impl Matching {
    /// Places a thread, if need be by moving others (Kuhn's algorithm).
    fn place(&mut self, threads: &[Cpus], thread: usize, seen: &mut Cpus) -> bool {
        for &core in &threads[thread] {
            if !seen.insert(core) {
                continue;
            }
            let owner = self.owners.get(&core).copied();
            if owner.is_none_or(|owner| self.place(threads, owner, seen)) {
                self.owners.insert(core, thread);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::parse;

    fn crowded(threads: &[&str]) -> Vec<usize> {
        let threads: Vec<Cpus> = threads.iter().map(|list| parse(list)).collect();
        assign(&threads).crowded.into_iter().collect()
    }

    #[test]
    fn those_who_must_share_are_found() {
        assert!(crowded(&["0-1", "0"]).is_empty(), "the first one moves");
        assert_eq!(crowded(&["0", "0", "1-3"]), [0, 1]);
        assert_eq!(crowded(&["0-1", "0-1", "0-1", "2"]), [0, 1, 2]);
        assert_eq!(crowded(&["0-1", "1-2", "0,2", "0-2", "3"]), [0, 1, 2, 3]);
        assert!(crowded(&[]).is_empty());
    }
}
