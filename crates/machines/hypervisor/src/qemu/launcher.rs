//! The launcher `qemu`.

use super::accel::Accel;
use super::disks::Attached;
use super::program::{self, NAME};
use super::template::Thawing;
use super::{netdev, prealloc, probe, spec};
use crate::boot::image::System;
use crate::boot::software::Software;
use crate::boot::{driver, vmlinux};
use crate::launcher::grants::Grants;
use crate::launcher::options::{PoolOptions, Progress};
use crate::launcher::starting::{self, boot_failed};
use crate::launcher::traits::{Facts, Launcher, StartOptions, Started};
use crate::running::grant::ByMonitor;
use crate::running::qmp::Qmp;
use crate::running::{health, Running};
use crate::shared::acl::TemporaryAcl;
use crate::shared::network::Link;
use crate::shared::sockets::monitor_socket;
use crate::shared::{affinity, doorbell, image, logs, pool, sandbox, uplink};
use crate::state::machine::Health;
use crate::state::record::{Granted, Machine, Record};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::interrupt;
use vshmem_base::process::Process;
use vshmem_guest::settings::DRIVER;
use vshmem_inspect::pools::Form;
use vshmem_placement::pages::Populated;

const MODULES: &str = include_str!("../../../../../images/modules.txt");
/// Further modules for machines with a pool that is a DAX device.
const DAX_MODULES: &str = include_str!("../../../../../images/modules-dax.txt");
/// Channels for commands that each machine has. With many more, QEMU may drop what it tells the guest of one
/// of them: it has room for 32 such messages.
pub const CHANNELS: usize = 12;

/// Time that QEMU may take until it answers.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that QEMU may take until it answers if it has devices, besides the time that memory takes.
const DEVICES_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of memory that a host takes in a second at the least.
const MIN_MEMORY_RATE: u64 = 256 << 20;

/// The name of a cluster's pool in its machines.
const DEFAULT: &str = "default";

/// The launcher of QEMU, on KVM or TCG.
pub struct Qemu;

impl Launcher for Qemu {
    fn facts(&self) -> &'static Facts {
        &Facts {
            name: NAME,
            about: "QEMU, here",
            needs: "QEMU must be installed, and nothing needs root.",
            boot_hint: "More memory (--memory 1G), another kernel (--kernel) or --accel tcg may help.",
            accelerators: &[("kvm", "The processor's virtualization"), ("tcg", "Translation")],
            transports: &["ivshmem", spec::DAX],
            channels: CHANNELS,
            pool_size: vshmem_pool::DEFAULT_POOL,
            network: true,
            needs_back_end: true,
            can_pin: true,
            gives_devices: true,
            starts_at_once: true,
            reports_hang_up: true,
            has_own_memory: false,
        }
    }

    fn check_host(&self) -> Result<()> {
        program::installed().map(drop)
    }

    fn largest_pool(&self, accelerator: Option<&str>) -> Option<u64> {
        Accel::likely(accelerator).largest_pool()
    }

    fn check_image(&self, system: &System) -> Result<()> {
        image::check(system)
    }

    fn gives_uplinks(&self) -> bool {
        true
    }

    fn gives_root_disk(&self) -> bool {
        true
    }

    fn check_start(&self, record: &Record) -> Result<()> {
        record.machines.iter().try_for_each(|machine| uplink::check(record, machine))
    }

    fn check_restart(&self, record: &Record) -> Result<()> {
        if record.accel == Accel::Kvm.name() {
            let mut kvm = File::options();
            let opened = kvm.read(true).write(true).open("/dev/kvm");
            opened.explain(|| "/dev/kvm can't be used any more".into())?;
        }
        Ok(())
    }

    fn grants(&self, _: &str) -> Result<&'static dyn Grants> {
        Ok(&ByMonitor)
    }

    /// Whether there is a spare port, and room for persistent memory if the pool is that.
    fn can_grant(&self, record: &Record, machine: &Machine, pool: &PoolOptions) -> bool {
        let later = machine.pools.len().saturating_sub(machine.first_pools.len());
        let has_port = later < record.ports.spare as usize && pool.size <= record.ports.largest;
        let has_room = || machine.first_pools.iter().any(|pool| spec::is_dax(&pool.transport));
        has_port && (!spec::is_dax(&pool.transport) || has_room())
    }

    /// Decides as `plug::can_unplug_doorbell` and `Hotplug::check_not_fixed` do.
    fn can_revoke(&self, record: &Record, pool: &Granted) -> bool {
        let rings = record.doorbell && pool.doorbell;
        pool.transport.is_none() && (!rings || record.accel == Accel::Kvm.name())
    }

    fn pool_name(&self, _: &str) -> String {
        DEFAULT.into()
    }

    fn pool_path(&self, cluster: &str) -> PathBuf {
        pool::path(&pool::own(cluster))
    }

    fn software(
        &self,
        transport: Option<&str>,
        kernel: Option<&Path>,
        driver: &driver::Choice,
        accelerator: Option<&str>,
        report: &mut dyn FnMut(&str),
    ) -> Result<Software> {
        let wanted = accelerator.map(|name| {
            Accel::named(name).ok_or_else(|| error!("QEMU does not run machines by {name}").code(2))
        });
        let wanted = wanted.transpose()?;
        let modules = match transport {
            Some(_) => [MODULES, DAX_MODULES].concat(),
            None => MODULES.into(),
        };
        let mut software = Software::find(kernel, &modules, (driver, DRIVER), report)?;
        let (accel, description) = probe::choose(wanted, &software.kernel, report)?;
        if accel == Accel::Tcg {
            if let Some(unpacked) = vmlinux::unpacked(&software.kernel, report) {
                software.image = unpacked;
            }
        }
        interrupt::check()?;
        (software.accel, software.description) = (accel.name(), description);
        Ok(software)
    }

    fn create_pool(&self, record: &mut Record) -> Result<()> {
        let own = record.options.as_ref().map_or(0, |options| options.pools[0].align);
        let form = Form { head: spec::is_dax(&record.transport), align: own };
        pool::create(&pool::reference(&record.pool), record.pool_size, form)
    }

    fn remove_pool(&self, record: &Record) -> Result<()> {
        pool::remove(&pool::reference(&record.pool))
    }

    fn serve(&self, _: &Record, pool: &Path) -> Result<PathBuf> {
        doorbell::serve(pool)
    }

    fn stop_serving(&self, pool: &Path) {
        doorbell::end(pool);
    }

    fn release_pool(&self, pool: &Granted, machine: &str, process: Option<i32>) {
        doorbell::release(pool, machine, process);
    }

    fn reconnect(&self, record: &Record, index: usize, report: &mut dyn FnMut(&str)) -> Result<Vec<Link>> {
        netdev::reconnect(record, index, report)
    }

    fn start(
        &self,
        record: &Record,
        index: usize,
        options: &StartOptions,
        links: Option<Vec<Link>>,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Started> {
        let (process, guard, populated) = start(record, index, options, links, report)?;
        Ok(Started { running: Running::Process(process), keep: Box::new(|| guard.keep()), populated })
    }

    fn make_template(
        &self,
        record: &Record,
        index: usize,
        options: &StartOptions,
        report: &mut dyn FnMut(Progress),
    ) -> Result<String> {
        let machine = &record.machines[index];
        let links = machine.address.is_some().then(Vec::new);
        let settings = &starting::settings(&Qemu, record, index, links.is_some());
        let directory = &record.machine_directory(machine)?;
        let spec = spec::of_record(record, index, options, links, (settings, directory))?;
        Thawing::of(record, index, &spec, options).prepare(&spec, report)
    }

    fn core_threads(&self, record: &Record, index: usize) -> Result<Vec<i32>> {
        core_threads(record, index)
    }

    fn health(&self, record: &Record, machine: &Machine) -> Health {
        health::by_monitor(record, machine)
    }

    fn last_output(&self, record: &Record, machine: &Machine) -> String {
        let ended = !machine.runs.as_ref().is_some_and(Running::alive);
        let directory = record.machine_directory(machine);
        directory.map(|it| logs::last_output(&it, ended)).unwrap_or_default()
    }
}

/// Starts the QEMU of the machine with this index.
fn start(
    record: &Record,
    index: usize,
    options: &StartOptions,
    links: Option<Vec<Link>>,
    report: &mut dyn FnMut(Progress),
) -> Result<(Process, sandbox::KillGuard, Option<Populated>)> {
    let machine = &record.machines[index];
    let settings = &starting::settings(&Qemu, record, index, links.is_some());
    let directory = &record.machine_directory(machine)?;
    let mut spec = spec::of_record(record, index, options, links, (settings, directory))?;
    let system = machine.image.system();
    spec.disks = system.map(|system| Attached::make(record, index, system, settings)).transpose()?;
    spec.uplink = uplink::open(record, machine)?;
    let plain = spec.pools.iter().filter(|pool| pool.doorbell.is_none());
    let grant_access = |user| plain.map(move |pool| TemporaryAcl::grant(pool.path, user)).collect();
    let acls: Vec<TemporaryAcl> = spec.user.map_or(Ok(vec![]), grant_access)?;
    let (process, guard) = match Thawing::of(record, index, &spec, options).thaw(&mut spec, report)? {
        Some(thawed) => thawed,
        None => program::start(&spec)?,
    };
    let populated = match spec.backing.threads {
        0 => None,
        _ => prealloc::wait(&process, &machine.name, machine.memory, &spec.backing, report)?,
    };
    let mut started = record.clone();
    started.machines[index].runs = Some(Running::Process(process));
    let settled = match acls.is_empty() {
        true => Ok(()),
        // It has opened its files before it answers.
        false => monitor(&started, index, &process).map(drop),
    };
    let named = settled.and_then(|()| match record.doorbell {
        true => doorbell::name(process.pid, &machine.name),
        false => Ok(()),
    });
    if let Err(error) = starting::or_exit_reason(&Qemu, &started, index, named) {
        process.end(Duration::ZERO);
        return Err(error);
    }
    Ok((process, guard, populated))
}

/// The threads of a machine's virtual cores, by their numbers on this host.
fn core_threads(record: &Record, index: usize) -> Result<Vec<i32>> {
    let Some(Running::Process(process)) = record.machines[index].runs else {
        return Ok(vec![]);
    };
    let threads = monitor(record, index, &process)?.core_threads()?;
    let here = threads.into_iter().map(|thread| affinity::thread_of(process.pid, thread));
    here.collect::<io::Result<_>>().explain(|| "could not find the threads of virtual cores".into())
}

/// The monitor of a machine that was just started, once it answers.
fn monitor(record: &Record, index: usize, process: &Process) -> Result<Qmp> {
    let directory = record.machine_directory(&record.machines[index])?;
    let socket = monitor_socket(&directory);
    let machine = &record.machines[index];
    let patience = match machine.devices.is_empty() {
        true => START_TIMEOUT,
        // All memory is taken before it answers.
        false => DEVICES_TIMEOUT + Duration::from_secs(machine.memory / MIN_MEMORY_RATE),
    };
    Qmp::await_at(&socket, patience, || match process.alive() {
        true => Ok(()),
        false => Err(boot_failed(&Qemu, record, index, "QEMU has ended")),
    })
}
