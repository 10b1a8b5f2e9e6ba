//! A machine's PCI devices, from QEMU: its pools with their addresses, and free ports.

use super::ports::pool_of_device;
use serde_json::Value;
use vshmem_base::error::{error, Error, Result};

/// A pool's device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDevice {
    /// The pool's name in the machine.
    pub pool: String,
    /// The device's id.
    pub id: String,
    /// Its PCI address in the machine, as Linux writes it.
    pub address: String,
    /// The machine has mapped the pool's memory.
    pub mapped: bool,
}

/// A bus that a device can be plugged into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeBus {
    /// Its id.
    pub bus: String,
    /// The largest device memory that fits, in bytes.
    pub largest: u64,
}

/// A machine's pool devices and free buses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// The devices of pools.
    pub plugged: Vec<PoolDevice>,
    /// Free buses.
    pub free: Vec<FreeBus>,
}

/// Vendor and device of QEMU's root ports, and of the downstream port of a switch.
const PORTS: [(u64, u64); 3] = [(0x1b36, 0x0c), (0x8086, 0x3420), (0x104c, 0x8233)];
/// The host bridge of QEMU's machine `pc`, whose root bus supports hotplug.
const I440FX: (u64, u64) = (0x8086, 0x1237);
const I440FX_BUS: &str = "pci.0";

/// The devices in an answer to `query-pci`.
pub fn read(answer: &Value) -> Result<Devices> {
    let mut devices = Devices::default();
    let buses = answer.as_array();
    let buses = buses.ok_or_else(|| error!("QEMU's answer about its PCI devices is odd: {answer}"))?;
    for device in buses.iter().flat_map(|bus| list(bus, "devices")) {
        visit(device, &mut devices);
    }
    Ok(devices)
}

impl Devices {
    /// The device of a pool.
    pub fn of(&self, pool: &str) -> Option<&PoolDevice> {
        self.plugged.iter().find(|plugged| plugged.pool == pool)
    }

    /// The smallest free bus for a pool of this size.
    pub fn bus_for(&self, size: u64) -> Result<&FreeBus> {
        let fits = self.free.iter().filter(|free| free.largest >= size);
        fits.min_by_key(|free| free.largest).ok_or_else(|| self.no_bus(size))
    }

    fn no_bus(&self, size: u64) -> Error {
        match self.free.iter().map(|free| free.largest).max() {
            None => Error::new("it has no free port to plug a pool into").hint(
                "Revoke another pool, or start it with more (vshmem up --spare-pools, or what vshmem attach --print says).",
            ),
            Some(largest) => error!("the pool has {} MiB, and its largest free port has room for {} MiB",
                size >> 20,
                largest >> 20)
            .hint("Make a smaller pool, or start it with larger ports (vshmem up --largest-pool, or what vshmem attach --print says)."),
        }
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn visit(device: &Value, devices: &mut Devices) {
    let number = |key: &str| device.get(key).and_then(Value::as_u64);
    let id = device.get("qdev_id").and_then(Value::as_str).unwrap_or("");
    if let (Some(pool), Some(address)) = (pool_of_device(id), address(device)) {
        devices.plugged.push(PoolDevice {
            pool: pool.into(),
            id: id.into(),
            address,
            mapped: is_mapped(device),
        });
    }
    let kind = device.get("id");
    let part = |key: &str| kind.and_then(|kind| kind.get(key)?.as_u64()).unwrap_or(0);
    let kind = (part("vendor"), part("device"));
    if kind == I440FX && number("slot") == Some(0) {
        devices.free.push(FreeBus { bus: I440FX_BUS.into(), largest: u64::MAX });
    }
    let Some(bridge) = device.get("pci_bridge") else {
        return;
    };
    let behind = list(bridge, "devices");
    if behind.is_empty() && PORTS.contains(&kind) && !id.is_empty() {
        devices.free.push(FreeBus { bus: id.into(), largest: largest_window(bridge).unwrap_or(0) });
    }
    behind.iter().for_each(|device| visit(device, devices));
}

/// The address of a device, if it has one: QEMU only knows bus numbers that the machine's firmware has
/// assigned. There is one PCI domain.
fn address(device: &Value) -> Option<String> {
    let number = |key: &str| device.get(key).and_then(Value::as_u64);
    let (bus, slot, function) = (number("bus")?, number("slot")?, number("function")?);
    Some(format!("0000:{bus:02x}:{slot:02x}.{function}"))
}

/// Whether the machine has mapped a pool's device. BAR 2 is the pool, or BAR 4 leads to persistent memory. If
/// it is not mapped, its address is -1, or 0 if the kernel had no room for it.
fn is_mapped(device: &Value) -> bool {
    let is_memory = |region: &&Value| matches!(region.get("bar").and_then(Value::as_u64), Some(2 | 4));
    let memory = list(device, "regions").iter().find(is_memory);
    memory
        .and_then(|region| region.get("address")?.as_i64())
        .is_some_and(|address| !matches!(address, -1 | 0))
}

/// The largest naturally aligned power of two that fits into the memory window of a port.
fn largest_window(bridge: &Value) -> Option<u64> {
    let range = bridge.get("bus")?.get("prefetchable_range")?;
    let base = range.get("base")?.as_u64()?;
    let limit = range.get("limit")?.as_u64()?;
    let fits = |size: &u64| {
        let start = base.checked_next_multiple_of(*size);
        start.and_then(|start| start.checked_add(size - 1)).is_some_and(|end| end <= limit)
    };
    (20..63).rev().map(|bit| 1u64 << bit).find(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn port(id: &str, base: u64, limit: u64, devices: Value) -> Value {
        json!({
            "bus": 0, "slot": 3, "function": 0, "qdev_id": id, "id": {"vendor": 0x1b36, "device": 0x0c},
            "pci_bridge": {"devices": devices, "bus": {"number": 1,
                "prefetchable_range": {"base": base, "limit": limit}}},
        })
    }

    fn pool(id: &str) -> Value {
        json!({"bus": 5, "slot": 0, "function": 0, "qdev_id": id, "id": {"vendor": 0x1af4, "device": 0x1110},
            "regions": [{"bar": 0, "address": -1}, {"bar": 2, "address": 0x1_0000_0000_u64}]})
    }

    fn tree(devices: Value) -> Devices {
        read(&json!([{"bus": 0, "devices": devices}])).unwrap()
    }

    #[test]
    fn pools_have_addresses() {
        let found =
            tree(json!([port("p0", 0, 0, json!([pool("vshmem-pool-00000001-work")])), pool("other")]));
        let work = found.of("work").unwrap();
        assert_eq!((work.address.as_str(), work.mapped), ("0000:05:00.0", true));
        for nowhere in [-1, 0] {
            assert!(!is_mapped(&json!({"regions": [{"bar": 2, "address": nowhere}]})));
        }
        assert_eq!((found.plugged.len(), found.free.len()), (1, 0));
        assert_eq!(found.of("other"), None);
    }

    #[test]
    fn the_smallest_port_that_fits_is_taken() {
        let found = tree(json!([
            port("small", 0xc000_0000, 0xc00f_ffff, json!([])),
            port("large", 0x1_0000_0000, 0x1_ffff_ffff, json!([])),
            port("odd", 0x2_1000_0000, 0x2_4fff_ffff, json!([])),
            port("none", 0xfff0_0000, 0x000f_ffff, json!([])),
            port("", 0x1_0000_0000, 0x8_ffff_ffff, json!([])),
        ]));
        let bus = |size: u64| found.bus_for(size).map(|free| free.bus.clone());
        assert_eq!(bus(1 << 20).unwrap(), "small");
        assert_eq!(bus(2 << 20).unwrap(), "odd");
        assert_eq!(bus(1 << 30).unwrap(), "large");
        let error = bus(1 << 40).unwrap_err().to_string();
        assert!(error.contains("room for 4096 MiB"), "{error}");
        let full = tree(json!([])).bus_for(1).unwrap_err().to_string();
        assert!(full.contains("no free port"), "{full}");
    }

    #[test]
    fn the_root_bus_of_pc_takes_devices() {
        let bridge = json!({"bus": 0, "slot": 0, "function": 0, "qdev_id": "", "id": {"vendor": 0x8086, "device": 0x1237}});
        assert_eq!(tree(json!([bridge])).bus_for(1 << 30).unwrap().bus, "pci.0");
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(read(&json!({"buses": 1})).is_err());
        assert_eq!(read(&json!([{"devices": 7}, 3])).unwrap(), Devices::default());
    }
}
