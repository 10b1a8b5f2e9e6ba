//! Pools that a machine is given as PCI devices: what they are called.
//!
//! Names come from the table of granted pools, `/run/vshmem/pools` ([`Grant`]), else from the kernel command
//! line (or the file [`SETTINGS`] in its place), `vshmem.pools=NAME[:ADDRESS],...`; a name without an address
//! is that of the next device, in the order of addresses, that has none there yet. A device without a name is
//! called by its address. DAX devices have a parameter of their own, `vshmem.dax`.

pub(crate) mod address;
pub(crate) mod command_line;
mod grants;

pub use address::Address;
pub use command_line::SETTINGS;
pub use grants::{Grant, GRANTS};

use crate::pool_ref::Name;
use crate::text::Text;
pub(crate) use command_line::{DAX, POOLS};

/// Whether this machine is given pools while it runs, though it may have none just now.
pub(crate) fn are() -> bool {
    grants::exist()
}

/// The names of devices in this machine.
pub(crate) struct Names<'d> {
    devices: &'d [Address],
    /// The value in the kernel command line.
    value: Text<{ command_line::LONGEST }>,
}

impl Names<'_> {
    /// The names of these devices, which this parameter of the kernel is for.
    pub fn read<'d>(devices: &'d [Address], parameter: &[u8]) -> Names<'d> {
        Names { devices, value: command_line::value(parameter) }
    }

    /// The name of a device, if it has one. What the host says now counts more than what it said when the
    /// machine started.
    pub fn of(&self, address: Address) -> Option<Name> {
        grants::name_of(address).or_else(|| {
            let mut name = Name::new();
            name.push(name_of(address, self.devices, self.value.bytes())?).map(|()| name)
        })
    }
}

/// The name that the command line gives to a device, if any.
fn name_of<'a>(address: Address, devices: &[Address], value: &'a [u8]) -> Option<&'a [u8]> {
    let explicit = |address| command_line::entries(value).find(|entry| entry.address == Some(address));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text.as_bytes()).expect("a PCI address")
    }

    #[test]
    fn names_come_from_the_command_line() {
        let devices = [address("00:03.0"), address("00:04.0"), address("00:05.0"), address("00:06.0")];
        let value = b"a,b:00:03.0,c";
        let names = devices.map(|device| name_of(device, &devices, value));
        assert_eq!(names, [Some(&b"b"[..]), Some(b"a"), Some(b"c"), None]);
    }
}
