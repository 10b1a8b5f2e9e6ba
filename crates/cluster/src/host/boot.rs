//! Boots one machine of a cluster: when the cluster is started, and when the machine is started anew.

use super::channel::Channel;
use super::kernel::{self, Kernel};
use super::ports::Ports;
use super::process::Process;
use super::qemu::{self, Accel, Link, PoolFile, Spec};
use super::qmp::Qmp;
use super::settings::{address, Network, Settings};
use super::state::{cluster_directory, uid, Granted, Record};
use super::{accel, affinity, doorbell, driver, initramfs, interrupt, vmlinux};
use crate::error::{Error, Explain, Result};
use crate::modules::parse_wanted;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// How long QEMU may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
const MODULES: &str = include_str!("../../../../images/modules.txt");

/// What machines boot, and on what.
pub struct Software {
    /// With all modules that are loaded, the driver among them.
    pub kernel: Kernel,
    /// Where the driver was found, if machines load it.
    pub driver: Option<PathBuf>,
    /// KVM or TCG.
    pub accel: Accel,
    /// Why that.
    pub how: &'static str,
    /// The kernel's image as QEMU takes it fastest.
    image: PathBuf,
}

impl Software {
    /// Finds it all.
    pub fn find(
        kernel: Option<&Path>,
        driver: &driver::Choice,
        accel: accel::Choice,
        note: &mut dyn FnMut(&str),
    ) -> Result<Software> {
        let mut kernel = kernel::find(kernel, &parse_wanted(MODULES), note)?;
        note(&format!(
            "kernel {} ({})",
            kernel.version,
            kernel.image.display()
        ));
        let driver = driver::find(driver, &kernel.version)?.map(|driver| {
            kernel.modules.push(driver.module);
            driver.path
        });
        let (accel, how) = accel::decide(accel, &kernel, note)?;
        let unpacked = (accel == Accel::Tcg)
            .then(|| vmlinux::unpacked(&kernel, note))
            .flatten();
        interrupt::check()?;
        Ok(Software {
            image: unpacked.unwrap_or_else(|| kernel.image.clone()),
            kernel,
            driver,
            accel,
            how,
        })
    }
}

/// The first root file system of a cluster's machines, until they have read it.
pub struct Initramfs(PathBuf);

impl Initramfs {
    /// Writes it. The caller has the cluster's lock.
    pub fn write(cluster: &str, software: &Software) -> Result<Initramfs> {
        let path = cluster_directory(cluster)?.join("initramfs");
        fs::write(&path, initramfs::build(&software.kernel.modules)?)
            .explain(|| format!("could not write {}", path.display()))?;
        Ok(Initramfs(path))
    }
}

impl Drop for Initramfs {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What machines are started with, besides what the cluster's record says.
pub struct Outfit<'a> {
    /// What they boot.
    pub software: &'a Software,
    /// And from where.
    pub initramfs: &'a Initramfs,
    /// Room for pools that they are granted later.
    pub ports: Ports,
    /// Where the back end serves each of their pools, or nothing.
    pub bells: &'a [PathBuf],
}

/// Starts the QEMU of the machine in this place.
pub fn start(
    record: &Record,
    place: usize,
    outfit: &Outfit,
    link: Option<Link>,
) -> Result<(Child, Process)> {
    let machine = &record.machines[place];
    let network = Network {
        address: address(machine.index),
        machines: record.machines.len() as u32,
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
        accel: outfit.software.accel,
        cpus: record.cpus,
        memory: record.memory,
        kernel: &outfit.software.image,
        initramfs: &outfit.initramfs.0,
        directory: &record.machine_directory(machine)?,
        pools: pool_files(&machine.pools, outfit.bells),
        ports: outfit.ports,
        link,
        index: machine.index,
    };
    let (mut child, process) = qemu::start(&spec)?;
    if record.doorbell {
        if let Err(error) = doorbell::name(process.pid, &machine.name) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
    }
    Ok((child, process))
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

/// Pins a machine's virtual cores to these.
pub fn pin(record: &Record, place: usize, cores: &[usize]) -> Result<()> {
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
    for (&thread, &core) in threads.iter().zip(cores) {
        affinity::pin(thread, core).explain(|| format!("could not pin to core {core}"))?;
    }
    Ok(())
}

/// Waits until the machines in these places take commands; `ready` hears of each.
pub fn wait(
    record: &Record,
    mut waiting: Vec<usize>,
    patience: Duration,
    ready: &mut dyn FnMut(&str),
) -> Result<()> {
    let answered = interrupt::wait_for(patience, || {
        let mut left = Vec::new();
        for &place in &waiting {
            check_alive(record, place)?;
            let machine = &record.machines[place];
            let directory = record.machine_directory(machine)?;
            match Channel::take(&directory, 0, Duration::ZERO) {
                Ok(Some(_)) => ready(&machine.name),
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
