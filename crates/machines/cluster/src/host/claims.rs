//! Claims of machines to memory and cores of this host, made before they start, so that two commands don't
//! give away the same.
//!
//! A record is the claim: it is written before anything starts, under a lock that all commands of this user
//! take for it. A machine that starts or runs claims its memory and the overhead of running it. Memory that
//! it has touched already is not available any more, so it does not count again.

use super::{accounts, pages};
use std::fs;
use vshmem_base::directories::{cluster_names, runtime_directory};
use vshmem_base::error::{error, Result};
use vshmem_base::lock::{lock_at, wait_for_lock, CLAIMS};
use vshmem_base::{memory, size};
use vshmem_hypervisor::launcher::table;
use vshmem_hypervisor::running::Running;
use vshmem_hypervisor::state::machine::{state, MachineState};
use vshmem_hypervisor::state::record::{Machine, Record};

/// Bytes of memory that running a machine takes besides its own: the program, its threads, the page tables.
const OVERHEAD: u64 = 64 << 20;

/// Claims memory for the machines of this record with these indices, in the pages that they are to have, and
/// the cores that `place` gives them, by writing the record. An error if this host does not have as much.
pub fn claim(
    record: &mut Record,
    indices: &[usize],
    overcommit: bool,
    mut place: impl FnMut(&mut Record) -> Result<()>,
) -> Result<()> {
    let any = overcommit || table::of(record).facts().has_own_memory;
    claim_cores(record, |record| {
        with_pages(record, indices, |record| {
            if !any {
                check(record, indices)?;
            }
            place(record)
        })
    })
}

/// Claims pages and cores for machines of a record that are restarted: they have claimed their memory
/// already.
pub fn claim_again(
    record: &mut Record,
    indices: &[usize],
    place: impl FnMut(&mut Record) -> Result<()>,
) -> Result<()> {
    claim_cores(record, |record| with_pages(record, indices, place))
}

/// Chooses pages for machines, and then places them: again, with the next best pages, if these can't be had
/// where they would be.
fn with_pages(
    record: &mut Record,
    indices: &[usize],
    mut place: impl FnMut(&mut Record) -> Result<()>,
) -> Result<()> {
    accounts::assign(record, indices)?;
    pages::choose_pages(record, indices)?;
    loop {
        match place(record) {
            Err(why) if pages::demote(record, indices, &why) => (),
            placed => return placed,
        }
    }
}

/// Claims the cores that `place` gives machines of a record, by writing it.
pub fn claim_cores(record: &mut Record, place: impl FnOnce(&mut Record) -> Result<()>) -> Result<()> {
    let file = runtime_directory()?.join(CLAIMS);
    let lock = wait_for_lock("what machines have of this host", || lock_at(&file))?;
    let claimed = place(record).and_then(|()| record.write());
    let _ = fs::remove_file(&file);
    drop(lock);
    claimed
}

/// An error unless this host has the memory for these machines.
fn check(record: &Record, indices: &[usize]) -> Result<()> {
    let claims = indices.iter().map(|&index| claim_of(&record.machines[index]));
    let wanted = claims.fold(0, u64::saturating_add);
    // Where that is not known, the host decides.
    let Some(available) = memory::available() else {
        return Ok(());
    };
    let claimed = claimed(record, indices)?;
    let left = available.saturating_sub(claimed);
    if wanted <= left {
        return Ok(());
    }
    let plural = if indices.len() == 1 { " takes" } else { "s take" };
    let (wanted, count, overhead) = (size::show(wanted), indices.len(), size::show(OVERHEAD));
    let others = match claimed {
        0 => String::new(),
        _ => format!(", of which machines that run may still take {}", size::show(claimed)),
    };
    Err(error!("this host does not have the memory: {count} machine{plural} {wanted}, {overhead} of it each to run, and {} are available{others}", size::show(available))
    .hint("Give them less (--memory), end others (vshmem ps), or start them all the same: --overcommit. A host without memory kills some of them."))
}

/// Bytes of claimed memory that machines of this user may still touch, without the machines of this record
/// with these indices.
fn claimed(record: &Record, indices: &[usize]) -> Result<u64> {
    let mut sum = 0u64;
    for name in cluster_names()? {
        if name == record.name {
            continue;
        }
        // An unreadable record does not keep another cluster from being started.
        if let Some(other) = Record::read(&name).ok().flatten() {
            let others = other.machines.iter().map(|machine| outstanding(&other, machine));
            sum = others.fold(sum, u64::saturating_add);
        }
    }
    let ours = record.machines.iter().enumerate().filter(|(index, _)| !indices.contains(index));
    Ok(ours.map(|(_, machine)| outstanding(record, machine)).fold(sum, u64::saturating_add))
}

/// Bytes that a machine claims and has not touched.
fn outstanding(record: &Record, machine: &Machine) -> u64 {
    if state(record, machine) == MachineState::Died || table::of(record).facts().has_own_memory {
        return 0;
    }
    let pid = machine.runs.as_ref().and_then(Running::pid);
    let touched = pid.and_then(|pid| memory::of_process(pid, "RssAnon"));
    claim_of(machine).saturating_sub(touched.unwrap_or(0))
}

/// Bytes that a machine claims. Reserved pages do not count: others could not have them.
fn claim_of(machine: &Machine) -> u64 {
    let own = if machine.pages.reserved().is_some() { 0 } else { machine.memory };
    own.saturating_add(OVERHEAD)
}
