//! Finding and enabling PCI devices by sysfs.

use core::ffi::CStr;
use core::fmt;

use crate::descriptor::Owned;
use crate::directory::each_entry;
use crate::error::DiscoverError;
use crate::pool_ref::Path;
use crate::sys;
use crate::text::{hexadecimal, Text};

/// Where sysfs lists the devices.
pub(crate) const DEVICES: &CStr = c"/sys/bus/pci/devices";
/// The vendor (Red Hat) and device (Inter-VM shared memory) that we look for.
const VENDOR: u64 = 0x1af4;
const DEVICE: u64 = 0x1110;
/// How such a device is written in `/proc/bus/pci/devices`.
const IN_LIST: &[u8] = b"\t1af41110\t";
/// As many devices as one machine's pools are looked for in; further ones are not seen.
const MOST: usize = 64;

/// A PCI address, ordered as `lspci` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl Address {
    /// Reads `domain:bus:device.function`, all in hexadecimal, or without the domain.
    pub fn parse(text: &[u8]) -> Option<Address> {
        let dot = text.iter().position(|&c| c == b'.')?;
        let function = hexadecimal(&text[dot + 1..]).filter(|&function| function < 8)?;
        let mut parts = text[..dot].rsplit(|&c| c == b':');
        let device = hexadecimal(parts.next()?).filter(|&device| device < 32)?;
        let bus = hexadecimal(parts.next()?)?;
        let domain = parts.next().map_or(Some(0), hexadecimal)?;
        if parts.next().is_some() {
            return None;
        }
        Some(Address {
            domain: u32::try_from(domain).ok()?,
            bus: u8::try_from(bus).ok()?,
            device: device as u8,
            function: function as u8,
        })
    }

    /// The address as sysfs writes it.
    pub fn text(self) -> Option<Text<24>> {
        let mut text = Text::new();
        push_hexadecimal(&mut text, self.domain, 4)?;
        text.push(b":")?;
        push_hexadecimal(&mut text, u32::from(self.bus), 2)?;
        text.push(b":")?;
        push_hexadecimal(&mut text, u32::from(self.device), 2)?;
        text.push(b".")?;
        push_hexadecimal(&mut text, u32::from(self.function), 1)?;
        Some(text)
    }
}

impl fmt::Display for Address {
    /// As sysfs writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().ok_or(fmt::Error)?.fmt(f)
    }
}

/// Appends a number in hexadecimal with at least so many digits.
fn push_hexadecimal<const N: usize>(text: &mut Text<N>, value: u32, least: u32) -> Option<()> {
    let needed = (32 - value.leading_zeros()).div_ceil(4);
    for place in (0..needed.max(least)).rev() {
        let digit = (value >> (4 * place) & 15) as usize;
        text.push(&[b"0123456789abcdef"[digit]])?;
    }
    Some(())
}

/// The devices that show pools, in the order of their addresses.
pub(crate) struct Devices {
    addresses: [Address; MOST],
    count: usize,
}

impl Devices {
    /// Looks for them.
    #[inline(never)] // Keeps its buffers off the stack of whoever goes on.
    pub fn scan() -> Result<Devices, DiscoverError> {
        let mut found = Devices {
            addresses: [Address {
                domain: 0,
                bus: 0,
                device: 0,
                function: 0,
            }; MOST],
            count: 0,
        };
        // One file instead of two for each device: most machines have none that we look for.
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
    // The end of what was read before, where the bytes may have begun.
    let mut kept = 0;
    loop {
        let count = sys::read(file.fd(), buffer.get_mut(kept..)?).ok()?;
        if count == 0 {
            return Some(false);
        }
        let len = kept + count;
        if buffer
            .get(..len)?
            .windows(needle.len())
            .any(|window| window == needle)
        {
            return Some(true);
        }
        kept = len.min(needle.len() - 1);
        buffer.copy_within(len - kept..len, 0);
    }
}

/// Makes a device answer to accesses to its memory, which firmware does for those that were there when the machine
/// started, but nobody for those plugged in later. It takes a privilege; without it, the machine's owner must have
/// done so, and a pool that doesn't answer reads as ones and is recognised as none.
pub(crate) fn enable(device: &[u8]) {
    let mut path = Path::new();
    if path
        .push(device)
        .and_then(|()| path.push(b"/enable"))
        .is_none()
    {
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

/// The device file of the driver vshmem.ko, if that has the device with this directory in sysfs.
pub(crate) fn driver_file(device: &[u8]) -> Option<Path> {
    let mut directory = Path::new();
    directory.push(device)?;
    directory.push(b"/vshmem")?;
    let mut found = None;
    each_entry(directory.c_str(), &mut |_, name| {
        if name.to_bytes().starts_with(b"vshmem") {
            let mut path = Path::new();
            found = path
                .push(b"/dev/")
                .and_then(|()| path.push(name.to_bytes()))
                .map(|()| path);
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
    fn addresses_are_read_and_written() {
        let address = Address::parse(b"0000:0a:1f.7").expect("an address");
        assert_eq!(
            address,
            Address {
                domain: 0,
                bus: 10,
                device: 31,
                function: 7
            }
        );
        assert_eq!(address.text().expect("short").bytes(), b"0000:0a:1f.7");
        assert_eq!(Address::parse(b"0a:1f.7"), Some(address));
        let far = Address::parse(b"10000:e1:00.0").expect("an address");
        assert_eq!(far.text().expect("short").bytes(), b"10000:e1:00.0");
        assert!(far > address);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in [
            &b""[..],
            b"0",
            b"00:20.0",
            b"00:1f.8",
            b"100:00.0",
            b"1:2:3:4.0",
            b"00:00.",
            b":.0",
        ] {
            assert_eq!(Address::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn devices_are_sorted_and_bounded() {
        let mut devices = Devices::scan().expect("sysfs can be read, or is not there");
        let before = devices.all().len();
        for device in (0..32).rev() {
            for function in 0..3 {
                devices.insert(Address {
                    domain: 7,
                    bus: 0,
                    device,
                    function,
                });
            }
        }
        assert!(before < MOST && devices.all().len() == MOST);
        assert!(devices.all().is_sorted());
    }

    #[test]
    fn a_drivers_file_is_named_after_its_entry() {
        let root = std::env::temp_dir().join(std::format!("vshmem-pci-{}", std::process::id()));
        let device = root.as_os_str().as_encoded_bytes();
        assert!(driver_file(device).is_none(), "no driver has it");
        std::fs::create_dir_all(root.join("vshmem/vshmem7")).expect("a directory");
        assert_eq!(
            driver_file(device).expect("a file").c_str(),
            c"/dev/vshmem7"
        );
        std::fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn bytes_are_found_across_reads() {
        // Longer than one buffer, and read in pieces of the kernel's choice.
        assert_eq!(contains(c"/proc/self/maps", b"[stack]"), Some(true));
        assert_eq!(
            contains(c"/proc/self/maps", b"[no such thing]"),
            Some(false)
        );
        assert_eq!(contains(c"/nonexistent", b"x"), None);
    }
}
