//! Finding and enabling PCI devices by sysfs.

use core::ffi::CStr;

use crate::descriptor::Owned;
use crate::directory::each_entry;
use crate::error::DiscoverError;
use crate::given::Address;
use crate::pool_ref::Path;
use crate::sys;
use crate::text::{hexadecimal, Text};

/// The directory in which sysfs lists the devices.
pub(crate) const DEVICES: &CStr = c"/sys/bus/pci/devices";
/// The ids of the device: Red Hat, Inter-VM shared memory.
const VENDOR: u64 = 0x1af4;
const DEVICE: u64 = 0x1110;
/// The ids as `/proc/bus/pci/devices` writes them.
const IN_LIST: &[u8] = b"\t1af41110\t";
/// Most devices of a machine; further ones are ignored.
const MOST_DEVICES: usize = 64;

/// The devices that show pools, in the order of their addresses.
pub(crate) struct Devices {
    addresses: [Address; MOST_DEVICES],
    count: usize,
}

impl Devices {
    /// Finds them.
    #[inline(never)] // Keeps its buffers off the caller's stack.
    pub fn scan() -> Result<Devices, DiscoverError> {
        let mut found = Devices { addresses: [Address::default(); MOST_DEVICES], count: 0 };
        // One file instead of two for each device: most machines have no such device.
        if contains(c"/proc/bus/pci/devices", IN_LIST) == Some(false) {
            return Ok(found);
        }
        each_entry(DEVICES, &mut |directory, name| {
            if let Some(address) = Address::parse(name.to_bytes()) {
                if id(directory, name, b"/vendor") == Some(VENDOR)
                    && id(directory, name, b"/device") == Some(DEVICE)
                {
                    found.insert(address);
                }
            }
            true
        })?;
        Ok(found)
    }

    /// Adds an address in its place.
    fn insert(&mut self, address: Address) {
        if let Some(free) = self.addresses.get_mut(self.count) {
            *free = address;
            self.count += 1;
            self.addresses[..self.count].sort_unstable();
        }
    }

    /// All of them.
    pub fn all(&self) -> &[Address] {
        &self.addresses[..self.count]
    }
}

/// Reads one of the ids of a device.
fn id(devices: i32, device: &CStr, file: &[u8]) -> Option<u64> {
    let mut path = Text::<64>::new();
    path.push(device.to_bytes())?;
    path.push(file)?;
    let file = Owned::new(sys::open_at(devices, path.c_str(), libc::O_RDONLY, 0).ok()?);
    let mut buffer = [0u8; 16];
    let len = sys::read(file.fd(), &mut buffer).ok()?;
    hexadecimal(buffer.get(..len)?.trim_ascii().strip_prefix(b"0x")?)
}

/// Whether a file contains some bytes. `None` if it can't be read.
fn contains(path: &CStr, needle: &[u8]) -> Option<bool> {
    let file = Owned::new(sys::open(path, libc::O_RDONLY, 0).ok()?);
    let mut buffer = [0u8; 512];
    // The end of the previous buffer, in which the bytes may begin.
    let mut kept = 0;
    loop {
        let count = sys::read(file.fd(), buffer.get_mut(kept..)?).ok()?;
        if count == 0 {
            return Some(false);
        }
        let len = kept + count;
        if buffer.get(..len)?.windows(needle.len()).any(|window| window == needle) {
            return Some(true);
        }
        kept = len.min(needle.len() - 1);
        buffer.copy_within(len - kept..len, 0);
    }
}

/// Enables a device's memory. Firmware does so for devices that are there when the machine starts, but not
/// for those plugged in later. It needs a privilege; without it, the machine's administrator must have done
/// so. The memory of a device that is not enabled reads as ones, which is no pool.
pub(crate) fn enable(device: &[u8]) {
    let mut path = Path::new();
    if path.push(device).and_then(|()| path.push(b"/enable")).is_none() {
        return;
    }
    let mut state = [0u8; 4];
    let read = sys::open(path.c_str(), libc::O_RDONLY, 0)
        .map(Owned::new)
        .and_then(|file| sys::read(file.fd(), &mut state));
    if read.is_ok() && state[0] == b'0' {
        if let Ok(file) = sys::open(path.c_str(), libc::O_WRONLY, 0).map(Owned::new) {
            let _ = sys::write(file.fd(), b"1");
        }
    }
}

/// The device file of vshmem.ko, if that driver has the device with this directory in sysfs.
pub(crate) fn driver_file(device: &[u8]) -> Option<Path> {
    let mut directory = Path::new();
    directory.push(device)?;
    directory.push(b"/vshmem")?;
    let mut found = None;
    each_entry(directory.c_str(), &mut |_, name| {
        if name.to_bytes().starts_with(b"vshmem") {
            let mut path = Path::new();
            found = path.push(b"/dev/").and_then(|()| path.push(name.to_bytes())).map(|()| path);
        }
        found.is_none()
    })
    .ok()?;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_sorted_and_bounded() {
        let mut devices = Devices::scan().expect("sysfs can be read, or is not there");
        let before = devices.all().len();
        for device in (0..32).rev() {
            for function in 0..3 {
                let address = std::format!("7:0:{device:x}.{function}");
                devices.insert(Address::parse(address.as_bytes()).expect("an address"));
            }
        }
        assert!(before < MOST_DEVICES && devices.all().len() == MOST_DEVICES);
        assert!(devices.all().is_sorted());
    }

    #[test]
    fn a_drivers_file_is_named_after_its_entry() {
        let root = std::env::temp_dir().join(std::format!("vshmem-pci-{}", std::process::id()));
        let device = root.as_os_str().as_encoded_bytes();
        assert!(driver_file(device).is_none(), "no driver has it");
        std::fs::create_dir_all(root.join("vshmem/vshmem7")).expect("a directory");
        assert_eq!(driver_file(device).expect("a file").c_str(), c"/dev/vshmem7");
        std::fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn bytes_are_found_across_reads() {
        // Longer than one buffer, and read in pieces of the kernel's choice.
        assert_eq!(contains(c"/proc/self/maps", b"[stack]"), Some(true));
        assert_eq!(contains(c"/proc/self/maps", b"[no such thing]"), Some(false));
        assert_eq!(contains(c"/nonexistent", b"x"), None);
    }
}
