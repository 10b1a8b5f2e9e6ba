//! The ports of a machine that pools are plugged into, and what QEMU calls all that belongs to a pool.
//!
//! Pools sit behind PCIe root ports, one each: only there can they be taken away from a machine that runs, and only with memory
//! reserved behind the port does a guest find room for one that comes later. ACPI plugs, as is the default of q35: PCIe's
//! own way takes seconds.

use crate::state::ports::Ports;
use std::time::{SystemTime, UNIX_EPOCH};

/// QEMU's options for all ports: those of the pools that the machine starts with, then the spare ones.
pub fn devices(ports: Ports, taken: usize) -> Vec<String> {
    let spare = ports.spare as usize;
    let reserve = |index: usize| match index < taken {
        // The firmware sees what is behind it.
        true => String::new(),
        // The firmware aligns it to less than its size.
        false => format!(",pref64-reserve={}", ports.largest.saturating_mul(2)),
    };
    (0..taken + spare)
        .map(|index| {
            let (id, number, room) = (port(index), index + 1, reserve(index));
            // Without I/O ports, which there are too few of, and which no pool needs.
            format!("pcie-root-port,id={id},bus=pcie.0,chassis={number},slot={number},io-reserve=0{room}")
        })
        .collect()
}

/// What the port of this index is called.
pub fn port(index: usize) -> String {
    format!("vshmem-port{index}")
}

/// A plugging-in, in the names of what belongs to it: QEMU keeps the memory of a device that is gone for some milliseconds, and
/// ends if it gets another of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(pub u32);

impl Generation {
    /// When the machine starts.
    pub const FIRST: Generation = Generation(0);

    /// One like no other of late.
    pub fn new() -> Generation {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let milliseconds = now.unwrap_or_default().as_millis() as u32;
        Generation(milliseconds.max(1))
    }

    /// What the device of a pool is called.
    pub fn device(self, pool: &str) -> String {
        format!("{DEVICE}{:08x}-{pool}", self.0)
    }

    /// What the memory of a pool is called, or the connection to the back end that brings it.
    pub fn backing(self, pool: &str) -> String {
        format!("{BACKING}{:08x}-{pool}", self.0)
    }
}

/// The pool whose device is called so. libvirt wants names that are given to it to begin with `ua-`.
pub fn pool_of_device(id: &str) -> Option<&str> {
    pool_in(id.strip_prefix("ua-").unwrap_or(id), DEVICE)
}

/// The pool whose memory or connection is called so. libvirt makes both names out of that of the device.
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
        let ports = Ports {
            spare: 2,
            largest: 1 << 30,
        };
        let all = devices(ports, 1);
        assert_eq!(all.len(), 3);
        assert!(!all[0].contains("reserve=2147483648"), "{}", all[0]);
        assert!(
            all[1].contains("id=vshmem-port1,bus=pcie.0,chassis=2,slot=2"),
            "{}",
            all[1]
        );
        assert!(all[2].ends_with(",pref64-reserve=2147483648"), "{}", all[2]);
    }

    #[test]
    fn names_lead_back_to_pools() {
        let generation = Generation::new();
        assert_ne!(generation, Generation::FIRST);
        assert_eq!(pool_of_device(&generation.device("a-b.c")), Some("a-b.c"));
        assert_eq!(pool_of_device("ua-vshmem-pool-00c0ffee-work"), Some("work"));
        assert_eq!(pool_of_device("net0"), None);
        assert_eq!(pool_of_device("vshmem-pool-work-00000000"), None);
        assert_eq!(pool_of_backing(&generation.backing("work")), Some("work"));
        assert_eq!(
            pool_of_backing("shmmem-ua-vshmem-pool-00c0ffee-work"),
            Some("work")
        );
        assert_eq!(
            pool_of_backing("charua-vshmem-pool-00c0ffee-work"),
            Some("work")
        );
        assert_eq!(pool_of_backing("ram0"), None);
    }
}
