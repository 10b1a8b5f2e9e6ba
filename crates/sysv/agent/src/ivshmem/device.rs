//! The device files of pools in a machine, and the state of their driver, as the kernel has them in sysfs.

use crate::guest;
use crate::guest::protocol::DriverStatus;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vshmem_transport::ivshmem::Ivshmem;
use vshmem_transport::{PoolRef, Transport};

/// The driver in sysfs, if it is loaded.
const DRIVER: &str = "/sys/module/vshmem";
/// A file with the reason why the driver could not be loaded.
pub const DRIVER_FAILED: &str = "/run/vshmem/driver-failed";

/// The directory of a pool's device in sysfs.
fn directory(pool: &PoolRef) -> PathBuf {
    let path = Path::new(std::ffi::OsStr::from_bytes(pool.path().to_bytes()));
    path.parent().unwrap_or(path).into()
}

/// The driver's file of a device, if the driver has bound it.
fn driver_file(device: &Path) -> Option<PathBuf> {
    let named = fs::read_dir(device.join("vshmem")).ok()?.flatten().next()?;
    Some(Path::new("/dev").join(named.file_name()))
}

/// The devices that show pools.
#[derive(Debug)]
pub struct Devices;

impl guest::Devices for Devices {
    fn transport(&self) -> &'static dyn Transport {
        &Ivshmem
    }

    fn is_driver_pending(&self, pool: &PoolRef) -> bool {
        Path::new(DRIVER).exists() && !self.has_driver(pool)
    }

    fn has_driver(&self, pool: &PoolRef) -> bool {
        driver_file(&directory(pool)).is_some()
    }

    fn set_owner(&self, pool: &PoolRef, owner: u32) -> io::Result<()> {
        give_device(&directory(pool), owner)
    }

    fn driver(&self) -> DriverStatus {
        if Path::new(DRIVER).exists() {
            return DriverStatus::Loaded(true);
        }
        match fs::read_to_string(DRIVER_FAILED) {
            Ok(why) if !why.trim().is_empty() => DriverStatus::Failed(why.trim().into()),
            _ => DriverStatus::Loaded(false),
        }
    }
}

/// Gives the device with this directory in sysfs to a user, as [`guest::give`] does. That is the driver's
/// file, or else BAR 2.
pub fn give_device(device: &Path, owner: u32) -> io::Result<()> {
    let memory = driver_file(device).unwrap_or_else(|| device.join("resource2"));
    guest::give(&memory, owner)?;
    // Without a driver a device's memory may be disabled, and its user can't enable it.
    let enable = device.join("enable");
    if fs::read_to_string(&enable)?.trim() == "0" {
        let _ = fs::write(enable, "1");
    }
    Ok(())
}

/// Records why the driver could not be loaded, for the front end's status.
pub fn driver_failed(why: &str) {
    if let Some(directory) = Path::new(DRIVER_FAILED).parent() {
        let _ = fs::create_dir_all(directory);
    }
    let _ = fs::write(DRIVER_FAILED, format!("{why}\n"));
}
