//! The launcher `libvirt`.

use super::devices::{Devices, Pool};
use super::domain::{describe, DomainSpec, Loaded};
use super::files::{self, Files};
use super::names::{name_of, uuid_of};
use super::uri::{self, RunsAs};
use super::{network, unfit};
use crate::boot::driver;
use crate::boot::image::{Image, System};
use crate::boot::software::Software;
use crate::launcher::grants::Grants;
use crate::launcher::options::{ClusterOptions, PoolOptions, Progress, Refusal};
use crate::launcher::starting::settings;
use crate::launcher::traits::{Facts, Launcher, StartOptions, Started};
use crate::qemu::accel::Accel;
use crate::qemu::disks::Attached;
use crate::qemu::launcher::{Qemu, CHANNELS};
use crate::qemu::{prealloc, program};
use crate::running::libvirt_domain::{end_uuid, Managed};
use crate::running::virsh::{Domain, DENIED};
use crate::running::Running;
use crate::shared::affinity::Pins;
use crate::shared::network::Link;
use crate::shared::shm_link::{remove_links, LinkUser, ShmLink};
use crate::shared::sockets::agent_socket;
use crate::shared::uplink;
use crate::shared::{doorbell, front_end, logs, passed, pins};
use crate::state::machine::{health_on_record, Health};
use crate::state::record::{Granted, Machine, Record};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vshmem_base::error::{error, Result};
use vshmem_guest::settings::exported::Exported;

/// Time that a front end may take to answer; of a machine that is too busy, the record is shown.
const FRONT_END_TIMEOUT: Duration = Duration::from_millis(1500);
/// Bytes that libvirt counts for QEMU itself beside the memory that it locks.
const QEMU_ITSELF: u64 = 1 << 30;

/// The launcher of QEMU by way of libvirt.
pub struct Libvirt;

impl Launcher for Libvirt {
    fn facts(&self) -> &'static Facts {
        &Facts {
            name: "libvirt",
            about: "QEMU here, by way of libvirt",
            needs: "libvirt, its client virsh and QEMU must be installed.",
            boot_hint: "More memory (memory = \"1G\"), another kernel or accel = \"tcg\" may help; libvirt's log of the domain may say more.",
            accelerators: &[("kvm", "The processor's virtualization"), ("tcg", "Translation")],
            transports: &["ivshmem"],
            channels: CHANNELS,
            pool_size: vshmem_pool::DEFAULT_POOL,
            // One has to be asked for: not every libvirt can make it.
            network: false,
            needs_back_end: true,
            can_pin: true,
            gives_devices: true,
            starts_at_once: false,
            reports_hang_up: true,
            has_own_memory: false,
        }
    }

    fn check_host(&self) -> Result<()> {
        program::installed().map(drop)
    }

    fn check(&self, options: &ClusterOptions) -> std::result::Result<(), Refusal> {
        unfit::check(options)
    }

    fn largest_pool(&self, accelerator: Option<&str>) -> Option<u64> {
        Accel::likely(accelerator).largest_pool()
    }

    fn service(&self, uri: Option<&str>) -> Result<Option<String>> {
        let chosen = uri.unwrap_or(uri::default());
        uri::check(chosen)?;
        Ok(Some(chosen.into()))
    }

    fn check_image(&self, system: &System) -> Result<()> {
        Qemu.check_image(system)
    }

    fn gives_uplinks(&self) -> bool {
        true
    }

    fn check_start(&self, record: &Record) -> Result<()> {
        RunsAs::ask(&uri::of(record))?;
        record.machines.iter().try_for_each(|machine| uplink::check(record, machine))
    }

    fn check_restart(&self, record: &Record) -> Result<()> {
        Qemu.check_restart(record)
    }

    fn grants(&self, machine: &str) -> Result<&'static dyn Grants> {
        Qemu.grants(machine)
    }

    fn can_grant(&self, record: &Record, machine: &Machine, pool: &PoolOptions) -> bool {
        Qemu.can_grant(record, machine, pool)
    }

    fn can_revoke(&self, record: &Record, pool: &Granted) -> bool {
        Qemu.can_revoke(record, pool)
    }

    fn pool_name(&self, cluster: &str) -> String {
        Qemu.pool_name(cluster)
    }

    fn pool_path(&self, cluster: &str) -> PathBuf {
        Qemu.pool_path(cluster)
    }

    fn software(
        &self,
        transport: Option<&str>,
        kernel: Option<&Path>,
        driver: &driver::Choice,
        accelerator: Option<&str>,
        report: &mut dyn FnMut(&str),
    ) -> Result<Software> {
        let mut software = Qemu.software(transport, kernel, driver, accelerator, report)?;
        software.description = match software.accel {
            "kvm" => "as domains of libvirt on KVM",
            _ => "as domains of libvirt, emulated",
        };
        Ok(software)
    }

    /// Asks libvirt first, so that there is no pool if it does not answer.
    fn create_pool(&self, record: &mut Record) -> Result<()> {
        RunsAs::ask(&uri::of(record))?;
        Qemu.create_pool(record)
    }

    fn remove_pool(&self, record: &Record) -> Result<()> {
        Qemu.remove_pool(record)
    }

    /// QEMU connects to the back end itself, which serves this user and no other.
    fn serve(&self, record: &Record, pool: &Path) -> Result<PathBuf> {
        match RunsAs::ask(&uri::of(record))?.user() {
            None => doorbell::serve(pool),
            Some(user) => Err(error!(
                "libvirt's QEMU runs as the user {user}, and vshmem agent serves its own user only"
            )),
        }
    }

    fn stop_serving(&self, pool: &Path) {
        doorbell::end(pool);
    }

    fn release_pool(&self, pool: &Granted, machine: &str, process: Option<i32>) {
        doorbell::release(pool, machine, process);
    }

    fn start(
        &self,
        record: &Record,
        index: usize,
        options: &StartOptions,
        links: Option<Vec<Link>>,
        _: &mut dyn FnMut(Progress),
    ) -> Result<Started> {
        let managed = start(record, index, options, links.is_some())?;
        Ok(Started {
            running: Running::Libvirt(Box::new(managed)),
            keep: Box::new(|| Ok(())),
            populated: None,
        })
    }

    fn core_threads(&self, record: &Record, index: usize) -> Result<Vec<i32>> {
        managed(record, index).map_or(Ok(vec![]), Managed::core_threads)
    }

    fn pin(&self, record: &Record, index: usize, pins: &Pins) -> Result<()> {
        managed(record, index).map_or(Ok(()), |managed| managed.pin(pins))
    }

    /// Ends domains that a killed command has started and not written down, and removes links for domains.
    fn clear(&self, record: &Record) -> Result<()> {
        let uri = uri::of(record);
        for machine in &record.machines {
            let uuid = uuid_of(record, machine)?;
            if machine.runs.is_none() {
                let name = name_of(record, machine);
                end_uuid(&Domain { name, connect: Some(uri.clone()) }, &uuid);
            }
            remove_links(&uuid);
        }
        network::remove(record, &uri)?;
        files::remove(&record.name)
    }

    /// The front end is asked, and libvirt is not: that takes a program and a connection each time.
    fn health(&self, record: &Record, machine: &Machine) -> Health {
        let known = health_on_record(&machine.pools);
        let Ok(directory) = record.machine_directory(machine) else { return known };
        match front_end::status(&agent_socket(&directory), FRONT_END_TIMEOUT) {
            Err(_) => known,
            Ok(status) => Health { front_end: true, no_driver: front_end::driver_error(&status), ..known },
        }
    }

    fn last_output(&self, record: &Record, machine: &Machine) -> String {
        Qemu.last_output(record, machine)
    }
}

fn managed(record: &Record, index: usize) -> Option<&Managed> {
    record.machines[index].runs.as_ref().and_then(Running::managed)
}

/// Starts the domain of the machine with this index.
fn start(record: &Record, index: usize, options: &StartOptions, is_networked: bool) -> Result<Managed> {
    let machine = &record.machines[index];
    let (name, uuid) = (name_of(record, machine), uuid_of(record, machine)?);
    let libvirt = Domain { name, connect: Some(uri::of(record)) };
    let runs_as = RunsAs::ask(&uri::of(record))?;
    let files = Files::of(&record.name, runs_as)?;
    let directory = &record.machine_directory(machine)?;
    let system = machine.image.system();
    let mut settings = settings(&Libvirt, record, index, is_networked);
    let exported = Exported::of(&record.shares, machine.image == Image::Host);
    let exports = files.exports(&exported, &record.shares)?;
    settings.exported = Some(exported);
    let accel = Accel::named(options.software.accel).unwrap_or(Accel::Tcg);
    let loaded = |image: &Path, initramfs: Option<&Path>, parameters: &str| -> Result<Loaded> {
        let parameters = format!("{} {parameters}", accel.kernel_parameters());
        program::check_parameters(&parameters)?;
        let initramfs = initramfs.map(|file| files.readable(file)).transpose()?;
        Ok(Loaded { image: files.readable(image)?, initramfs, parameters })
    };
    let kernel = match system {
        None => {
            let (software, initramfs) = (&options.software, options.initramfs.of(&machine.image));
            Some(loaded(&software.image, Some(initramfs), &settings.to_command_line())?)
        }
        Some(system) => {
            let named = system.kernel.as_ref();
            named.map(|it| loaded(&it.image, it.initramfs.as_deref(), &it.parameters)).transpose()?
        }
    };
    let disks = system.map(|system| Attached::make(record, index, system, &settings)).transpose()?;
    if let (Some(disks), Some(user)) = (&disks, runs_as.user()) {
        disks.give(user)?;
    }
    let cards = network::cards(record, machine, &uri::of(record), is_networked)?;
    let link_user = LinkUser { uuid: &uuid, user: runs_as.user() };
    let sockets = machine.pools.iter().zip(options.doorbell_sockets);
    let shm_link: Vec<Option<ShmLink>> = sockets
        .map(|(pool, socket)| socket.is_none().then(|| ShmLink::make(pool, link_user)).transpose())
        .collect::<Result<_>>()?;
    let pools = machine.pools.iter().zip(options.doorbell_sockets).zip(&shm_link);
    let pools: Vec<Pool<'_>> = pools
        .map(|((granted, socket), shm_link)| pool_of(granted, socket.as_deref(), shm_link.as_ref()))
        .collect();
    let rules = record.options.as_ref().map(|options| options.pages).unwrap_or_default();
    let backing = prealloc::backing(machine.pages.given, rules, machine.placement.as_deref());
    let locked = passed::locked(
        &machine.devices,
        machine.memory,
        machine.pools.iter().map(|it| it.size),
        options.ports,
    );
    let (pins, emulator, console) = (pins::of(machine), program::installed()?, logs::console(directory));
    let spec = DomainSpec {
        name: &libvirt.name,
        uuid: &uuid,
        title: format!("{} of Vshmem's cluster {}", machine.name, record.name),
        emulator: &emulator,
        runs_as,
        accel,
        cpus: machine.cpus,
        memory: machine.memory,
        placement: machine.placement.as_deref(),
        pins: pins.as_ref(),
        backing: &backing,
        // In a session libvirt sets no limits.
        locked: locked.filter(|_| runs_as.user().is_some()).map(|bytes| bytes.saturating_add(QEMU_ITSELF)),
        devices: Devices {
            pools: &pools,
            spare: options.ports.spare,
            passed: &machine.devices,
            disks: disks.as_ref().map(|disks| (disks, kernel.is_none(), runs_as)),
            exports: &exports,
            cards: &cards,
            channels: record.channels,
            directory,
            console: &console,
        },
        kernel,
        room: options.ports.largest.saturating_mul(2),
    };
    // Left by a command that was killed before it could write the record.
    if machine.runs.is_none() {
        end_uuid(&libvirt, &uuid);
    }
    let managed = Managed::create(libvirt.clone(), uuid.clone(), runs_as.user(), &describe(&spec)?);
    let managed = managed.map_err(|why| match why.to_string() {
        said if !said.contains(DENIED) => why,
        said if said.contains("cannot initialize fsdev") => {
            why.hint("libvirt's QEMU opens what machines see of this host as another user: that user must be able to enter it (chmod o+x each directory above it).")
        }
        _ if system.is_some() => {
            why.hint("An image has to be where libvirt's QEMU can read it, as in /var/lib/libvirt/images.")
        }
        _ => why,
    })?;
    let named = match record.doorbell {
        true => doorbell::name(managed.process.pid, &machine.name),
        false => Ok(()),
    };
    named.inspect_err(|_| managed.end(Duration::ZERO))?;
    Ok(managed)
}

fn pool_of<'a>(granted: &'a Granted, socket: Option<&'a Path>, shm_link: Option<&ShmLink>) -> Pool<'a> {
    let file = shm_link.map_or(&granted.name, |shm_link| &shm_link.name).clone();
    Pool { granted, file, doorbell: socket }
}
