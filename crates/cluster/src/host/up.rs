//! Starts a cluster.

use super::accel::{self, Choice};
use super::channel::Channel;
use super::kernel::{self, Kernel};
use super::ports::Ports;
use super::process::Process;
use super::qemu::{self, Accel, Link, PoolFile, Spec};
use super::qmp::Qmp;
use super::settings::{address, Network, Settings};
use super::source::Source;
use super::state::{
    boot_id, cluster_directory, lock_cluster, private_directory, uid, Granted, Machine, Record,
    VERSION,
};
use super::{affinity, cluster, doorbell, driver, initramfs, interrupt, pool, ports, vmlinux};
use crate::error::{Error, Explain, Result};
use crate::modules::parse_wanted;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster's name.
    pub cluster: String,
    /// How many machines.
    pub machines: u32,
    /// Virtual cores of each.
    pub cpus: u32,
    /// Memory of each, in bytes.
    pub memory: u64,
    /// Size of the pool in bytes, a power of two.
    pub pool_size: u64,
    /// Pools of this host that they get beside it: names or paths.
    pub pools: Vec<String>,
    /// Room for pools that they are granted later.
    pub ports: Ports,
    /// A network between the machines.
    pub network: bool,
    /// Doorbells between the machines, by the back end; if not said, where they have the driver.
    pub doorbell: Option<bool>,
    /// The driver that the machines load.
    pub driver: driver::Choice,
    /// KVM or TCG.
    pub accel: Choice,
    /// A kernel image to use.
    pub kernel: Option<PathBuf>,
    /// How long the machines may take to boot.
    pub patience: Duration,
}

/// What `up` is doing.
#[derive(Debug, Clone)]
pub enum Step {
    /// Something worth a line.
    Note(String),
    /// This machine takes commands now.
    Ready(String),
}

/// How long QEMU may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Channels for commands that each machine has.
const CHANNELS: usize = 12;
/// More machines than this would need more than one network hub's worth of processes on one host.
const MOST_MACHINES: u32 = 32;
/// What machines call the pool of their cluster.
const DEFAULT: &str = "default";
const MODULES: &str = include_str!("../../../../images/modules.txt");

/// Starts a cluster. If it fails or is interrupted, nothing of it is left.
pub fn up(options: &Options, tell: &mut dyn FnMut(Step)) -> Result<Record> {
    // Ctrl-C reaches the programs that were started, too: that one of them failed is then not what happened.
    begin(options, tell).map_err(|error| interrupt::check().err().unwrap_or(error))
}

fn begin(options: &Options, tell: &mut dyn FnMut(Step)) -> Result<Record> {
    check(options)?;
    qemu::check_installed()?;
    let lock = lock_cluster(&options.cluster)?;
    if let Some(record) = Record::read(&options.cluster)? {
        let running = |machine| cluster::state(&record, machine) != cluster::MachineState::Died;
        if record.machines.iter().any(running) {
            return Err(
                Error::new(format!("the cluster {} is already up", options.cluster)).hint(
                    "See vshmem ps. Stop it with vshmem down, or choose another name with --name.",
                ),
            );
        }
        cluster::remove(&options.cluster, Some(&record))?;
    }
    // Whatever an `up` that was killed at once has left.
    pool::remove(&pool::path(&options.cluster))?;
    let mut started = Started {
        name: options.cluster.clone(),
        record: None,
        children: Vec::new(),
    };
    let record = start(options, &mut started, tell)?;
    started.keep();
    drop(lock);
    Ok(record)
}

fn check(options: &Options) -> Result<()> {
    let wrong = |what: String| Err(Error::new(what));
    if std::env::consts::ARCH != "x86_64" {
        return wrong("machines can be started on x86_64 only, so far".into());
    }
    if options.machines == 0 || options.machines > MOST_MACHINES {
        return wrong(format!("a cluster has 1 to {MOST_MACHINES} machines"));
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
    if ports > ports::MOST as usize {
        return wrong(format!(
            "a machine has room for {} pools at the most, and this would be {ports}",
            ports::MOST
        ));
    }
    if !options.pool_size.is_power_of_two() || options.pool_size < vshmem_pool::MIN_POOL {
        return wrong("a pool's size is a power of two, 1M or more: 64M, 256M, 1G".into());
    }
    Ok(())
}

/// Ends and removes all that was started, unless it is kept.
struct Started {
    name: String,
    record: Option<Record>,
    children: Vec<Child>,
}

impl Started {
    fn keep(mut self) {
        self.children.clear();
        self.record = None;
        self.name.clear();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.name.is_empty() {
            return;
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = pool::remove(&pool::path(&self.name));
        let _ = cluster::remove(&self.name, self.record.as_ref());
    }
}

fn start(options: &Options, started: &mut Started, tell: &mut dyn FnMut(Step)) -> Result<Record> {
    let mut note = |text: &str| tell(Step::Note(text.into()));
    let wanted = parse_wanted(MODULES);
    let mut kernel = kernel::find(options.kernel.as_deref(), &wanted, &mut note)?;
    note(&format!(
        "kernel {} ({})",
        kernel.version,
        kernel.image.display()
    ));
    let driver = driver::find(&options.driver, &kernel.version)?;
    let driver_path = driver.map(|driver| {
        kernel.modules.push(driver.module);
        driver.path
    });
    let (accel, how) = accel::decide(options.accel, &kernel, &mut note)?;
    let unpacked = (accel == Accel::Tcg)
        .then(|| vmlinux::unpacked(&kernel, &mut note))
        .flatten();
    interrupt::check()?;
    prepare(options, started, &kernel, accel, driver_path)?;
    let initramfs = cluster_directory(&options.cluster)?.join("initramfs");
    fs::write(&initramfs, initramfs::build(&kernel.modules)?)
        .explain(|| format!("could not write {}", initramfs.display()))?;
    let plural = if options.machines == 1 { "" } else { "s" };
    note(&format!(
        "booting {} machine{plural} {how}",
        options.machines
    ));
    let image = unpacked.as_deref().unwrap_or(&kernel.image);
    boot(options, started, image, &initramfs, accel, &mut note)?;
    let mut record = started.record.clone().expect("boot has put it there");
    pin_cores(&mut record)?;
    await_all(&record, options.patience, tell)?;
    // Machines have read it by now.
    let _ = fs::remove_file(&initramfs);
    record.starter = None;
    record.write()?;
    Ok(record)
}

/// Paths of sockets must be short: 108 bytes, with the zero at the end (unix(7)).
fn check_length(directory: &Path) -> Result<()> {
    let longest = qemu::channel_socket(&directory.join("vm31"), CHANNELS);
    if longest.as_os_str().len() < 108 {
        return Ok(());
    }
    Err(Error::new(format!(
        "{} is too long a path for a socket",
        longest.display()
    ))
    .hint("Set XDG_RUNTIME_DIR to a private directory of yours with a shorter name."))
}

/// Directories, pool and record.
fn prepare(
    options: &Options,
    started: &mut Started,
    kernel: &Kernel,
    accel: Accel,
    driver: Option<PathBuf>,
) -> Result<()> {
    let directory = cluster_directory(&options.cluster)?;
    check_length(&directory)?;
    private_directory(&directory)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let doorbell = options.doorbell.unwrap_or(driver.is_some());
    let pools = first_pools(options, doorbell)?;
    let machine = |index: u32| Machine {
        name: format!("vm{index}"),
        index,
        qemu: None,
        address: options.network.then(|| address(index).to_string()),
        cores: vec![],
        pools: pools.clone(),
    };
    let record = Record {
        version: VERSION,
        name: options.cluster.clone(),
        boot: boot_id(),
        starter: Some(Process::current()),
        accel: accel.name().into(),
        kernel: kernel.image.clone(),
        cpus: options.cpus,
        memory: options.memory,
        pool: pool::path(&options.cluster),
        pool_size: options.pool_size,
        doorbell,
        driver,
        channels: CHANNELS,
        since: now.as_secs(),
        machines: (0..options.machines).map(machine).collect(),
    };
    record.write()?;
    started.record = Some(record.clone());
    for machine in &record.machines {
        private_directory(&record.machine_directory(machine)?)?;
    }
    pool::create(&record.pool, record.pool_size)
}

/// The pools that each machine starts with: the cluster's own, then others of this host.
fn first_pools(options: &Options, doorbell: bool) -> Result<Vec<Granted>> {
    let mut pools = vec![Granted {
        name: DEFAULT.into(),
        path: pool::path(&options.cluster),
        size: options.pool_size,
        doorbell,
    }];
    for wanted in &options.pools {
        let Source { name, path, size } = Source::find(wanted)?.named(None)?;
        if pools.iter().any(|pool| pool.name == name) {
            return Err(Error::new(format!("two pools would be called {name}")).code(2));
        }
        pools.push(Granted {
            name,
            path,
            size,
            doorbell,
        });
    }
    Ok(pools)
}

fn boot(
    options: &Options,
    started: &mut Started,
    kernel: &Path,
    initramfs: &Path,
    accel: Accel,
    note: &mut dyn FnMut(&str),
) -> Result<()> {
    let links = links(options)?;
    let kept = started.record.as_mut().expect("prepare has put it there");
    let bells = serve_doorbells(options, kept, note)?;
    let record = kept.clone();
    for (place, link) in links.into_iter().enumerate() {
        let machine = &record.machines[place];
        let network = Network {
            address: address(machine.index),
            machines: options.machines,
        };
        let settings = Settings {
            name: machine.name.clone(),
            pools: machine.pools.iter().map(|pool| pool.name.clone()).collect(),
            uid: uid(),
            channels: record.channels,
            network: link.is_some().then_some(network),
            probe: false,
        };
        let spec = Spec {
            settings: &settings,
            title: format!("vshmem-{}-{}", record.name, machine.name),
            accel,
            cpus: record.cpus,
            memory: record.memory,
            kernel,
            initramfs,
            directory: &record.machine_directory(machine)?,
            pools: pool_files(&machine.pools, &bells),
            ports: options.ports,
            link,
            index: machine.index,
        };
        let (child, process) = qemu::start(&spec)?;
        started.children.push(child);
        if record.doorbell {
            doorbell::name(process.pid, &machine.name)?;
        }
        let kept = started.record.as_mut().expect("prepare has put it there");
        kept.machines[place].qemu = Some(process);
        kept.write()?;
    }
    Ok(())
}

/// What QEMU is told about pools, where the back end serves them at these sockets, or at none.
fn pool_files<'a>(pools: &'a [Granted], bells: &'a [PathBuf]) -> Vec<PoolFile<'a>> {
    let file = |(place, pool): (usize, &'a Granted)| PoolFile {
        name: &pool.name,
        path: &pool.path,
        size: pool.size,
        doorbell: bells.get(place).map(PathBuf::as_path),
    };
    pools.iter().enumerate().map(file).collect()
}

/// Has the pools served, and says how waiters are woken. Doorbells that were not asked for are done without if they can't be had.
/// Returns a socket for each pool, or none at all.
fn serve_doorbells(
    options: &Options,
    record: &mut Record,
    note: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let mut bells = Ok(vec![]);
    if let Some(machine) = record.machines.first().filter(|_| record.doorbell) {
        let pools = machine.pools.iter();
        bells = pools.map(|pool| doorbell::serve(&pool.path)).collect();
    }
    let bells = match bells {
        Err(error) if options.doorbell.is_none() => {
            note(&format!("no doorbells: {error}"));
            record.doorbell = false;
            let machines = record.machines.iter_mut();
            machines
                .flat_map(|machine| &mut machine.pools)
                .for_each(|pool| pool.doorbell = false);
            record.write()?;
            vec![]
        }
        other => other?,
    };
    note(&match &record.driver {
        Some(driver) if record.wakes() => {
            format!("machines wake each other's waiters ({})", driver.display())
        }
        Some(driver) => format!("no doorbells: waiters look every 2 ms ({})", driver.display()),
        None => "no vshmem.ko for this kernel: waiters look every 2 ms, and pools are mapped uncached (see kmod/README.md)".into(),
    });
    Ok(bells)
}

/// The first machine is wired to each of the others.
fn links(options: &Options) -> Result<Vec<Option<Link>>> {
    if !options.network || options.machines < 2 {
        return Ok((0..options.machines).map(|_| None).collect());
    }
    let mut first = Vec::new();
    let mut others = Vec::new();
    for _ in 1..options.machines {
        let (one, other): (OwnedFd, OwnedFd) = UnixStream::pair()
            .map(|(one, other)| (one.into(), other.into()))
            .explain(|| "could not make a pair of sockets".into())?;
        first.push(one);
        others.push(Some(Link {
            sockets: vec![other],
        }));
    }
    others.insert(0, Some(Link { sockets: first }));
    Ok(others)
}

/// Pins virtual cores where each can have a core of its own: two that spin must never share one.
fn pin_cores(record: &mut Record) -> Result<()> {
    let taken = cluster::cores_in_use(&record.name)?;
    let mut cores = affinity::available_cores();
    cores.retain(|core| !taken.contains(core));
    let count = record.machines.len() as u32;
    let Some(shares) = affinity::share_out(&cores, count, record.cpus) else {
        return Ok(());
    };
    for (place, share) in shares.into_iter().enumerate() {
        let directory = record.machine_directory(&record.machines[place])?;
        let socket = qemu::monitor_socket(&directory);
        let ready = interrupt::wait_for(Duration::from_secs(20), || {
            check_alive(record, place)?;
            Ok(socket.exists().then_some(()))
        })?;
        if ready.is_none() {
            return Err(not_up(record, place, "QEMU does not answer"));
        }
        let threads = Qmp::connect(&socket, ANSWERS_WITHIN)?.core_threads()?;
        for (&thread, &core) in threads.iter().zip(&share) {
            affinity::pin(thread, core).explain(|| format!("could not pin to core {core}"))?;
        }
        record.machines[place].cores = share;
    }
    Ok(())
}

fn await_all(record: &Record, patience: Duration, tell: &mut dyn FnMut(Step)) -> Result<()> {
    let mut waiting: Vec<usize> = (0..record.machines.len()).collect();
    let answered = interrupt::wait_for(patience, || {
        let mut left = Vec::new();
        for &place in &waiting {
            check_alive(record, place)?;
            let machine = &record.machines[place];
            let directory = record.machine_directory(machine)?;
            match Channel::take(&directory, 0, Duration::ZERO) {
                Ok(Some(_)) => tell(Step::Ready(machine.name.clone())),
                _ => left.push(place),
            }
        }
        waiting = left;
        Ok(waiting.is_empty().then_some(()))
    })?;
    match (answered, waiting.first()) {
        (None, Some(&place)) => Err(not_up(
            record,
            place,
            &format!("it took longer than {} s", patience.as_secs()),
        )),
        _ => Ok(()),
    }
}

fn check_alive(record: &Record, place: usize) -> Result<()> {
    match &record.machines[place].qemu {
        Some(process) if process.alive() => Ok(()),
        _ => Err(not_up(record, place, "its QEMU has ended")),
    }
}

fn not_up(record: &Record, place: usize, why: &str) -> Error {
    let machine = &record.machines[place];
    let words = record
        .machine_directory(machine)
        .map(|d| qemu::last_words(&d));
    Error::new(format!(
        "{} did not boot: {why}{}",
        machine.name,
        words.unwrap_or_default()
    ))
    .hint("More memory (--memory 1G), another kernel (--kernel) or --accel tcg may help.")
}
