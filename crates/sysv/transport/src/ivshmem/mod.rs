//! The transport `ivshmem`: pools are the memory of PCI devices, by which a hypervisor shows it to virtual
//! machines.
//!
//! A device 1af4:1110 (QEMU's `ivshmem-plain` and `ivshmem-doorbell`) shows its memory in BAR 2, which sysfs
//! offers as the file `resource2`. [`given`] says what devices are called. `default` means the first device,
//! unless a pool has that name.
//!
//! Where a machine has such a device, or a table of granted pools, names mean these pools first. Other names
//! mean local pools, which must exist.
//!
//! Where the driver vshmem.ko has the device, its file `/dev/vshmemN` is the pool instead: it maps the memory
//! write-back, and waiters can sleep on words of it and be woken. `resource2` maps it uncached, which counts
//! on AMD and on recent Linux on Intel (every access goes to memory then), and waiters can only nap.
//!
//! In the machine, futexes don't work on the device's memory, and the guest can't give it back, so the
//! library zeroes removed segments. The liveness locks are on the file that is opened, so all processes of a
//! machine must open the same one: load the driver before pools are used. `resource2` is one file for the
//! whole machine, with two exceptions: a container with a network namespace of its own mounts a sysfs of its
//! own, and a container's own `/dev` has files of its own. Bind-mount the machine's file into such a
//! container and give its path.

mod pci;

use crate::descriptor::{Owned, OPEN_FLAGS};
use crate::error::{DiscoverError, OpenError};
use crate::given::{self, Address, Names};
use crate::handle::Handle;
use crate::pool_ref::{Name, Path, PoolRef};
use crate::sys::Errno;
use crate::{sys, Transport};
use pci::Devices;

/// The transport `ivshmem`.
#[derive(Clone, Copy, Debug)]
pub struct Ivshmem;

impl Transport for Ivshmem {
    fn name(&self) -> &'static str {
        "ivshmem"
    }

    fn is_here(&self) -> bool {
        // A machine that is granted pools while it runs may have none at the moment.
        given::are()
    }

    fn discover(&self, each: &mut dyn FnMut(&PoolRef) -> bool) -> Result<(), DiscoverError> {
        let devices = Devices::scan()?;
        if devices.all().is_empty() {
            return Ok(());
        }
        let names = Names::read(devices.all(), given::POOLS);
        for &address in devices.all() {
            let pool = pool_of(address, names.of(address).as_ref().map(Name::bytes));
            if pool.is_some_and(|pool| !each(&pool)) {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, pool: &PoolRef) -> Result<Handle, OpenError> {
        if pool.giver() != Some(self.name()) {
            return Err(OpenError::WrongTransport);
        }
        let directory = pool.path_text().bytes().strip_suffix(b"/resource2");
        if let Some(path) = directory.and_then(pci::driver_file) {
            // All processes of a machine must use the same file, since the liveness locks are on it: so
            // `resource2` is no fallback.
            return match sys::open(path.c_str(), OPEN_FLAGS, 0) {
                Ok(fd) => Handle::set_up(&Owned::new(fd), &path),
                Err(Errno(libc::ENOENT)) => Err(OpenError::NoDeviceFile),
                Err(error) => Err(error.into()),
            };
        }
        directory.inspect(|directory| pci::enable(directory));
        let file = Owned::new(sys::open(pool.path(), OPEN_FLAGS, 0)?);
        Handle::set_up(&file, pool.path_text())
    }
}

/// The pool of a device, under its name or address.
fn pool_of(address: Address, name: Option<&[u8]>) -> Option<PoolRef> {
    let written = address.text()?;
    let mut path = Path::new();
    path.push(pci::DEVICES.to_bytes())?;
    path.push(b"/")?;
    path.push(written.bytes())?;
    path.push(b"/resource2")?;
    PoolRef::device(Ivshmem.name(), Some(address), name.unwrap_or(written.bytes()), path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    #[test]
    fn unnamed_devices_are_called_by_their_address() {
        let pool = pool_of(Address::parse(b"00:04.0").expect("an address"), None).expect("a pool");
        assert_eq!(pool.name(), b"0000:00:04.0");
        assert_eq!(pool.path(), c"/sys/bus/pci/devices/0000:00:04.0/resource2");
        assert_eq!(pool.address(), Address::parse(b"00:04.0"));
        assert_eq!(pool.origin(), Origin::Device);
        assert!(!pool.is_local());
    }

    #[test]
    fn refuses_what_is_no_device() {
        let local = PoolRef::at(b"/dev/shm/x").expect("a path");
        assert_eq!(Ivshmem.open(&local).err(), Some(OpenError::WrongTransport));
    }
}
