//! The restart of machines of a cluster: those that died, and running ones, whose power is cut.

use super::up::check_image;
use super::wait::wait;
use super::{batches, claims, cluster, devices, placing, roots, serving};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;
use vshmem_base::directories::{boot_id, private_directory};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::lock::{try_lock_cluster, wait_for_lock, Lock};
use vshmem_base::{interrupt, memory};
use vshmem_hypervisor::boot::driver;
use vshmem_hypervisor::boot::initramfs_files::Initramfs;
use vshmem_hypervisor::boot::software::Software;
use vshmem_hypervisor::launcher::options::Progress;
use vshmem_hypervisor::launcher::starting::or_exit_reason;
use vshmem_hypervisor::launcher::table;
use vshmem_hypervisor::launcher::traits::{StartOptions, Started};
use vshmem_hypervisor::running::Running;
use vshmem_hypervisor::shared::sockets::remove_sockets;
use vshmem_hypervisor::state::disks::remove_cluster_directory;
use vshmem_hypervisor::state::machine::{index_of, no_cluster, state, MachineState};
use vshmem_hypervisor::state::record::{Granted, Machine, Record};
use vshmem_hypervisor::template::templates::Templates;

/// Time that a machine may take to shut down.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The pools of machines that are restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPools {
    /// The pools that they start with, though they may have lost them since.
    First,
    /// The pools that they start with and had at last.
    Last,
}

/// Pools of machines, by the machines' names.
pub type Later = Vec<(String, Vec<Granted>)>;

/// Restarts the machines of these names together, with the pools that they had after `up`. Before that, their
/// processes are declared dead, so that no process waits for them; other machines run on. Pools that were
/// granted later are lost.
pub fn restart(
    cluster: &str,
    names: &[String],
    timeout: Duration,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    restart_with(cluster, names, RestartPools::First, timeout, report).map(drop)
}

/// Restarts the machines of these names together, as [`restart`] does, with these pools. Returns the pools
/// that were granted later.
pub fn restart_with(
    cluster: &str,
    names: &[String],
    pools: RestartPools,
    timeout: Duration,
    report: &mut dyn FnMut(Progress),
) -> Result<Later> {
    let lock = wait_for_lock(&format!("the cluster {cluster}"), || try_lock_cluster(cluster))?;
    let (mut record, indices) = find(cluster, names, &lock)?;
    // Failures that can be foreseen occur before anything is ended.
    check(&record, &indices)?;
    let launcher = table::of(&record);
    let software = {
        let mut report = |_: &str| ();
        let driver = match &record.driver {
            Some(path) => driver::Choice::File(path.clone()),
            None => driver::Choice::None,
        };
        let (kernel, accel) = (Some(record.kernel.as_path()), Some(record.accel.as_str()));
        let transport = record.other_transport();
        launcher.software(transport, kernel, &driver, accel, &mut report)?
    };
    let images = record.machines.iter().map(|it| &it.image);
    let initramfs = Initramfs::write(cluster, &software, images, record.root.is_some())?;
    for &index in &indices {
        serving::sockets(launcher, &record, &record.machines[index].first_pools)?;
    }
    devices::claim(&mut record, &indices, |record| {
        claims::claim_again(record, &indices, |record| placing::place_anew(record, &indices))
    })?;
    let restart_options = RestartOptions { pools, timeout };
    let templates = Templates::new(!record.options.as_ref().is_some_and(|options| options.cold));
    let later = restart_all(record, &indices, (&software, &initramfs, &templates), restart_options, report)
        .map_err(|error| interrupt::check().err().unwrap_or(error))?;
    drop(lock);
    Ok(later)
}

/// Options of a restart.
#[derive(Clone, Copy)]
struct RestartOptions {
    pools: RestartPools,
    timeout: Duration,
}

/// The cluster's record, and the indices of the machines of these names; if there are none, of all that died.
fn find(cluster: &str, names: &[String], _lock: &Lock) -> Result<(Record, Vec<usize>)> {
    let Some(record) = Record::read(cluster)? else {
        // Taking the lock has made its file.
        remove_cluster_directory(cluster)?;
        return Err(no_cluster(cluster));
    };
    if record.boot != boot_id() {
        return Err(error!("the cluster {cluster} ended with this host")
            .hint(format!("Start it with: vshmem up --cluster {cluster}")));
    }
    let state = |index: usize| state(&record, &record.machines[index]);
    let mut indices = Vec::new();
    for name in names {
        let index = index_of(&record, name)?;
        if state(index) == MachineState::Starting {
            return Err(error!("{name} is being started"));
        }
        if !indices.contains(&index) {
            indices.push(index);
        }
    }
    if names.is_empty() {
        let all = 0..record.machines.len();
        indices.extend(all.filter(|&index| state(index) == MachineState::Died));
    }
    if indices.is_empty() {
        return Err(error!("no machine of the cluster {cluster} has died")
            .hint("To restart machines that run, name them."));
    }
    Ok((record, indices))
}

/// An error if these machines can't be started, as far as that can be known while they run.
fn check(record: &Record, indices: &[usize]) -> Result<()> {
    let launcher = table::of(record);
    launcher.check_host()?;
    launcher.check_restart(record)?;
    indices.iter().try_for_each(|&index| check_pools(record, &record.machines[index]))?;
    for share in &record.shares {
        share.path.metadata().explain(|| {
            let path = share.path.display();
            format!("the machines share {path} with this host, which can't be examined")
        })?;
    }
    for &index in indices {
        let machine = &record.machines[index];
        check_image(launcher, &machine.name, &machine.image)?;
        private_directory(&record.machine_directory(machine)?)?;
        launcher.has_pool(record, machine)?;
        if launcher.facts().has_own_memory || machine.pages.reserved().is_some() {
            continue;
        }
        // The memory of a machine that runs will be free again.
        let promised = state(record, machine) == MachineState::Died;
        memory::check_available(machine.memory, promised).explain(|| {
            let (name, memory) = (&machine.name, machine.memory >> 20);
            format!("this host does not give {name} its {memory} MiB of memory")
        })?;
    }
    Ok(())
}

/// An error unless the pools that a machine starts with exist.
fn check_pools(record: &Record, machine: &Machine) -> Result<()> {
    let anew =
        format!("Start the cluster again with: vshmem down -c {0} && vshmem up --cluster {0}", record.name);
    if machine.cpus == 0 {
        return Err(
            Error::new("this cluster was started by an older vshmem, whose record is incomplete").hint(anew)
        );
    }
    for pool in &machine.first_pools {
        open(&pool.path)
            .explain(|| {
                format!(
                    "the machines had the pool {}, and {} can't be opened",
                    pool.name,
                    pool.path.display()
                )
            })
            .map_err(|error| error.hint(&*anew))?;
    }
    Ok(())
}

/// Opens a file to read and write.
fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// A machine that is ended unless it comes up.
struct Starting(Option<Running>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(running) = &self.0 {
            running.end(Duration::ZERO);
        }
    }
}

fn restart_all(
    mut record: Record,
    indices: &[usize],
    start: (&Software, &Initramfs, &Templates),
    restart_options: RestartOptions,
    report: &mut dyn FnMut(Progress),
) -> Result<Later> {
    // All of them first, so that none is linked to one that ends.
    let mut later = Vec::new();
    for &index in indices {
        later.push((record.machines[index].name.clone(), end(&mut record, index, restart_options.pools)?));
    }
    roots::ensure(&mut record, &mut |text| report(Progress::Message(text.into())))?;
    devices::bind(&record, indices)?;
    let cpus: Vec<u32> = indices.iter().map(|&index| record.machines[index].cpus).collect();
    for batch in batches::of(&cpus) {
        let mut starting = Vec::new();
        for &index in &indices[batch.clone()] {
            starting.push((index, begin(&mut record, index, start, report)?));
        }
        wait(&record, indices[batch.clone()].to_vec(), restart_options.timeout, &mut |name| {
            // It stays even if others fail.
            for (index, machine) in &mut starting {
                if record.machines[*index].name == name {
                    machine.0 = None;
                }
            }
            report(Progress::Ready(name.into()));
        })?;
        check_placed(&mut record, &indices[batch], report)?;
    }
    Ok(later)
}

/// An error if machines that are up are not placed as they must be, which end then. The others stay.
fn check_placed(record: &mut Record, indices: &[usize], report: &mut dyn FnMut(Progress)) -> Result<()> {
    let launcher = table::of(record);
    let mut outcome = Ok(());
    for &index in indices {
        if let Err(why) = placing::check(launcher, record, index, report) {
            if let Some(running) = &record.machines[index].runs {
                running.end(Duration::ZERO);
            }
            outcome = outcome.and(Err(why));
        }
    }
    record.write()?;
    outcome
}

/// Starts the machine again, and updates the record.
fn begin(
    record: &mut Record,
    index: usize,
    (software, initramfs, templates): (&Software, &Initramfs, &Templates),
    report: &mut dyn FnMut(Progress),
) -> Result<Starting> {
    let launcher = table::of(record);
    let links = match record.machines[index].address {
        Some(_) => {
            Some(launcher.reconnect(record, index, &mut |text| report(Progress::Message(text.into())))?)
        }
        None => None,
    };
    let sockets = serving::sockets(launcher, record, &record.machines[index].pools)?;
    let start =
        StartOptions { software, initramfs, ports: record.ports, templates, doorbell_sockets: &sockets };
    let Started { running, keep, populated } = launcher.start(record, index, &start, links, report)?;
    let starting = Starting(Some(running.clone()));
    record.machines[index].runs = Some(running);
    (record.machines[index].pages.populated, record.machines[index].resident) = (populated, None);
    record.machines[index].since = Some(vshmem_agent::now());
    record.write()?;
    or_exit_reason(launcher, record, index, keep())?;
    or_exit_reason(launcher, record, index, placing::pin(launcher, record, index, report))?;
    Ok(starting)
}

/// Ends a machine if it runs, declares it dead in its pools, and gives it those of these that it started
/// with. Returns those that it was granted later.
fn end(record: &mut Record, index: usize, pools: RestartPools) -> Result<Vec<Granted>> {
    if let Some(running) = record.machines[index].runs.as_ref().filter(|it| it.alive()) {
        running.end(EXIT_TIMEOUT);
        if running.alive() {
            let name = &record.machines[index].name;
            return Err(error!("{name} does not turn off"));
        }
    }
    cluster::declare_one_dead(record, index);
    let machine = &mut record.machines[index];
    let mut had = std::mem::take(&mut machine.pools);
    had.append(&mut machine.lost_pools);
    let has = |all: &[Granted], pool: &Granted| all.iter().any(|other| other.path == pool.path);
    machine.pools.clone_from(&machine.first_pools);
    if pools == RestartPools::Last {
        machine.pools.retain(|pool| has(&had, pool));
    }
    had.retain(|pool| !has(&machine.first_pools, pool));
    machine.outdated = false;
    // Even if `up` was interrupted: from now on there is something to keep.
    record.starter = None;
    // Old sockets would be taken for those of the new machine.
    remove_sockets(&record.machine_directory(&record.machines[index])?);
    record.write()?;
    Ok(had)
}
