//! Devices of this host for machines: claimed before these start, bound to the driver by which they are
//! given, and given back once the machines are gone.
//!
//! The ledger names the holder of each device (`vshmem_devices`); the record of a cluster says whether the
//! holder still lives. So devices that a killed command has left are given back by the next command.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vshmem_base::directories::{boot_id, cluster_directory, private_directory, runtime_path};
use vshmem_base::error::{error, Error, Result};
use vshmem_base::interrupt;
use vshmem_base::lock::{lock_at, wait_for_lock, DEVICES};
use vshmem_devices::choose::{Assigned, Request};
use vshmem_devices::function::Function;
use vshmem_devices::hold::Devices;
use vshmem_devices::ledger::{FileStore, Held, Holder, Ledger, Store};
use vshmem_devices::obstacle::memlock;
use vshmem_devices::survey::{Survey, User};
use vshmem_devices::tree::Directory;
use vshmem_devices::want::{Want, Which};
use vshmem_hypervisor::launcher::options::ClusterOptions;
use vshmem_hypervisor::state::machine::{state, MachineState};
use vshmem_hypervisor::state::record::{Machine, Record};
use vshmem_placement::cpuset::CpuSet;

/// The directory of root's ledger, in spite of its environment: the devices are the host's.
const OF_ROOT: &str = "/run/vshmem-devices";
/// Time that the kernel may take to let go of the devices of a machine that was killed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The devices that machines hold, by this user's ledger.
///
/// # Errors
/// It can't be read.
pub fn held() -> Result<Vec<Held>> {
    Ok(Ledger::read(&Directory::live(), &FileStore::in_directory(&directory()))?.held)
}

fn directory() -> PathBuf {
    match User::current().is_root {
        true => OF_ROOT.into(),
        false => runtime_path(),
    }
}

/// Runs a function on the devices, under their lock.
fn with<T>(work: impl FnOnce(&mut Devices<'_>) -> Result<T>) -> Result<T> {
    let directory = directory();
    private_directory(&directory)?;
    let file = directory.join(DEVICES);
    let lock = wait_for_lock("the devices of this host", || lock_at(&file))?;
    let (tree, store) = (Directory::live(), FileStore::in_directory(&directory));
    let done = Devices::open(&tree, &store).and_then(|mut devices| work(&mut devices));
    let _ = fs::remove_file(&file);
    drop(lock);
    done
}

/// Whether the ledger of devices exists yet.
fn is_used() -> bool {
    !matches!(FileStore::in_directory(&directory()).load(), Ok(None))
}

fn holder(record: &Record, machine: &Machine) -> Result<Holder> {
    Ok(Holder { cluster: cluster_directory(&record.name)?, machine: machine.name.clone() })
}

/// Whether a machine may still want what it holds: it may have died, and be restarted; but a cluster that did
/// not come up is gone.
fn lives(holder: &Holder) -> bool {
    let record = match Record::read_in(&holder.cluster) {
        Ok(Some(record)) => record,
        Ok(None) => return false,
        // It can't be told.
        Err(_) => return true,
    };
    let runs = |machine| state(&record, machine) != MachineState::Died;
    let is_up = record.starter.is_none() || record.machines.iter().any(runs);
    record.boot == boot_id() && is_up && record.machines.iter().any(|machine| machine.name == holder.machine)
}

/// Claims devices for these machines of a record, as its options say, and has the record written. No driver
/// is changed yet.
///
/// # Errors
/// A machine can't have what it asks for, or the record is not written: then nothing is claimed.
pub fn claim(
    record: &mut Record,
    indices: &[usize],
    write: impl FnOnce(&mut Record) -> Result<()>,
) -> Result<()> {
    let requests = requests(record, indices)?;
    let has_some = indices.iter().any(|&index| !record.machines[index].devices.is_empty());
    if !has_some && requests.iter().all(|request| request.wants.is_empty()) {
        return write(record);
    }
    let user = User::current();
    with(|devices| {
        // What can't be given back is not free: that is told where it is wanted.
        let left = devices.repair(&lives);
        let before = devices.held().to_vec();
        let got = devices.claim(&requests, Some(user));
        let got = got.map_err(|why| left.err().map_or(why.clone(), |left| left.about(&why.to_string())))?;
        for (&index, its) in indices.iter().zip(got) {
            record.machines[index].devices = its;
        }
        let locked = indices.iter().try_for_each(|&index| check_memlock(&record.machines[index], user));
        locked.and_then(|()| write(record)).inspect_err(|_| {
            // What can't be given back stays in the ledger.
            let _ = devices.go_back(before);
        })
    })
}

/// Whether machines of these options ask for virtual functions, which are made when they are claimed.
pub fn are_made(options: &ClusterOptions) -> bool {
    let mut wants = options.machines.iter().flat_map(|machine| &machine.devices);
    wants.any(|want| matches!(want.which, Which::VirtualOf(_)))
}

/// An error if a function is asked for by an address at which this host has none.
///
/// # Errors
/// That.
pub fn check_addresses(options: &ClusterOptions) -> Result<()> {
    let survey = Survey::of(&Directory::live());
    let mut wants = options.machines.iter().flat_map(|machine| &machine.devices);
    wants.try_for_each(|want| match want.which {
        Which::At(address) | Which::VirtualOf(address) if survey.find(address).is_none() => {
            Err(error!("there is no PCI function {address}").code(1).hint("See vshmem devices."))
        }
        _ => Ok(()),
    })
}

fn requests(record: &Record, indices: &[usize]) -> Result<Vec<Request>> {
    let options = record.options.as_ref();
    let request = |&index: &usize| {
        let machine = &record.machines[index];
        let its = options.and_then(|options| options.machines.iter().find(|it| it.name == machine.name));
        let wants = its.map(|its| its.devices.clone()).unwrap_or_default();
        Ok(Request { holder: holder(record, machine)?, wants })
    };
    indices.iter().map(request).collect()
}

/// An error unless this user may lock what a machine with devices takes: its memory and its pools'.
fn check_memlock(machine: &Machine, user: User) -> Result<()> {
    if machine.devices.is_empty() {
        return Ok(());
    }
    let pools = machine.first_pools.iter().map(|pool| pool.size).sum::<u64>();
    match memlock(user, machine.memory.saturating_add(pools)) {
        None => Ok(()),
        Some(it) => Err(Error::new(format!("{} does not get its devices: {}", machine.name, it.why))
            .hint(format!("To mend it, {}.", it.remedy))),
    }
}

/// Warnings of machines whose devices are near to a memory node, while they have no placement.
pub fn unplaced(record: &Record) -> Vec<String> {
    let nodes = fs::read_to_string("/sys/devices/system/node/has_cpu").unwrap_or_default();
    if !nodes.contains(['-', ',']) {
        return vec![];
    }
    let near = |machine: &&Machine| machine.placement.is_none() && !nodes_of(&machine.devices).is_empty();
    let said = |machine: &Machine| {
        let (name, nodes) = (&machine.name, nodes_of(&machine.devices));
        format!("the devices of {name} are near node {nodes}, and it runs anywhere: ask for a [placement]")
    };
    record.machines.iter().filter(near).map(said).collect()
}

/// The memory nodes that devices are near to.
pub fn nodes_of(devices: &[Assigned]) -> CpuSet {
    devices.iter().filter_map(|device| device.node).collect()
}

/// The memory nodes that devices are near to which a machine asks for, as far as that does not depend on
/// which it gets.
pub fn near(wants: &[Want]) -> CpuSet {
    let survey = Survey::of(&Directory::live());
    let of = |want: &Want| {
        let will_do = |it: &&Function| match want.which {
            Which::VirtualOf(physical) => it.address == physical,
            _ => want.which.is(it),
        };
        let nodes: Vec<Option<u32>> = survey.functions.iter().filter(will_do).map(|it| it.node).collect();
        nodes.first().copied().flatten().filter(|node| nodes.iter().all(|it| *it == Some(*node)))
    };
    wants.iter().filter_map(of).collect()
}

/// Binds the devices of these machines, none of which runs, to the driver by which they are given; and gives
/// back what these machines have held and don't get any more.
///
/// # Errors
/// One can't be bound. All have the drivers again that they had.
pub fn bind(record: &Record, indices: &[usize]) -> Result<()> {
    if !is_used() {
        return Ok(());
    }
    let holders: Vec<Holder> =
        indices.iter().map(|&index| holder(record, &record.machines[index])).collect::<Result<_>>()?;
    let is_wanted = |held: &Held| {
        let its = indices.iter().flat_map(|&index| &record.machines[index].devices);
        // What is held for the sake of others goes with the last of its group.
        let mut its = its.filter(|it| it.address == held.address || !held.given && it.group == held.group);
        its.next().is_some()
    };
    with(|devices| {
        devices.release(&|held| holders.contains(&held.holder) && !is_wanted(held))?;
        devices.bind(&|held| holders.contains(&held.holder))
    })
}

/// Gives back what a machine of the cluster with this directory holds, or all of them. They don't run.
///
/// # Errors
/// Something can't be given back. It stays in the ledger, so the next command tries it again.
pub fn release(cluster: &Path, machine: Option<&str>) -> Result<()> {
    if !is_used() {
        return Ok(());
    }
    let is_its = |holder: &Holder| {
        holder.cluster == cluster && machine.is_none_or(|machine| holder.machine == machine)
    };
    let give_back = || with(|devices| devices.repair(&|holder| !is_its(holder) && lives(holder)));
    let mut outcome = Ok(());
    interrupt::repeat(CLOSE_TIMEOUT, Duration::from_millis(200), || {
        outcome = give_back();
        let is_left = || held().is_ok_and(|all| all.iter().any(|held| is_its(&held.holder)));
        (outcome.is_ok() || !is_left()).then_some(())
    });
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use vshmem_base::process::Process;

    #[test]
    fn a_holder_lives_as_long_as_its_cluster_may_use_it() {
        let directory = std::env::temp_dir().join(format!("vshmem-holder-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let lives = |machine: &str| lives(&Holder { cluster: directory.clone(), machine: machine.into() });
        let write = |boot: &str, starter: Option<Process>| {
            let record = json!({
                "version": 2, "name": "n", "boot": boot, "starter": starter, "accel": "", "kernel": "/k", "pool": "/p",
                "pool_size": 1 << 20, "channels": 1, "since": 0,
                "machines": [{"name": "a", "index": 0, "runs": null, "address": null, "cores": []}]});
            fs::write(directory.join("cluster.json"), record.to_string()).unwrap();
        };
        assert!(!lives("a"), "there is no record");
        write(&boot_id(), None);
        assert!(lives("a") && !lives("b"), "a machine that has died may be restarted");
        write(&boot_id(), Some(Process::current()));
        assert!(lives("a"), "it is being started");
        write(&boot_id(), Some(Process { started: 0, ..Process::current() }));
        assert!(!lives("a"), "its command was killed");
        write("another", None);
        assert!(!lives("a"));
        fs::write(directory.join("cluster.json"), "{").unwrap();
        assert!(lives("a"), "it can't be told");
        fs::remove_dir_all(&directory).unwrap();
    }
}
