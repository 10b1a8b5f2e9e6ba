//! QEMU as its machines see it: their channels are ports of virtio-serial, their pools devices on the PCI
//! bus.

use super::Hypervisor;
use crate::slots;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vshmem_agent::dax;
use vshmem_agent::guest::{port, Devices};
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::interrupt;
use vshmem_transport::dax::Dax;
use vshmem_transport::ivshmem::Ivshmem;
use vshmem_transport::{PoolRef, Transport};

/// The beginning of the names of the channels' virtio-serial ports; a number follows.
pub const PORT_NAME: &str = "vshmem.";
/// Time that the kernel may take to announce the ports.
const PORTS_TIMEOUT: Duration = Duration::from_secs(20);

/// QEMU, started by the launcher `qemu` or by libvirt.
pub struct Qemu;

impl Hypervisor for Qemu {
    fn file_transport(&self) -> &'static str {
        "virtio"
    }

    fn channels(&self, count: usize) -> Result<Vec<PathBuf>> {
        find_ports(count)
    }

    fn find_pools(&self, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        slots::find_devices().explain(|| "could not look for the devices of pools".into())?;
        let mut found = 0;
        let looked = Ivshmem.discover(&mut |_| {
            found += 1;
            true
        });
        looked.map_err(|error| error!("could not look for the devices of pools: {error}"))?;
        match found == count {
            true => Ok(()),
            false => Err(error!("the machine has {found} pools instead of {count}")),
        }
    }

    fn set_pool_owner(&self, uid: u32) -> Result<()> {
        open_pools(uid)
    }

    fn driver_failed(&self, why: &str) {
        vshmem_agent::ivshmem::driver_failed(why);
    }

    fn front_end(&self, uid: u32) -> Vec<String> {
        ["agent", "--guest", "--owner", &uid.to_string()].map(String::from).to_vec()
    }
}

/// The device files of the channels, once the kernel has announced them all.
fn find_ports(count: usize) -> Result<Vec<PathBuf>> {
    let found = || {
        let mut found = port::find(Path::new(port::PORTS), |name| name.starts_with(PORT_NAME));
        found.retain(|device| device.exists());
        found
    };
    let all = interrupt::wait_for(PORTS_TIMEOUT, || Ok(Some(found()).filter(|found| found.len() >= count)))?;
    all.ok_or_else(|| error!("the machine has {} channels instead of {count}", found().len()))
}

/// Permits the machine's user to map the pools that are there from the start.
fn open_pools(uid: u32) -> Result<()> {
    let devices = "/sys/bus/pci/devices";
    for entry in fs::read_dir(devices).explain(|| format!("reading {devices}"))?.flatten() {
        let id = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        if id("vendor").trim() == "0x1af4" && id("device").trim() == "0x1110" {
            vshmem_agent::ivshmem::give_device(&entry.path(), uid)
                .explain(|| format!("could not give {} to its user", entry.path().display()))?;
        }
    }
    dax::make_devices(None).explain(|| "could not make DAX devices of persistent memory".into())?;
    let mut given = Ok(());
    let give = &mut |pool: &PoolRef| {
        given = dax::Devices.set_owner(pool, uid);
        given.is_ok()
    };
    Dax.discover(give).map_err(|error| error!("could not look for DAX devices: {error}"))?;
    given.explain(|| "could not give DAX devices to their user".into())
}
