//! The transport `dax`: pools are the memory of DAX devices, the files `/dev/daxX.Y`.
//!
//! Linux makes such a device of memory that is to be mapped and not managed: of persistent memory that a
//! hypervisor gives to a virtual machine (virtio-pmem, NVDIMM), or of memory that lies on CXL. Drivers of
//! Linux do all of it, and nothing of Vshmem's is loaded. The memory is mapped write-back, and futexes work
//! on it, but wake threads of the same kernel only: nobody rings a doorbell, so a thread that waits for
//! another kernel naps.
//!
//! A device is given by its path, as `/dev/dax0.0`; or by the name that the kernel's parameter `vshmem.dax`
//! gives to it, by the address of the PCI device that it belongs to ([`given`]). A device that has neither is
//! not looked at, since it may be anything.
//!
//! The liveness locks are on the file that is opened, so all processes of a kernel must open the same one:
//! bind-mount it into containers. Which kernel this is, is marked on it too, by the first process that uses
//! it, which must own it.
//!
//! A device has an alignment: it is mapped, protected and unmapped in multiples of that only. It is the page
//! size of its [`Handle`]; where it is more than a page, the pool must have been made with segments that are
//! aligned so.
//!
//! # Coherent memory only
//! Persistent memory of this host, or of the host under this machine, is coherent as all memory is. Other
//! devices may be shared by several hosts. Compare-and-swap between those is right only if their hardware
//! keeps their caches coherent, and no flushing makes up for that: such a device is refused unless root has
//! written its name into `/etc/vshmem/coherent`.

use core::ffi::CStr;

use crate::descriptor::{Owned, OPEN_FLAGS};
use crate::directory::each_entry;
use crate::error::{DiscoverError, OpenError};
use crate::given::{self, Address, Names};
use crate::handle::Handle;
use crate::pool_ref::{Path, PoolRef};
use crate::{sys, Transport};

/// The directory in which sysfs lists the devices.
const DEVICES: &CStr = c"/sys/bus/dax/devices";
/// Names of devices whose memory is coherent between all hosts that share it, a line each.
const COHERENT: &CStr = c"/etc/vshmem/coherent";
/// Most devices that are looked at; further ones are not seen.
const MOST_DEVICES: usize = 64;

/// The transport `dax`.
#[derive(Clone, Copy, Debug)]
pub struct Dax;

impl Transport for Dax {
    fn name(&self) -> &'static str {
        "dax"
    }

    fn at(&self, path: &[u8]) -> Option<PoolRef> {
        let pool = PoolRef::at(path).ok()?;
        let file = Owned::new(sys::open(pool.path(), libc::O_PATH, 0).ok()?);
        let device = Device::behind(file.fd())?;
        PoolRef::device(Dax.name(), device.address(), device.name()?, pool.path_text().clone())
    }

    fn discover(&self, each: &mut dyn FnMut(&PoolRef) -> bool) -> Result<(), DiscoverError> {
        let mut addresses = [Address::default(); MOST_DEVICES];
        let mut count = 0;
        each_device(&mut |_, address| {
            if let Some(free) = addresses.get_mut(count) {
                *free = address;
                count += 1;
            }
            true
        })?;
        let addresses = &mut addresses[..count];
        if addresses.is_empty() {
            return Ok(());
        }
        addresses.sort_unstable();
        let names = Names::read(addresses, given::DAX);
        each_device(&mut |device, address| {
            let name = names.of(address);
            let pool = name.and_then(|name| pool_of(device, address, name.bytes()));
            pool.is_none_or(|pool| each(&pool))
        })
    }

    fn open(&self, pool: &PoolRef) -> Result<Handle, OpenError> {
        if pool.giver() != Some(self.name()) {
            return Err(OpenError::WrongTransport);
        }
        let file = Owned::new(sys::open(pool.path(), OPEN_FLAGS, 0)?);
        let device = Device::behind(file.fd()).ok_or(OpenError::NotAFile)?;
        if !device.is_persistent() && !is_declared(device.name()) {
            return Err(OpenError::NotDeclared);
        }
        let number = |name| device.number(name).ok_or(OpenError::NotFound);
        let (size, align) = (number(b"/size")?, number(b"/align")?);
        Handle::set_up_dax(&file, pool.path_text(), size, align.max(sys::page_size()))
    }
}

/// Calls `each` for every DAX device that belongs to a PCI device, until it returns `false`.
fn each_device(each: &mut dyn FnMut(&Device, Address) -> bool) -> Result<(), DiscoverError> {
    each_entry(DEVICES, &mut |_, name| {
        let device = Device::listed(name.to_bytes());
        let address = device.as_ref().and_then(Device::address);
        device.zip(address).is_none_or(|(device, address)| each(&device, address))
    })
}

/// The pool of a device that was given this name.
fn pool_of(device: &Device, address: Address, name: &[u8]) -> Option<PoolRef> {
    let mut path = Path::new();
    path.push(b"/dev/")?;
    path.push(device.name()?)?;
    PoolRef::device(Dax.name(), Some(address), name, path)
}

/// A DAX device: where sysfs has it.
struct Device {
    /// The link to it there.
    link: Path,
    /// The target of that link: a path through all that the device belongs to.
    place: Path,
}

impl Device {
    /// The device that an open file stands for, if it stands for one.
    fn behind(fd: i32) -> Option<Device> {
        let stat = sys::fstat(fd).ok()?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFCHR {
            return None;
        }
        let mut link = Path::new();
        link.push(b"/sys/dev/char/")?;
        link.push_decimal(u64::from(libc::major(stat.st_rdev)))?;
        link.push(b":")?;
        link.push_decimal(u64::from(libc::minor(stat.st_rdev)))?;
        let device = Device::at(link)?;
        let mut buffer = [0; 256];
        let subsystem = device.file(b"/subsystem")?;
        let bus = sys::read_link(subsystem.c_str(), &mut buffer).ok()?;
        bus.ends_with(b"/bus/dax").then_some(device)
    }

    /// The device that sysfs lists under this name.
    fn listed(name: &[u8]) -> Option<Device> {
        let mut link = Path::new();
        link.push(DEVICES.to_bytes())?;
        link.push(b"/")?;
        link.push(name)?;
        Device::at(link)
    }

    /// The device that a link in sysfs leads to.
    fn at(link: Path) -> Option<Device> {
        let mut buffer = [0; 512];
        let mut place = Path::new();
        place.push(sys::read_link(link.c_str(), &mut buffer).ok()?)?;
        Some(Device { link, place })
    }

    /// The devices that it belongs to, from the top, and its own name at the end.
    fn parts(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.place.bytes().split(|&c| c == b'/')
    }

    /// `dax0.0` or the like.
    fn name(&self) -> Option<&[u8]> {
        self.parts().next_back()
    }

    /// The address of the PCI device that it belongs to, if it does.
    fn address(&self) -> Option<Address> {
        self.parts().rev().find_map(Address::parse)
    }

    /// Whether it is of persistent memory: of the host's, or given by the hypervisor.
    fn is_persistent(&self) -> bool {
        self.parts().any(|part| part.starts_with(b"ndbus"))
    }

    /// One of its attributes.
    fn file(&self, name: &[u8]) -> Option<Path> {
        let mut file = self.link.clone();
        file.push(name)?;
        Some(file)
    }

    /// An attribute that is a number.
    fn number(&self, name: &[u8]) -> Option<u64> {
        let mut buffer = [0; 32];
        let text = sys::read_file(self.file(name)?.c_str(), &mut buffer)?;
        core::str::from_utf8(text).ok()?.trim().parse().ok()
    }
}

/// Whether root says that a device's memory is coherent between all hosts that share it.
fn is_declared(name: Option<&[u8]>) -> bool {
    let mut buffer = [0; 4096];
    let Some(text) = sys::read_file(COHERENT, &mut buffer) else {
        return false;
    };
    let mut lines = text.split(|&c| c == b'\n').map(<[u8]>::trim_ascii);
    name.is_some_and(|name| lines.any(|line| line == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Found;

    fn device(place: &[u8]) -> Device {
        let (link, mut kept) = (Path::new(), Path::new());
        kept.push(place).expect("short");
        Device { link, place: kept }
    }

    #[test]
    fn a_device_is_known_by_where_it_lies() {
        let given = device(
            b"../../devices/pci0000:00/0000:00:02.0/0000:01:00.0/virtio0/ndbus0/region0/dax0.0/dax0.0",
        );
        assert_eq!(given.address(), Address::parse(b"01:00.0"));
        assert_eq!(given.name(), Some(&b"dax0.0"[..]));
        assert!(given.is_persistent());
        let shared =
            device(b"../../devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax1.0");
        assert_eq!((shared.address(), shared.name()), (None, Some(&b"dax1.0"[..])));
        assert!(!shared.is_persistent());
    }

    #[test]
    fn what_is_no_dax_device_is_left_to_others() {
        assert!(Dax.at(b"/dev/null").is_none(), "another character device");
        assert!(Dax.at(b"/proc/self/exe").is_none() && Dax.at(b"/nonexistent/x").is_none());
        let local = PoolRef::at(b"/dev/null").expect("a path");
        assert_eq!(Dax.open(&local).err(), Some(OpenError::WrongTransport));
    }

    /// A machine without such devices.
    #[test]
    fn without_devices_names_are_others() {
        if std::path::Path::new("/sys/bus/dax/devices/dax0.0").exists() {
            return;
        }
        assert!(matches!(Dax.find(b"default"), Ok(Found::NotHere)));
    }
}
