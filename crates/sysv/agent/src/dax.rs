//! DAX devices of a machine, which its kernel makes of persistent memory, and their owners.

use crate::guest;
use crate::guest::protocol::DriverStatus;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_transport::dax::Dax;
use vshmem_transport::given::Address;
use vshmem_transport::head::UUID;
use vshmem_transport::{PoolRef, Transport};

/// The directory where sysfs lists persistent memory (libnvdimm).
const MEMORY: &str = "/sys/bus/nd/devices";
/// The file by which the driver that makes DAX devices is bound to such memory.
const BIND: &str = "/sys/bus/nd/drivers/dax_pmem/bind";
/// Time that a device may take to appear.
const APPEAR_TIMEOUT: Duration = Duration::from_secs(5);

/// The DAX devices that show pools.
#[derive(Debug)]
pub struct Devices;

impl guest::Devices for Devices {
    fn transport(&self) -> &'static dyn Transport {
        &Dax
    }

    fn make(&self, address: Address) -> io::Result<()> {
        make_devices(Some(address))
    }

    fn is_driver_pending(&self, _: &PoolRef) -> bool {
        false
    }

    fn has_driver(&self, _: &PoolRef) -> bool {
        false
    }

    fn set_owner(&self, pool: &PoolRef, owner: u32) -> io::Result<()> {
        let file = Path::new(std::ffi::OsStr::from_bytes(pool.path().to_bytes()));
        guest::give(file, owner)
    }

    fn driver(&self) -> DriverStatus {
        DriverStatus::Loaded(false)
    }
}

/// Has the kernel make a DAX device of each region of persistent memory that is not in use, or of those of
/// one PCI device. They must be pools: what is none is overwritten.
///
/// The kernel gets all values of the block in front of a pool ([`vshmem_transport::head`]), and refuses a
/// block with other ones. Other members of the pool could otherwise have it keep its records of pages where
/// they can write, or take the memory for something other than a pool. So the driver that takes any block
/// that it finds, nd_pmem, must not be loaded.
///
/// # Errors
/// The kernel refuses, or lacks the driver.
pub fn make_devices(of: Option<Address>) -> io::Result<()> {
    if !Path::new(MEMORY).exists() {
        return Ok(());
    }
    let is_meant = |region: &Path| {
        let place = fs::canonicalize(region).unwrap_or_default();
        let mut addresses = place.iter().rev().map(|part| Address::parse(part.as_bytes()));
        of.is_none_or(|of| addresses.find_map(|address| address) == Some(of))
    };
    for entry in fs::read_dir(MEMORY)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("ndbus") {
            // The answer comes when all that is on this bus has been found.
            let _ = fs::read(entry.path().join("wait_probe"));
        }
    }
    for entry in fs::read_dir(MEMORY)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(number) = name.strip_prefix("region").filter(|_| is_meant(&entry.path())) else {
            continue;
        };
        let namespace = format!("namespace{number}.0");
        let holder = fs::read_to_string(entry.path().join(&namespace).join("holder")).unwrap_or_default();
        if holder.trim().is_empty() {
            make_device_of(&entry.path(), &namespace)
                .map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
        }
    }
    Ok(())
}

/// Makes a DAX device of the whole of a region.
fn make_device_of(region: &Path, namespace: &str) -> io::Result<()> {
    let seed = fs::read_to_string(region.join("dax_seed"))?;
    let seed = seed.trim();
    let device = Path::new(MEMORY).join(seed);
    for (attribute, value) in [("uuid", uuid().as_str()), ("mode", "ram"), ("namespace", namespace)] {
        fs::write(device.join(attribute), value)
            .map_err(|e| io::Error::new(e.kind(), format!("{attribute}: {e}")))?;
    }
    let bind = |align: &&str| fs::write(device.join("align"), align).and_then(|()| fs::write(BIND, seed));
    // Pages, unless the block says otherwise.
    bind(&"4096").or_else(|_| bind(&"2097152"))?;
    let file = PathBuf::from("/dev").join(seed);
    let deadline = Instant::now() + APPEAR_TIMEOUT;
    while !file.exists() {
        if Instant::now() >= deadline {
            return Err(io::Error::other(format!("no {} has come", file.display())));
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The identifier of pools' devices, as text.
fn uuid() -> String {
    let digits: Vec<String> = UUID.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16];
    parts.map(|part| digits[part].concat()).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identifier_is_written_as_the_kernel_reads_it() {
        assert_eq!(uuid(), "d40c5e71-2b93-4f0a-8c36-7673686d656d");
    }
}
