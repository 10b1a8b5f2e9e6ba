//! A PCI function, as sysfs shows it.

use crate::address::Address;
use crate::kind;
use crate::tree::Tree;
use std::fmt;

/// The directory of a host's functions.
pub const DEVICES: &str = "sys/bus/pci/devices";

/// The vendor and the device of a function, by which drivers know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// The vendor.
    pub vendor: u16,
    /// The device.
    pub device: u16,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:04x}:{:04x}", self.vendor, self.device))
    }
}

/// A PCI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its address.
    pub address: Address,
    /// Its vendor and device.
    pub id: Id,
    /// Its class: base class, subclass and interface, a byte each.
    pub class: u32,
    /// Its driver, if it has one.
    pub driver: Option<String>,
    /// The only driver that it may get, if that was set.
    pub driver_override: Option<String>,
    /// Its IOMMU group, if there is an IOMMU.
    pub group: Option<u32>,
    /// The memory node that it is near to, if the firmware says so.
    pub node: Option<u32>,
    /// The number of virtual functions that it can have (SR-IOV).
    pub total_vfs: u32,
    /// The virtual functions that it has.
    pub vfs: Vec<Address>,
    /// The physical function, if it is a virtual one.
    pub physical: Option<Address>,
    /// The bridges between it and the processor, the farthest from it first.
    pub bridges: Vec<Address>,
    /// The firmware has shown its messages on it.
    pub shows_console: bool,
    /// The size of its largest range of memory, in bytes.
    pub largest_bar: u64,
}

impl Function {
    /// The function at this address, if there is one.
    pub fn read(tree: &dyn Tree, address: Address) -> Option<Function> {
        let at = format!("{DEVICES}/{address}");
        let hex = |name: &str| {
            let text = tree.text(&format!("{at}/{name}"))?;
            u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        let number = |name: &str| tree.text(&format!("{at}/{name}"))?.parse::<i64>().ok();
        let linked = |name: &str| tree.link(&format!("{at}/{name}"));
        let names = tree.names_or_none(&at);
        let mut virtuals: Vec<(u32, Address)> = names
            .iter()
            .filter_map(|name| {
                Some((name.strip_prefix("virtfn")?.parse().ok()?, linked(name)?.parse().ok()?))
            })
            .collect();
        virtuals.sort_unstable();
        let chosen = tree.text(&format!("{at}/driver_override"));
        Some(Function {
            address,
            id: Id { vendor: hex("vendor")? as u16, device: hex("device")? as u16 },
            class: hex("class")?,
            driver: linked("driver"),
            driver_override: chosen.filter(|name| !name.is_empty() && name != "(null)"),
            group: linked("iommu_group").and_then(|group| group.parse().ok()),
            // -1: the firmware does not say.
            node: number("numa_node").and_then(|node| node.try_into().ok()),
            total_vfs: number("sriov_totalvfs").and_then(|total| total.try_into().ok()).unwrap_or(0),
            vfs: virtuals.into_iter().map(|(_, address)| address).collect(),
            physical: linked("physfn").and_then(|address| address.parse().ok()),
            bridges: bridges(&tree.target(&at).unwrap_or_default(), address),
            shows_console: number("boot_vga") == Some(1),
            largest_bar: largest(&tree.text(&format!("{at}/resource")).unwrap_or_default()),
        })
    }

    /// All functions of a host, by their addresses.
    pub fn read_all(tree: &dyn Tree) -> Vec<Function> {
        let names = tree.names_or_none(DEVICES);
        let mut all: Vec<Function> =
            names.iter().filter_map(|name| Function::read(tree, name.parse().ok()?)).collect();
        all.sort_by_key(|function| function.address);
        all
    }

    /// Its kind.
    pub fn kind(&self) -> &'static str {
        kind::of(self.class)
    }

    /// True if it is a bridge.
    pub fn is_bridge(&self) -> bool {
        kind::is_bridge(self.class)
    }
}

/// The bridges that the path of a function's directory goes through.
fn bridges(path: &str, address: Address) -> Vec<Address> {
    let parts = path.split('/').filter_map(|part| part.parse::<Address>().ok());
    parts.filter(|part| *part != address).collect()
}

/// The size of the largest of the six ranges that a file `resource` begins with: first and last address.
fn largest(text: &str) -> u64 {
    let size = |line: &str| {
        let mut words =
            line.split_whitespace().map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let (first, last) = (words.next()??, words.next()??);
        (last > first).then(|| last - first + 1)
    };
    text.lines().take(6).filter_map(size).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_bridges_and_resources_have_sizes() {
        let address = "01:00.0".parse().unwrap();
        let path = "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0";
        assert_eq!(bridges(path, address), ["00:01.0".parse().unwrap()]);
        let text = "0x00000000fe000000 0x00000000fe003fff 0x0000000000140204\n0x0 0x0 0x0\n\
                    0x0000383fe0000000 0x0000383fefffffff 0x000000000014220c\n";
        assert_eq!(largest(text), 256 << 20);
        assert_eq!(largest(""), 0);
    }
}
