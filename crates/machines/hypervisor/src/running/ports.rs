//! The ports that pools are plugged into, and the ids of a pool's devices and objects.
//!
//! Each pool is behind a PCIe root port of its own: only there can it be unplugged while the machine runs. A
//! guest only finds room for a device that comes later if memory is reserved behind its port. Hotplug is by
//! ACPI, as is q35's default: PCIe's native hotplug takes seconds.

use crate::state::ports::Ports;
use std::time::{SystemTime, UNIX_EPOCH};

/// The port of the disk that is a machine's root, with room for it: a template has none behind it.
pub const ROOT_PORT: &str = "vshmem-root";
/// QEMU's option for it. Its number lies between those of pools' ports and those of passed devices.
pub const ROOT: &str = "pcie-root-port,id=vshmem-root,bus=pcie.0,chassis=127,slot=127,io-reserve=0,\
    mem-reserve=2097152,pref64-reserve=2097152";

/// QEMU's options for all ports: first those of the pools that the machine begins with, then spare ones. Each
/// of the former has the size of the pool that comes behind it later, or none if it is there already: the
/// firmware sees it then.
pub fn devices(first: &[Option<u64>], ports: Ports) -> Vec<String> {
    let spare = std::iter::repeat_n(Some(ports.largest), ports.spare as usize);
    let reserve = |size: u64| format!(",pref64-reserve={}", room(size));
    let all = first.iter().copied().chain(spare).enumerate();
    all.map(|(index, size)| {
        let (id, number, room) = (port(index), index + 1, size.map(reserve).unwrap_or_default());
        // No I/O ports: they are scarce, and pools don't need them.
        format!("pcie-root-port,id={id},bus=pcie.0,chassis={number},slot={number},io-reserve=0{room}")
    })
    .collect()
}

/// Address space to reserve for a pool: the firmware aligns it to less than its size.
pub fn room(size: u64) -> u64 {
    size.saturating_mul(2)
}

/// The id of the port with this index.
pub fn port(index: usize) -> String {
    format!("vshmem-port{index}")
}

/// The generation of a pool's device, which distinguishes its ids from earlier ones: QEMU keeps the memory of
/// an unplugged device for some milliseconds, and ends if another one gets the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(pub u32);

impl Generation {
    /// The generation of devices that the machine starts with.
    pub const FIRST: Generation = Generation(0);

    /// A generation that was not used lately.
    pub fn now() -> Generation {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let milliseconds = now.unwrap_or_default().as_millis() as u32;
        Generation(milliseconds.max(1))
    }

    /// The id of a pool's device.
    pub fn device(self, pool: &str) -> String {
        format!("{DEVICE}{:08x}-{pool}", self.0)
    }

    /// The id of a pool's memory, or of the connection to the back end that provides it.
    pub fn backing(self, pool: &str) -> String {
        format!("{BACKING}{:08x}-{pool}", self.0)
    }
}

/// The pool of the device with this id. libvirt requires aliases to begin with `ua-`.
pub fn pool_of_device(id: &str) -> Option<&str> {
    pool_in(id.strip_prefix("ua-").unwrap_or(id), DEVICE)
}

/// The pool of the memory object or connection with this id. libvirt derives both ids from the device's
/// alias.
pub fn pool_of_backing(id: &str) -> Option<&str> {
    let libvirt = || {
        let rest = id.strip_prefix("shmmem-").or(id.strip_prefix("char"))?;
        pool_of_device(rest)
    };
    pool_in(id, BACKING).or_else(libvirt)
}

fn pool_in<'a>(id: &'a str, prefix: &str) -> Option<&'a str> {
    let (generation, pool) = id.strip_prefix(prefix)?.split_once('-')?;
    let is_generation = generation.len() == 8 && generation.bytes().all(|c| c.is_ascii_hexdigit());
    is_generation.then_some(pool)
}

const DEVICE: &str = "vshmem-pool-";
const BACKING: &str = "vshmem-memory-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_ports_have_room() {
        let ports = Ports { spare: 2, largest: 1 << 30 };
        let all = devices(&[None], ports);
        assert_eq!(all.len(), 3);
        assert!(!all[0].contains("reserve=2147483648"), "{}", all[0]);
        assert!(all[1].contains("id=vshmem-port1,bus=pcie.0,chassis=2,slot=2"), "{}", all[1]);
        assert!(all[2].ends_with(",pref64-reserve=2147483648"), "{}", all[2]);
        assert!(devices(&[Some(4096)], ports)[0].ends_with(",pref64-reserve=8192"));
    }

    #[test]
    fn names_lead_back_to_pools() {
        let generation = Generation::now();
        assert_ne!(generation, Generation::FIRST);
        assert_eq!(pool_of_device(&generation.device("a-b.c")), Some("a-b.c"));
        assert_eq!(pool_of_device("ua-vshmem-pool-00c0ffee-work"), Some("work"));
        assert_eq!(pool_of_device("net0"), None);
        assert_eq!(pool_of_device("vshmem-pool-work-00000000"), None);
        assert_eq!(pool_of_backing(&generation.backing("work")), Some("work"));
        assert_eq!(pool_of_backing("shmmem-ua-vshmem-pool-00c0ffee-work"), Some("work"));
        assert_eq!(pool_of_backing("charua-vshmem-pool-00c0ffee-work"), Some("work"));
        assert_eq!(pool_of_backing("ram0"), None);
    }
}
