//! Emulator threads, the hypervisor's threads that are no vCPUs: they run off the cores of these, if there
//! are others.

use super::error::PlaceError;
use super::host::{CoreState, HostState};
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::plan::Placed;
use vshmem_placement::request::Machine;
use vshmem_placement::rules::{Insist, Policy};

/// Fills in the processors of a machine's emulator threads, after all vCPUs have been placed.
pub fn place(host: &HostState, machine: &Machine, placed: &mut Placed) -> Result<(), PlaceError> {
    if machine.rules.policy == Policy::Unpinned {
        return Ok(());
    }
    if let Some(set) = off_vcpus(host, placed) {
        placed.emulator = set;
        return Ok(());
    }
    placed.emulator = placed.vcpus.iter().flat_map(|set| set.iter()).collect();
    // On cores that vCPUs share, they have their turns, too.
    if placed.vcpus.iter().any(|set| set.len() > 1) {
        return Ok(());
    }
    let why = PlaceError::Emulator { machine: machine.name.clone() };
    match machine.rules.cores {
        Insist::Strict => Err(why),
        Insist::Preferred => {
            placed.fallbacks.push(format!("{why}: they share those of its vCPUs"));
            Ok(())
        }
    }
}

/// The first of these that there are: reserved cores near by, free cores near by, either elsewhere, idle SMT
/// siblings of the machine's own cores.
fn off_vcpus(host: &HostState, placed: &Placed) -> Option<CpuSet> {
    let is_near = |core: &usize| {
        let node = host.topology.cores[*core].node;
        placed.nodes.contains(host.topology.nodes[node].number)
    };
    // Cores on which others' vCPUs run by turns are not free.
    let is_quiet = |core: &usize| host.floating[host.topology.cores[*core].package] == 0;
    let reserved: Vec<_> = host.cores_that_are(CoreState::Reserved).collect();
    let free: Vec<_> = host.cores_that_are(CoreState::Free).filter(is_quiet).collect();
    let near = |cores: &[usize]| cores.iter().copied().filter(is_near).collect::<Vec<_>>();
    let choices = [near(&reserved), near(&free), reserved, free];
    let cores = choices.into_iter().find(|cores| !cores.is_empty());
    let set = cores.map(|cores| host.topology.pus(&cores)).unwrap_or_else(|| siblings(host, placed));
    (!set.is_empty()).then_some(set)
}

/// Idle siblings of the cores on which a machine's vCPUs are pinned.
fn siblings(host: &HostState, placed: &Placed) -> CpuSet {
    if placed.vcpus.iter().any(|set| set.len() > 1) {
        return CpuSet::default();
    }
    let used: CpuSet = placed.vcpus.iter().flat_map(|set| set.iter()).collect();
    let is_own = |pus: &&[u32]| pus.iter().any(|pu| used.contains(*pu));
    let own = host.topology.cores.iter().map(|core| core.pus.as_slice()).filter(is_own);
    own.flatten().copied().filter(|pu| !used.contains(*pu)).collect()
}
