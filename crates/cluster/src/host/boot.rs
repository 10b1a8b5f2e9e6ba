//! Boots one machine of a cluster: when the cluster is started, and when the machine is started anew.

use super::channel::Channel;
use super::kernel::Kernel;
use super::ports::Ports;
use super::settings::{address, Network, Settings};
use super::state::{cluster_directory, uid, Record};
use super::{driver, initramfs, interrupt, kernel};
use crate::error::{Error, Explain, Result};
use crate::modules::{parse_wanted, Module};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long it may take to end for who has closed all it had.
const ENDS_WITHIN: Duration = Duration::from_millis(500);

/// What machines boot, and on what.
pub struct Software {
    /// With all modules that are loaded, the driver among them.
    pub kernel: Kernel,
    /// Where the driver was found, if machines load it.
    pub driver: Option<PathBuf>,
    /// What carries out their instructions.
    pub accel: &'static str,
    /// Why that.
    pub how: &'static str,
    /// The kernel's image as it boots fastest.
    pub image: PathBuf,
}

impl Software {
    /// Finds a kernel with these modules, and the driver of this name for it.
    pub fn find(
        kernel: Option<&Path>,
        modules: &str,
        (driver, name): (&driver::Choice, &str),
        note: &mut dyn FnMut(&str),
    ) -> Result<Software> {
        let mut kernel = kernel::find(kernel, &parse_wanted(modules), note)?;
        note(&format!(
            "kernel {} ({})",
            kernel.version,
            kernel.image.display()
        ));
        let driver = driver::find(driver, name, &kernel.version)?.map(|driver| {
            kernel.modules.push(driver.module);
            driver.path
        });
        Ok(Software {
            image: kernel.image.clone(),
            kernel,
            driver,
            accel: "",
            how: "",
        })
    }
}

/// The first root file system of a cluster's machines, until they have read it.
pub struct Initramfs(pub PathBuf);

impl Initramfs {
    /// Writes it. The caller has the cluster's lock.
    pub fn write(cluster: &str, software: &Software) -> Result<Initramfs> {
        let path = cluster_directory(cluster)?.join("initramfs");
        write_initramfs(&path, &software.kernel.modules)?;
        Ok(Initramfs(path))
    }
}

/// Writes one with these modules. Everybody may read it who finds it: its directory is private, and the hypervisor may run as another user.
pub fn write_initramfs(path: &Path, modules: &[Module]) -> Result<()> {
    let bytes = initramfs::build(modules)?;
    fs::write(path, bytes)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)))
        .explain(|| format!("could not write {}", path.display()))
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

/// What the machine in this place is told.
pub fn settings(record: &Record, place: usize, networked: bool) -> Settings {
    let machine = &record.machines[place];
    let network = Network {
        address: address(machine.index),
        machines: record.machines.len() as u32,
    };
    Settings {
        name: machine.name.clone(),
        pools: machine.pools.iter().map(|pool| pool.name.clone()).collect(),
        uid: uid(),
        channels: record.channels,
        network: networked.then_some(network),
        shares: record.shares.clone(),
        launcher: record.launcher().name().into(),
        probe: false,
    }
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
            let takes = || matches!(Channel::take(&directory, 0, Duration::ZERO), Ok(Some(_)));
            match takes() && record.launcher().has_pool(record, machine)? {
                true => ready(&machine.name),
                false => left.push(place),
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

/// An error unless the machine in this place runs.
pub fn check_alive(record: &Record, place: usize) -> Result<()> {
    match &record.machines[place].runs {
        Some(running) if running.alive() => Ok(()),
        _ => Err(not_up(record, place, "it has ended")),
    }
}

/// What became of a machine that was started just now; if that is an error because it has ended, what it said is told instead.
pub fn or_ended<T>(record: &Record, place: usize, outcome: Result<T>) -> Result<T> {
    let error = match outcome {
        Ok(it) => return Ok(it),
        Err(error) => error,
    };
    // Others see what it had closed a moment before it has ended.
    let deadline = Instant::now() + ENDS_WITHIN;
    loop {
        check_alive(record, place)?;
        if Instant::now() > deadline {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Why the machine in this place did not come up, with what it said last.
pub fn not_up(record: &Record, place: usize, why: &str) -> Error {
    let machine = &record.machines[place];
    let words = record.launcher().last_words(record, machine);
    Error::new(format!("{} did not boot: {why}{words}", machine.name))
        .hint(record.launcher().boot_hint())
}
