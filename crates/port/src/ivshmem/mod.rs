//! The port `ivshmem`: pools are the memory of PCI devices by which a hypervisor shows it to virtual machines.
//!
//! A device 1af4:1110 (QEMU's `ivshmem-plain` and `ivshmem-doorbell`) shows its memory in BAR 2, which sysfs offers as the
//! file `resource2`. Names come from the table of granted pools, `/run/vshmem/pools` ([`grants`]), else from the kernel command
//! line, `vshmem.pools=NAME[:ADDRESS],...`; a name without an address is that of the next device that has none yet there, in the
//! order of PCI addresses. A device without a name is called by its address. `default` means the first device, unless a pool has that name.
//!
//! Where a machine has such a device, or a table of granted pools, names mean these pools first; a local pool that none of them
//! is called like can be named too, once it exists.
//!
//! Where the driver vshmem.ko has the device, its file `/dev/vshmemN` is the pool instead: it maps the memory write-back, and
//! waiters can sleep on words of it and be rung. `resource2` maps it uncached, which counts on AMD and on recent Linux on Intel (every
//! access goes to memory then), and waiters can only nap.
//!
//! In the machine, futexes don't work on the device's memory; and it can't be given back by the guest, so removed segments are zeroed
//! by hand. The life locks are on the file that is opened, so all processes of a machine must open the same one: load the
//! driver before pools are used. `resource2` is one file for the whole machine, except that containers with a network namespace of
//! their own mount a sysfs of their own, and a container's own `/dev` has files of its own: bind-mount the machine's
//! file into them and give its path.

pub(crate) mod command_line;
mod grants;
mod pci;

pub use grants::{Grant, GRANTS};

use crate::descriptor::{Owned, OPEN_FLAGS};
use crate::error::{DiscoverError, OpenError};
use crate::handle::Handle;
use crate::pool_ref::{Name, Origin, Path, PoolRef};
use crate::sys::Errno;
use crate::{sys, Port};
use command_line::CommandLine;
use pci::{Address, Devices};

/// The port `ivshmem`.
#[derive(Clone, Copy, Debug)]
pub struct Ivshmem;

impl Port for Ivshmem {
    fn name(&self) -> &'static str {
        "ivshmem"
    }

    fn discover(&self, each: &mut dyn FnMut(&PoolRef) -> bool) -> Result<(), DiscoverError> {
        let devices = Devices::scan()?;
        if devices.all().is_empty() {
            return Ok(());
        }
        let names = Names::read(devices.all());
        for &address in devices.all() {
            let pool = pool_of(address, names.of(address).as_ref().map(Name::bytes));
            if pool.is_some_and(|pool| !each(&pool)) {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, pool: &PoolRef) -> Result<Handle, OpenError> {
        if pool.origin() != Origin::Device {
            return Err(OpenError::WrongPort);
        }
        let directory = pool.path_text().bytes().strip_suffix(b"/resource2");
        if let Some(path) = directory.and_then(pci::driver_file) {
            // All processes of a machine must use the same file, since the life locks are on it: so never `resource2` beside it.
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

/// What a name means in this machine.
// Returned once and taken apart at once; there is no heap to put the large case on.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Meaning {
    /// This pool.
    Pool(PoolRef),
    /// Nothing, though the machine has pools.
    Nothing,
    /// The machine has no device, and no table of granted pools, so the name is that of a local pool.
    Local,
}

/// Finds out what a name means in this machine.
pub(crate) fn find(name: &[u8]) -> Result<Meaning, DiscoverError> {
    let devices = Devices::scan()?;
    if devices.all().is_empty() {
        // A machine that is given pools while it runs may have none just now.
        return Ok(if grants::exist() {
            Meaning::Nothing
        } else {
            Meaning::Local
        });
    }
    Ok(find_among(devices.all(), name).map_or(Meaning::Nothing, Meaning::Pool))
}

/// The pool of this name among those of some devices.
#[inline(never)] // Keeps the command line off the stack where there is no device.
fn find_among(devices: &[Address], name: &[u8]) -> Option<PoolRef> {
    let names = Names::read(devices);
    let wanted = Address::parse(name);
    let is_it = |address: &Address| {
        wanted == Some(*address) || names.of(*address).is_some_and(|its| its.bytes() == name)
    };
    let mut all = devices.iter().copied();
    let address = all
        .find(is_it)
        .or_else(|| devices.first().copied().filter(|_| name == b"default"))?;
    pool_of(address, names.of(address).as_ref().map(Name::bytes))
}

/// What devices are called in this machine.
struct Names<'d> {
    devices: &'d [Address],
    command_line: CommandLine,
}

impl Names<'_> {
    fn read(devices: &[Address]) -> Names<'_> {
        Names {
            devices,
            command_line: CommandLine::read(),
        }
    }

    /// The name of a device, if it has one. What the host says now counts more than what it said when the machine started.
    fn of(&self, address: Address) -> Option<Name> {
        grants::name_of(address).or_else(|| {
            let mut name = Name::new();
            let told = name_of(address, self.devices, self.command_line.value())?;
            name.push(told).map(|()| name)
        })
    }
}

/// The name that the command line gives to a device, if any.
fn name_of<'a>(address: Address, devices: &[Address], value: &'a [u8]) -> Option<&'a [u8]> {
    let explicit =
        |address| command_line::entries(value).find(|entry| entry.address == Some(address));
    if let Some(entry) = explicit(address) {
        return Some(entry.name);
    }
    let unnamed_before = devices
        .iter()
        .take_while(|&&device| device != address)
        .filter(|&&device| explicit(device).is_none())
        .count();
    command_line::entries(value)
        .filter(|entry| entry.address.is_none())
        .nth(unnamed_before)
        .map(|entry| entry.name)
}

/// The pool of a device, under its name or address.
fn pool_of(address: Address, name: Option<&[u8]>) -> Option<PoolRef> {
    let written = address.text()?;
    let mut path = Path::new();
    path.push(pci::DEVICES.to_bytes())?;
    path.push(b"/")?;
    path.push(written.bytes())?;
    path.push(b"/resource2")?;
    PoolRef::device(name.unwrap_or(written.bytes()), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text.as_bytes()).expect("a PCI address")
    }

    #[test]
    fn names_come_from_the_command_line() {
        let devices = [
            address("00:03.0"),
            address("00:04.0"),
            address("00:05.0"),
            address("00:06.0"),
        ];
        let value = b"a,b:00:03.0,c";
        let names = devices.map(|device| name_of(device, &devices, value));
        assert_eq!(names, [Some(&b"b"[..]), Some(b"a"), Some(b"c"), None]);
    }

    #[test]
    fn unnamed_devices_are_called_by_their_address() {
        let pool = pool_of(address("00:04.0"), None).expect("a pool");
        assert_eq!(pool.name(), b"0000:00:04.0");
        assert_eq!(pool.path(), c"/sys/bus/pci/devices/0000:00:04.0/resource2");
        assert_eq!(pool.origin(), Origin::Device);
        assert!(!pool.is_local());
    }

    #[test]
    fn refuses_what_is_no_device() {
        let local = PoolRef::at(b"/dev/shm/x").expect("a path");
        assert_eq!(Ivshmem.open(&local).err(), Some(OpenError::WrongPort));
    }
}
