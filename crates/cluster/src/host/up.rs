//! Starts a cluster.

use super::wait::wait;
use super::{cluster, users};
use crate::boot::initramfs::Initramfs;
use crate::boot::software::Software;
use crate::error::{error, Error, Result, OUR_FAILURE};
use crate::interrupt;
use crate::launcher::network::{self, Link};
use crate::launcher::options::{Options, Progress};
use crate::launcher::starting::or_exit_reason;
use crate::launcher::traits::{Launcher, StartOptions};
use crate::launcher::{affinity, pool};
use crate::state::directories::{boot_id, channel_socket, cluster_directory, private_directory};
use crate::state::host_pool::{self, HostPool};
use crate::state::lock::lock_cluster;
use crate::state::machine::{state, MachineState};
use crate::state::ports::{self};
use crate::state::process::Process;
use crate::state::record::{Granted, Machine, Record, VERSION};
use crate::state::settings::address;
use crate::state::share::{self, Share};
use std::path::{Path, PathBuf};

/// No launcher has more channels for commands.
const MAX_CHANNELS: usize = 99;

/// The most machines in a cluster.
const MAX_MACHINES: u32 = 32;

/// Starts a cluster. Nothing of it is left if that fails or is interrupted.
pub fn up(launcher: &dyn Launcher, options: &Options, report: &mut dyn FnMut(Progress)) -> Result<Record> {
    // Ctrl-C also reaches the programs that were started: that they failed is not the reason then.
    begin(launcher, options, report).map_err(|error| interrupt::check().err().unwrap_or(error))
}

fn begin(launcher: &dyn Launcher, options: &Options, report: &mut dyn FnMut(Progress)) -> Result<Record> {
    check(options)?;
    check_transport(launcher, options)?;
    launcher.check_host()?;
    launcher.check(options)?;
    let lock = lock_cluster(&options.cluster)?;
    if let Some(record) = Record::read(&options.cluster)? {
        let running = |machine| state(&record, machine) != MachineState::Died;
        if record.machines.iter().any(running) {
            return Err(error!("the cluster {} is already up", options.cluster).hint(
                "See vshmem ps. Stop it with vshmem down, or choose another name with vshmem up --cluster.",
            ));
        }
        if record.is_left_to_restart() {
            let cluster = &options.cluster;
            return Err(
                error!("the machines of the cluster {cluster} have died").hint(format!(
                    "Restart them, with the pool that they had: vshmem restart -c {cluster}. Or remove them: vshmem down -c {cluster}"
                )),
            );
        }
        // Left by an interrupted `up`, or by an earlier boot of the host.
        cluster::remove(&options.cluster, Some(&record))?;
    }
    // The record of a cluster that runs may be lost.
    users::check_unused(&pool::path(&options.cluster).to_string_lossy())
        .map_err(|error| error.code(OUR_FAILURE))?;
    pool::remove(&options.cluster)?;
    let mut started = Started { name: options.cluster.clone(), record: None };
    let record = start(launcher, options, &mut started, report)?;
    started.keep();
    drop(lock);
    Ok(record)
}

fn check(options: &Options) -> Result<()> {
    let wrong = |what: String| Err(Error::new(what).code(2));
    if options.machines == 0 || options.machines > MAX_MACHINES {
        return wrong(format!("a cluster has 1 to {MAX_MACHINES} machines"));
    }
    if options.cpus == 0 || options.cpus > 255 {
        return wrong("a machine has 1 to 255 cores".into());
    }
    if options.memory < 128 << 20 {
        return wrong("a machine needs at least 128M of memory".into());
    }
    if !options.ports.largest.is_power_of_two() || options.ports.largest < vshmem_pool::MIN_POOL {
        return wrong("room for a pool is a power of two, 1M or more: 256M, 1G, 4G".into());
    }
    let ports = options.ports.spare as usize + options.pools.len() + 1;
    if ports > ports::MAX as usize {
        return wrong(format!(
            "a machine has room for {} pools at the most, and this would be {ports}",
            ports::MAX
        ));
    }
    if !options.pool_size.is_power_of_two() || options.pool_size < vshmem_pool::MIN_POOL {
        return wrong("a pool's size is a power of two, 1M or more: 64M, 256M, 1G".into());
    }
    if std::env::consts::ARCH != "x86_64" {
        return Err(Error::new("machines can be started on x86_64 only, so far"));
    }
    Ok(())
}

/// An error unless the launcher has the transport that was chosen.
fn check_transport(launcher: &dyn Launcher, options: &Options) -> Result<()> {
    let Some(transport) = &options.transport else {
        return Ok(());
    };
    let name = launcher.facts().name;
    if !launcher.facts().transports[1..].contains(&transport.as_str()) {
        let all = launcher.facts().transports.join(", ");
        return Err(error!(
            "machines that {name} starts are not given pools by {transport}: choose one of {all}"
        )
        .code(2));
    }
    match options.doorbell {
        Some(true) => Err(error!("there are no doorbells with {transport}").code(2)),
        _ => Ok(()),
    }
}

/// Ends and removes everything that was started, unless it is kept.
struct Started {
    name: String,
    record: Option<Record>,
}

impl Started {
    fn keep(mut self) {
        self.record = None;
        self.name.clear();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.name.is_empty() {
            return;
        }
        let _ = pool::remove(&self.name);
        let _ = cluster::remove(&self.name, self.record.as_ref());
    }
}

fn start(
    launcher: &dyn Launcher,
    options: &Options,
    started: &mut Started,
    report: &mut dyn FnMut(Progress),
) -> Result<Record> {
    let mut message = |text: &str| report(Progress::Message(text.into()));
    let kernel = options.kernel.as_deref();
    let (transport, accel) = (options.transport.as_deref(), options.accel.as_deref());
    let software = launcher.software(transport, kernel, &options.driver, accel, &mut message)?;
    let shares = share::choose(&options.shares, &mut message)?;
    prepare(launcher, options, started, &software, shares)?;
    let initramfs = Initramfs::write(&options.cluster, &software)?;
    let plural = if options.machines == 1 { "" } else { "s" };
    message(&format!("booting {} machine{plural} {}", options.machines, software.description));
    boot(launcher, options, started, &software, &initramfs, &mut message)?;
    let mut record = started.record.clone().expect("boot has put it there");
    pin_cores(launcher, &mut record)?;
    let all = (0..record.machines.len()).collect();
    wait(&record, all, options.timeout, &mut |name| {
        report(Progress::Ready(name.into()));
    })?;
    record.starter = None;
    record.write()?;
    Ok(record)
}

/// A socket's path has 107 bytes at most (unix(7)).
fn check_length(directory: &Path) -> Result<()> {
    let longest = channel_socket(&directory.join("vm31"), MAX_CHANNELS);
    if longest.as_os_str().len() < 108 {
        return Ok(());
    }
    Err(error!("{} is too long a path for a socket", longest.display())
        .hint("Set XDG_RUNTIME_DIR to a private directory of yours with a shorter name."))
}

/// Makes directories, pool and record.
fn prepare(
    launcher: &dyn Launcher,
    options: &Options,
    started: &mut Started,
    software: &Software,
    shares: Vec<Share>,
) -> Result<()> {
    let directory = cluster_directory(&options.cluster)?;
    check_length(&directory)?;
    private_directory(&directory)?;
    let doorbell = launcher.facts().needs_back_end
        && options.transport.is_none()
        && options.doorbell.unwrap_or(software.driver.is_some());
    let pools = first_pools(launcher, options, doorbell)?;
    let machine = |index: u32| Machine {
        name: format!("vm{index}"),
        index,
        since: None,
        runs: None,
        address: options.network.then(|| address(index).to_string()),
        cores: vec![],
        pools: pools.clone(),
    };
    let record = Record {
        version: VERSION,
        name: options.cluster.clone(),
        boot: boot_id(),
        starter: Some(Process::current()),
        owner: None,
        accel: software.accel.into(),
        kernel: software.kernel.image.clone(),
        cpus: options.cpus,
        memory: options.memory,
        pool: launcher.pool_path(&options.cluster),
        pool_size: options.pool_size,
        transport: options.transport.clone(),
        doorbell,
        driver: software.driver.clone(),
        ports: options.ports,
        shares,
        channels: launcher.facts().channels,
        since: vshmem_agent::now(),
        machines: (0..options.machines).map(machine).collect(),
        first_pools: pools.clone(),
    };
    record.write()?;
    started.record = Some(record.clone());
    for machine in &record.machines {
        private_directory(&record.machine_directory(machine)?)?;
    }
    let record = started.record.as_mut().expect("it was just put there");
    launcher.create_pool(record)?;
    if !options.reserve || launcher.facts().has_own_memory {
        return Ok(());
    }
    pools
        .iter()
        .try_for_each(|pool| crate::pools::reserve(&pool.path.to_string_lossy(), host_pool::UNRESERVED))
}

/// The pools that each machine starts with: the cluster's own, then other pools of this host.
fn first_pools(launcher: &dyn Launcher, options: &Options, doorbell: bool) -> Result<Vec<Granted>> {
    let (name, path) = (launcher.pool_name(&options.cluster), launcher.pool_path(&options.cluster));
    let transport = options.transport.clone();
    let mut pools = vec![Granted { transport, ..Granted::new(name, path, options.pool_size, doorbell) }];
    for wanted in &options.pools {
        let HostPool { name, path, size, transport } = HostPool::find(wanted)?.with_name(None)?;
        if let Some(other) = transport.as_ref().filter(|_| transport != options.transport) {
            return Err(error!("the pool {name} was made for machines of --transport {other}").code(2));
        }
        if pools.iter().any(|pool| pool.name == name) {
            return Err(error!("two pools would be called {name}").code(2));
        }
        pools.push(Granted { transport, ..Granted::new(name, path, size, doorbell) });
    }
    Ok(pools)
}

fn boot(
    launcher: &dyn Launcher,
    options: &Options,
    started: &mut Started,
    software: &Software,
    initramfs: &Initramfs,
    report: &mut dyn FnMut(&str),
) -> Result<()> {
    let links = links(options)?;
    let kept = started.record.as_mut().expect("prepare has put it there");
    let doorbell_sockets = serve_doorbells(launcher, options, kept, report)?;
    let record = kept.clone();
    let start =
        StartOptions { software, initramfs, ports: options.ports, doorbell_sockets: &doorbell_sockets };
    for (index, links) in links.into_iter().enumerate() {
        let (running, keep) = launcher.start(&record, index, &start, links)?;
        let kept = started.record.as_mut().expect("prepare has put it there");
        kept.machines[index].runs = Some(running);
        kept.write()?;
        or_exit_reason(launcher, kept, index, keep())?;
    }
    Ok(())
}

/// Makes the back end serve the pools, and reports how waiters are woken. If doorbells were not requested,
/// the machines do without them where they can't be had. Returns the socket of each pool, or none.
fn serve_doorbells(
    launcher: &dyn Launcher,
    options: &Options,
    record: &mut Record,
    report: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let mut doorbell_sockets = Ok(vec![]);
    if let Some(machine) = record.machines.first().filter(|_| record.doorbell) {
        let pools = machine.pools.iter();
        doorbell_sockets = pools.map(|pool| launcher.serve(&pool.path)).collect();
    }
    let doorbell_sockets = match doorbell_sockets {
        Err(error) if options.doorbell.is_none() => {
            report(&format!("no doorbells: {error}"));
            record.doorbell = false;
            let machines = record.machines.iter_mut();
            machines
                .flat_map(|machine| &mut machine.pools)
                .chain(&mut record.first_pools)
                .for_each(|pool| pool.doorbell = false);
            record.write()?;
            vec![]
        }
        other => other?,
    };
    if let Some(transport) = &record.transport {
        report(&format!("the pool comes by {transport}: it is cached, and waiters look every 2 ms"));
        return Ok(doorbell_sockets);
    }
    report(&match &record.driver {
        Some(driver) if launcher.wakes(record) => {
            format!("machines wake each other's waiters ({})", driver.display())
        }
        Some(driver) => format!("no doorbells: waiters look every 2 ms ({})", driver.display()),
        None => "no vshmem.ko for this kernel: waiters look every 2 ms, and pools are mapped uncached (see kmod/README.md)".into(),
    });
    Ok(doorbell_sockets)
}

/// The machines' ends of the network's links, if there is a network.
fn links(options: &Options) -> Result<Vec<Option<Vec<Link>>>> {
    if !options.network || options.machines < 2 {
        return Ok((0..options.machines).map(|_| None).collect());
    }
    let links = network::star(options.machines)?.into_iter();
    Ok(links.map(Some).collect())
}

/// Pins virtual cores if each can have a core of its own: two of them that spin must never share one.
fn pin_cores(launcher: &dyn Launcher, record: &mut Record) -> Result<()> {
    if !launcher.facts().can_pin {
        return Ok(());
    }
    let taken = cluster::cores_in_use(&record.name)?;
    let mut cores = affinity::available_cores();
    cores.retain(|core| !taken.contains(core));
    let count = record.machines.len() as u32;
    let Some(shares) = affinity::assign_cores(&cores, count, record.cpus) else {
        return Ok(());
    };
    for (index, share) in shares.into_iter().enumerate() {
        or_exit_reason(launcher, record, index, launcher.pin(record, index, &share))?;
        record.machines[index].cores = share;
    }
    Ok(())
}
