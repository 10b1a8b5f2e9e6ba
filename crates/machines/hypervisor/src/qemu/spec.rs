//! The parts of a machine of a cluster, as its record and its launcher's options say them.

use super::accel::Accel;
use super::options::{Beginning, Loaded, MachineSpec, PoolFile, RootDisk};
use super::prealloc;
use crate::launcher::traits::StartOptions;
use crate::shared::network::Link;
use crate::shared::{root_server, sandbox};
use crate::state::record::{Granted, Machine, Record};
use std::path::{Path, PathBuf};
use vshmem_base::error::Result;
use vshmem_guest::settings::Settings;

/// The transport for which QEMU provides persistent memory.
pub const DAX: &str = "dax";
/// The size of transparent huge pages.
const HUGE: u64 = 2 << 20;

/// The kernel that a machine boots with these settings.
pub fn kernel(
    machine: &Machine,
    directory: &Path,
    options: &StartOptions,
    settings: &Settings,
) -> Result<Option<Loaded>> {
    let accel = Accel::named(options.software.accel).unwrap_or(Accel::Tcg);
    let loaded = |image: &Path, initramfs: Option<&Path>, parameters: &str| -> Result<Loaded> {
        let readable = |file: &Path| sandbox::readable(file, machine.user(), directory);
        let parameters = format!("{} {parameters}", accel.kernel_parameters());
        Ok(Loaded { image: readable(image)?, initramfs: initramfs.map(readable).transpose()?, parameters })
    };
    match machine.image.system() {
        None => {
            let (software, initramfs) = (&options.software, options.initramfs.of(&machine.image));
            loaded(&software.image, Some(initramfs), &settings.to_command_line()).map(Some)
        }
        Some(system) => {
            let named = system.kernel.as_ref();
            named.map(|it| loaded(&it.image, it.initramfs.as_deref(), &it.parameters)).transpose()
        }
    }
}

/// The parts of the machine with this index, which boots, without its disks and its uplink.
pub fn of_record<'a>(
    record: &'a Record,
    index: usize,
    options: &'a StartOptions,
    links: Option<Vec<Link>>,
    (settings, directory): (&'a Settings, &'a Path),
) -> Result<MachineSpec<'a>> {
    let machine = &record.machines[index];
    let rules = record.options.as_ref().map(|options| options.pages).unwrap_or_default();
    Ok(MachineSpec {
        beginning: Beginning::Boot,
        settings,
        title: format!("vshmem-{}-{}", record.name, machine.name),
        accel: Accel::named(options.software.accel).unwrap_or(Accel::Tcg),
        cpus: machine.cpus,
        memory: machine.memory,
        placement: machine.placement.as_deref(),
        devices: &machine.devices,
        backing: prealloc::backing(machine.pages.given, rules, machine.placement.as_deref()),
        kernel: kernel(machine, directory, options, settings)?,
        disks: None,
        root: root_disk(record, settings)?,
        directory,
        pools: pool_files(&machine.pools, options.doorbell_sockets),
        later_pools: vec![],
        ports: options.ports,
        links,
        uplink: None,
        index: machine.index,
        user: machine.user(),
    })
}

/// The disk that is the machine's root, if it has one.
fn root_disk(record: &Record, settings: &Settings) -> Result<Option<RootDisk>> {
    let root = record.root.as_ref().filter(|_| settings.root_disk);
    root.map(|root| Ok(RootDisk { id: root.id.clone(), sockets: root_server::sockets(&record.name)? }))
        .transpose()
}

/// Whether this is the transport for which QEMU provides persistent memory.
pub fn is_dax(transport: &Option<String>) -> bool {
    transport.as_deref() == Some(DAX)
}

/// The files of pools, with the sockets at which the back end serves them, if it does.
fn pool_files<'a>(pools: &'a [Granted], doorbell_sockets: &'a [Option<PathBuf>]) -> Vec<PoolFile<'a>> {
    let file = |(index, pool): (usize, &'a Granted)| PoolFile {
        name: &pool.name,
        path: &pool.path,
        size: pool.size,
        align: alignment(pool),
        doorbell: doorbell_sockets.get(index).and_then(Option::as_deref),
        dax: is_dax(&pool.transport),
    };
    pools.iter().enumerate().map(file).collect()
}

/// The alignment of QEMU's mapping of a pool, in bytes: the pool's pages, so that these are large for QEMU,
/// too; those of a hugetlbfs can't be mapped otherwise.
fn alignment(pool: &Granted) -> Option<u64> {
    let page = rustix::fs::statfs(&pool.path).map_or(0, |it| it.f_bsize as u64);
    (pool.size >= HUGE || is_dax(&pool.transport)).then(|| page.max(HUGE))
}
