//! The start of a cluster.

use super::together::{start_all, Common};
use super::wait::wait;
use super::{batches, claims, cluster, devices, made_pools, placing, roots, serving, users};
use crate::description::machines::MAX_NAME;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vshmem_base::directories::{boot_id, channel_socket, cluster_directory, private_directory};
use vshmem_base::error::{error, Error, Result, OUR_FAILURE};
use vshmem_base::interrupt;
use vshmem_base::lock::lock_cluster;
use vshmem_base::process::Process;
use vshmem_guest::settings::address;
use vshmem_hypervisor::boot::image::Image;
use vshmem_hypervisor::boot::initramfs_files::Initramfs;
use vshmem_hypervisor::boot::software::Software;
use vshmem_hypervisor::launcher::options::{ClusterOptions, MachineOptions, Progress, RootKind};
use vshmem_hypervisor::launcher::starting::or_exit_reason;
use vshmem_hypervisor::launcher::traits::{self, Launcher};
use vshmem_hypervisor::shared::network::{self, Link};
use vshmem_hypervisor::shared::pool;
use vshmem_hypervisor::state::disks;
use vshmem_hypervisor::state::machine::{state, MachineState};
use vshmem_hypervisor::state::record::{Granted, Machine, MadePool, Record, VERSION};
use vshmem_hypervisor::template::templates::Templates;
use vshmem_inspect::host_pool::{self, HostPool};
use vshmem_session::share::{self, Share};

/// Channels for commands that any launcher has at the most.
const MAX_CHANNELS: usize = 99;

/// Options of a start, which are no options of the cluster.
#[derive(Debug, Clone, Copy)]
pub struct UpOptions {
    /// Time limit for booting machines that boot together.
    pub timeout: Duration,
    /// Start though this host may not have all of the machines' memory.
    pub overcommit: bool,
}

/// Starts a cluster. Nothing of it is left if that fails or is interrupted.
pub fn up(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    up_options: UpOptions,
    report: &mut dyn FnMut(Progress),
) -> Result<Record> {
    // Ctrl-C also reaches the programs that were started: that they failed is not the reason then.
    begin(launcher, options, up_options, report).map_err(|error| interrupt::check().err().unwrap_or(error))
}

fn begin(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    up_options: UpOptions,
    report: &mut dyn FnMut(Progress),
) -> Result<Record> {
    check_host(launcher, options)?;
    let lock = loop {
        let lock = lock_cluster(&options.cluster)?;
        let record = Record::read(&options.cluster)?;
        record.as_ref().map_or(Ok(()), check_ended)?;
        if record.is_none() {
            // The record of a cluster that runs may be lost.
            check_unused(&own_pools(options))?;
            if !cluster_directory(&options.cluster)?.exists() {
                break lock;
            }
        }
        // Left by an interrupted command, or by an earlier boot of the host. The lock's file goes with it.
        cluster::remove(&options.cluster, record.as_ref())?;
    };
    disks::remove(&options.cluster)?;
    let made = own_pools(options);
    made.iter().try_for_each(|name| pool::remove(name))?;
    let mut started = Started { name: options.cluster.clone(), pools: made, record: None };
    let record = start(launcher, options, up_options, &mut started, report)?;
    started.keep();
    drop(lock);
    Ok(record)
}

/// An error unless machines of these options can be started on this host, as far as files tell.
pub(super) fn check_host(launcher: &dyn Launcher, options: &ClusterOptions) -> Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(Error::new("machines can be started on x86_64 only, so far"));
    }
    launcher.check_host()?;
    options.machines.iter().try_for_each(|machine| check_image(launcher, &machine.name, &machine.image))
}

/// An error if anybody uses pools that are to be made anew.
pub(super) fn check_unused(pools: &[String]) -> Result<()> {
    let path = |name: &String| pool::path(name).to_string_lossy().into_owned();
    let check = |name| users::check_unused(&path(name)).map_err(|error| error.code(OUR_FAILURE));
    pools.iter().try_for_each(check)
}

/// An error unless nothing of a cluster runs, or is to be kept.
pub(super) fn check_ended(record: &Record) -> Result<()> {
    let cluster = &record.name;
    let running = |machine| state(record, machine) != MachineState::Died;
    if record.machines.iter().any(running) {
        return Err(error!("the cluster {cluster} is already up").hint(format!(
            "See vshmem ps. More machines: vshmem grow -c {cluster}. Its end: vshmem down -c {cluster}. Another one beside \
             it: vshmem up --cluster NAME."
        )));
    }
    if record.is_left_to_restart() {
        return Err(error!("the machines of the cluster {cluster} have died").hint(format!(
            "Restart them, with the pool that they had: vshmem restart -c {cluster}. Or remove them: vshmem down -c {cluster}"
        )));
    }
    Ok(())
}

/// An error unless a machine of this name can boot this image, as far as its files tell.
pub fn check_image(launcher: &dyn Launcher, name: &str, image: &Image) -> Result<()> {
    let checked = image.system().map_or(Ok(()), |system| launcher.check_image(system));
    checked.map_err(|error| error.about(&format!("{name} can't boot {image}")))
}

/// The started parts of a cluster. They are ended and removed, unless they are kept.
struct Started {
    name: String,
    /// The pools that are made.
    pools: Vec<String>,
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
        for pool in &self.pools {
            let _ = pool::remove(pool);
        }
        let _ = cluster::remove(&self.name, self.record.as_ref());
    }
}

/// The names on this host of the pools that are made for a cluster, its own first.
pub(super) fn own_pools(options: &ClusterOptions) -> Vec<String> {
    let further = options.pools[1..].iter().filter(|pool| pool.host.is_none());
    let further = further.map(|further| pool::further(&options.cluster, &further.name));
    std::iter::once(pool::own(&options.cluster)).chain(further).collect()
}

fn start(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    up_options: UpOptions,
    started: &mut Started,
    report: &mut dyn FnMut(Progress),
) -> Result<Record> {
    let mut message = |text: &str| report(Progress::Message(text.into()));
    let kernel = options.kernel.as_deref();
    let pools = find_pools(launcher, options)?;
    let transport = pools.iter().find_map(|pool| pool.transport.as_deref());
    let software =
        launcher.software(transport, kernel, &options.driver, options.accel.as_deref(), &mut message)?;
    let shares = share::choose(&options.shares, options.root == RootKind::Erofs, &mut message)?;
    prepare(launcher, options, up_options, started, &software, (pools, shares), report)?;
    let record = started.record.as_mut().expect("prepare has put it there");
    roots::ensure(record, &mut |text| report(Progress::Message(text.into())))?;
    let has_disk = record.root.is_some();
    let unplaced = started.record.iter().flat_map(devices::unplaced);
    for text in unplaced.chain(crowded(launcher, options)) {
        report(Progress::Warning(text));
    }
    let mut message = |text: &str| report(Progress::Message(text.into()));
    let images = options.machines.iter().map(|it| &it.image);
    let initramfs = Initramfs::write(&options.cluster, &software, images, has_disk)?;
    let (count, plural) = (options.machines.len(), if options.machines.len() == 1 { "" } else { "s" });
    message(&format!("starting {count} machine{plural} {}", software.description));
    boot(launcher, options, up_options, started, (&software, &initramfs), report)?;
    let record = started.record.as_mut().expect("boot has put it there");
    record.starter = None;
    record.write()?;
    Ok(record.clone())
}

/// Warnings of machines with more cores than this host has.
fn crowded(launcher: &dyn Launcher, options: &ClusterOptions) -> Vec<String> {
    let known = std::thread::available_parallelism().ok().filter(|_| !launcher.facts().has_own_memory);
    let Some(processors) = known else { return vec![] };
    let machines = options.machines.iter().filter(|machine| machine.cpus as usize > processors.get());
    let warning = |machine: &MachineOptions| {
        format!(
            "{} has {} cores, and this host {processors}: they wait for each other",
            machine.name, machine.cpus
        )
    };
    machines.map(warning).collect()
}

/// A socket's path has 107 bytes at most (unix(7)).
pub(super) fn check_length(directory: &Path) -> Result<()> {
    let longest = channel_socket(&directory.join("x".repeat(MAX_NAME)), MAX_CHANNELS);
    if longest.as_os_str().len() < 108 {
        return Ok(());
    }
    Err(error!("{} is too long a path for a socket", longest.display())
        .hint("Set XDG_RUNTIME_DIR to a private directory of yours with a shorter name."))
}

/// Makes directories, pools and record.
fn prepare(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    up_options: UpOptions,
    started: &mut Started,
    software: &Software,
    (mut pools, shares): (Vec<Granted>, Vec<Share>),
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    let directory = cluster_directory(&options.cluster)?;
    check_length(&directory)?;
    private_directory(&directory)?;
    let doorbell = launcher.facts().needs_back_end && options.doorbell.unwrap_or(software.driver.is_some());
    for pool in &mut pools {
        pool.doorbell = doorbell && pool.transport.is_none();
    }
    let mut record = Record {
        accel: software.accel.into(),
        kernel: software.kernel.image.clone(),
        driver: software.driver.clone(),
        root: roots::of(launcher, options, software, &mut |text| report(Progress::Message(text.into()))),
        ..new_record(launcher, options, &pools, shares)
    };
    let all: Vec<usize> = (0..record.machines.len()).collect();
    devices::claim(&mut record, &all, |record| {
        claims::claim(record, &all, up_options.overcommit, |record| placing::place_all(launcher, record))
    })?;
    started.record = Some(record.clone());
    devices::bind(&record, &all)?;
    for machine in &record.machines {
        private_directory(&record.machine_directory(machine)?)?;
    }
    let record = started.record.as_mut().expect("it was just put there");
    made_pools::prepare(&record.pool)?;
    launcher.create_pool(record)?;
    let mut all = std::mem::take(&mut record.pools);
    let backed = all.iter_mut().try_for_each(|pool| {
        let wanted = options.pools.iter().find(|wanted| wanted.name == pool.name);
        let wanted = wanted.expect("it was made of one");
        if pool.path != record.pool {
            made_pools::create(&pool.path, wanted)?;
        }
        made_pools::back(pool, wanted, options, report)
    });
    record.pools = all;
    backed?;
    record.write()?;
    if launcher.facts().has_own_memory {
        return Ok(());
    }
    let of_others = options.pools.iter().zip(&pools).filter(|(pool, _)| pool.reserve && pool.host.is_some());
    of_others.into_iter().try_for_each(|(_, pool)| {
        vshmem_inspect::pools::reserve(&pool.path.to_string_lossy(), host_pool::UNRESERVED)
    })
}

/// The record of a cluster that is to start with these pools and shares. What its machines boot, and what
/// they get of this host, is not in it yet.
pub(super) fn new_record(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    pools: &[Granted],
    shares: Vec<Share>,
) -> Record {
    let machine = |(index, machine): (u32, &MachineOptions)| {
        let names = options.pools.iter().zip(pools).filter(|(pool, _)| machine.pools.contains(&pool.name));
        let its_pools: Vec<Granted> = names.map(|(_, pool)| pool.clone()).collect();
        Machine {
            name: machine.name.clone(),
            index,
            since: None,
            runs: None,
            address: options.network.then(|| address(index).to_string()),
            cores: vec![],
            placement: None,
            resident: None,
            pages: Box::default(),
            cpus: machine.cpus,
            memory: machine.memory,
            devices: vec![],
            image: machine.image.clone(),
            first_pools: its_pools.clone(),
            pools: its_pools,
            lost_pools: vec![],
            outdated: false,
            user: None,
        }
    };
    Record {
        version: VERSION,
        name: options.cluster.clone(),
        boot: boot_id(),
        starter: Some(Process::current()),
        owner: None,
        service: options.service.clone(),
        accel: String::new(),
        kernel: PathBuf::new(),
        pool: launcher.pool_path(&options.cluster),
        pool_size: options.pools[0].size,
        transport: options.pools[0].transport.clone(),
        doorbell: pools.iter().any(|pool| pool.doorbell),
        driver: None,
        ports: options.ports,
        shares,
        root: None,
        channels: launcher.facts().channels,
        since: vshmem_agent::now(),
        machines: (0..).zip(&options.machines).map(machine).collect(),
        made_pools: own_pools(options)[1..].to_vec(),
        pools: made_pools(launcher, options, pools),
        options: Some(options.clone()),
    }
}

/// The pools that are made for a cluster on this host, whose files are these.
fn made_pools(launcher: &dyn Launcher, options: &ClusterOptions, files: &[Granted]) -> Vec<MadePool> {
    if launcher.facts().has_own_memory {
        return vec![];
    }
    let made = options.pools.iter().zip(files).filter(|(pool, _)| pool.host.is_none());
    made.map(|(pool, file)| MadePool::of(pool, file.path.clone())).collect()
}

/// The pools of the options, as machines get them. Those that are not made exist.
pub(super) fn find_pools(launcher: &dyn Launcher, options: &ClusterOptions) -> Result<Vec<Granted>> {
    let (own, further) = options.pools.split_first().expect("a cluster has a pool of its own");
    let (name, path) = (launcher.pool_name(&options.cluster), launcher.pool_path(&options.cluster));
    let transport = own.transport.clone();
    let mut pools = vec![Granted { transport, ..Granted::new(name, path, own.size, false) }];
    for wanted in further {
        let name = wanted.name.clone();
        let (path, size, transport) = match &wanted.host {
            None => {
                let path = pool::path(&pool::further(&options.cluster, &name));
                (path, wanted.size, wanted.transport.clone())
            }
            Some(host) => {
                let HostPool { path, size, transport, .. } = HostPool::find(host)?;
                (path, size, transport)
            }
        };
        let facts = launcher.facts();
        if let Some(other) = transport.as_deref().filter(|other| !facts.transports.contains(other)) {
            let by = facts.name;
            return Err(error!("the pool {name} was made for {other}, by which {by} gives machines none"));
        }
        if pools.iter().any(|pool| pool.name == name) {
            return Err(error!("two pools would be called {name}").code(2));
        }
        pools.push(Granted { transport, ..Granted::new(name, path, size, false) });
    }
    Ok(pools)
}

fn boot(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    up_options: UpOptions,
    started: &mut Started,
    (software, initramfs): (&Software, &Initramfs),
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    let record = started.record.as_mut().expect("prepare has put it there");
    check_doorbells(launcher, options, record, &mut |text| report(Progress::Message(text.into())))?;
    let mut links = links(options)?.into_iter();
    let templates = Templates::new(!options.cold);
    let common = Common { launcher, software, initramfs, ports: options.ports, templates: &templates };
    let cpus: Vec<u32> = record.machines.iter().map(|machine| machine.cpus).collect();
    for batch in batches::of(&cpus) {
        let mut keeps = Vec::new();
        let mut outcome = Ok(());
        for (index, started) in start_all(common, record, batch.clone(), &mut links, report)? {
            match started {
                Ok(traits::Started { running, keep, populated }) => {
                    record.machines[index].runs = Some(running);
                    record.machines[index].pages.populated = populated;
                    keeps.push((index, keep));
                }
                Err(why) => outcome = outcome.and(Err(why)),
            }
        }
        record.write()?;
        outcome?;
        for (index, keep) in keeps {
            or_exit_reason(launcher, record, index, keep())?;
        }
        for index in batch.clone() {
            or_exit_reason(launcher, record, index, placing::pin(launcher, record, index, report))?;
        }
        wait(record, batch.clone().collect(), up_options.timeout, &mut |name| {
            report(Progress::Ready(name.into()))
        })?;
        for index in batch {
            placing::check(launcher, record, index, report)?;
        }
    }
    Ok(())
}

/// Makes the back end serve the pools, and reports how waiters are woken. If doorbells were not requested,
/// the machines do without them where they can't be had.
fn check_doorbells(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    record: &mut Record,
    report: &mut dyn FnMut(&str),
) -> Result<()> {
    let served =
        record.machines.iter().try_for_each(|it| serving::sockets(launcher, record, &it.pools).map(drop));
    match served {
        Err(error) if options.doorbell.is_none() => {
            report(&format!("machines can't wake each other's waiters, which look every 2 ms: {error}"));
            record.doorbell = false;
            let machines = record.machines.iter_mut();
            machines
                .flat_map(|machine| machine.pools.iter_mut().chain(&mut machine.first_pools))
                .for_each(|pool| pool.doorbell = false);
            record.write()?;
        }
        other => other?,
    };
    if let Some(transport) = &record.transport {
        report(&format!("the pool comes by {transport}: it is cached, and waiters look every 2 ms"));
        return Ok(());
    }
    report(&match &record.driver {
        Some(driver) if launcher.wakes(record) => {
            format!("machines wake each other's waiters ({})", driver.display())
        }
        Some(driver) => format!("machines can't wake each other's waiters, which look every 2 ms ({})", driver.display()),
        None => "no vshmem.ko for this kernel: waiters look every 2 ms, and pools are mapped uncached (see kmod/README.md)".into(),
    });
    Ok(())
}

/// The machines' ends of the network's links, if there is a network.
fn links(options: &ClusterOptions) -> Result<Vec<Option<Vec<Link>>>> {
    let count = options.machines.len() as u32;
    if !options.network {
        return Ok((0..count).map(|_| None).collect());
    }
    Ok(network::star(count)?.into_iter().map(Some).collect())
}
