//! Passed devices: those of the host that a machine has for itself (VFIO), with QEMU's options for them, and
//! the files that QEMU needs in its sandbox.

use crate::state::ports::Ports;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use std::os::unix::fs::{symlink, MetadataExt};
use std::path::Path;
use std::{fs, io};
use vshmem_base::error::{error, Explain, Result};
use vshmem_devices::choose::Assigned;
use vshmem_placement::plan::GuestNode;

/// The first slot of the root bus for their ports, of which eight share one.
const SLOT: usize = 0x1c;
/// The first number of their ports, above those of the ports for pools.
const FIRST_NUMBER: usize = 128;
/// Bytes that QEMU locks besides the machine's memory: its firmware.
const SPARE: u64 = 64 << 20;
/// The directory of device files by which programs have devices for themselves.
const VFIO: &str = "/dev/vfio";

/// The bus numbers that root buses of nodes share.
const NODE_BUSES: std::ops::Range<usize> = 128..256;

/// Values of QEMU's `-device` for them: a port each, and the device behind it. Where the machine sees the
/// memory node that a device is near to, the port is on a root bus of that node (`pcie-expander-bus`).
pub fn arguments(devices: &[Assigned], nodes: &[GuestNode]) -> Vec<String> {
    let near = |device: &Assigned| nodes.iter().position(|node| Some(node.host) == device.node);
    let mut buses: Vec<usize> = devices.iter().filter_map(near).collect();
    buses.sort_unstable();
    buses.dedup();
    let span = NODE_BUSES.len() / buses.len().max(1);
    let expanders = buses.iter().enumerate().map(|(at, node)| {
        let (id, first) = (expander(*node), NODE_BUSES.start + at * span);
        format!("pxb-pcie,id={id},bus=pcie.0,bus_nr={first},numa_node={node}")
    });
    let port = |(index, device): (usize, &Assigned)| {
        let (bus, slot) = match near(device) {
            Some(node) => (expander(node), index / 8),
            None => ("pcie.0".into(), SLOT + index / 8),
        };
        let (function, number) = (index % 8, FIRST_NUMBER + index);
        let place = format!("bus={bus},addr={slot:#x}.{function},multifunction=on");
        let id = format!("vshmem-passed{index}");
        [
            format!("pcie-root-port,id={id}-port,{place},chassis={number},slot={number}"),
            format!("vfio-pci,host={},id={id},bus={id}-port", device.address),
        ]
    };
    expanders.chain(devices.iter().enumerate().flat_map(port)).collect()
}

/// The root bus of a node.
fn expander(node: usize) -> String {
    format!("vshmem-node{node}")
}

/// Bytes of memory that QEMU locks if it has devices: the machine's memory, and the pools that it has and can
/// be granted, for a device reaches them at any time.
pub fn locked(
    devices: &[Assigned],
    memory: u64,
    pools: impl Iterator<Item = u64>,
    ports: Ports,
) -> Option<u64> {
    let later = u64::from(ports.spare).saturating_mul(ports.largest);
    let all = pools.fold(memory.saturating_add(later).saturating_add(SPARE), u64::saturating_add);
    (!devices.is_empty()).then_some(all)
}

/// Raises the limit of locked memory: as far as that is needed, or as this user may.
pub fn raise_memlock(wanted: Option<u64>) -> io::Result<()> {
    let Some(wanted) = wanted else {
        return Ok(());
    };
    let Rlimit { current, maximum } = getrlimit(Resource::Memlock);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let enough = Rlimit { current: Some(wanted), maximum: maximum.map(|maximum| maximum.max(wanted)) };
    // Only root gets more than the maximum.
    Ok(setrlimit(Resource::Memlock, enough)
        .or_else(|_| setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum }))?)
}

/// A function that puts a device file into the sandbox: the host's file, the sandbox's, the device's number.
pub type Put<'a> = &'a dyn Fn(&Path, &Path, u64) -> io::Result<()>;

/// Makes the files that QEMU reads and opens in a file tree: the group of each function, and the groups'
/// devices.
pub fn build(root: &Path, devices: &[Assigned], put: Put<'_>) -> Result<()> {
    for device in devices {
        let directory = root.join("sys/bus/pci/devices").join(device.address.to_string());
        fs::create_dir_all(&directory)
            .and_then(|()| {
                symlink(format!("/sys/kernel/iommu_groups/{}", device.group), directory.join("iommu_group"))
            })
            .explain(|| format!("could not show QEMU the device {}", device.address))?;
    }
    fs::create_dir_all(root.join(&VFIO[1..])).explain(|| "could not make QEMU's /dev/vfio".into())?;
    let mut groups: Vec<String> = devices.iter().map(|device| device.group.to_string()).collect();
    groups.sort_unstable();
    groups.dedup();
    for name in std::iter::once("vfio".to_string()).chain(groups) {
        let theirs = Path::new(VFIO).join(name);
        let ours = root.join(theirs.strip_prefix("/").unwrap_or(&theirs));
        let number = fs::metadata(&theirs).map(|meta| meta.rdev());
        number
            .and_then(|number| put(&theirs, &ours, number))
            .map_err(|why| error!("could not give QEMU {}: {why}", theirs.display()))
            .map_err(|why| why.hint("In a container, /dev/vfio must be the host's."))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(address: &str) -> Assigned {
        Assigned { address: address.parse().unwrap(), kind: "nvme".into(), group: 7, node: None }
    }

    #[test]
    fn each_device_is_behind_a_port() {
        let all: Vec<Assigned> = (0..9).map(|bus| device(&format!("0{bus}:00.0"))).collect();
        let words = arguments(&all, &[]);
        assert!(
            words[0].contains("id=vshmem-passed0-port,bus=pcie.0,addr=0x1c.0,multifunction=on,chassis=128")
        );
        assert_eq!(words[1], "vfio-pci,host=0000:00:00.0,id=vshmem-passed0,bus=vshmem-passed0-port");
        assert!(words[16].contains("addr=0x1d.0") && words[17].contains("host=0000:08:00.0"), "{words:?}");
    }

    #[test]
    fn a_device_is_on_the_node_that_it_is_near_to() {
        let near = |address: &str, node| Assigned { node, ..device(address) };
        let all = [
            near("01:00.0", Some(5)),
            near("02:00.0", None),
            near("03:00.0", Some(3)),
            near("04:00.0", Some(9)),
        ];
        let node = |host| GuestNode { vcpus: "0".parse().unwrap(), memory: 1, host, distances: vec![10] };
        let words = arguments(&all, &[node(2), node(3), node(5)]);
        assert_eq!(words[0], "pxb-pcie,id=vshmem-node1,bus=pcie.0,bus_nr=128,numa_node=1");
        assert_eq!(words[1], "pxb-pcie,id=vshmem-node2,bus=pcie.0,bus_nr=192,numa_node=2");
        let ports: Vec<&str> = words.iter().filter_map(|word| word.strip_prefix("pcie-root-port,")).collect();
        let buses = [
            "vshmem-node2,addr=0x0.0",
            "pcie.0,addr=0x1c.1",
            "vshmem-node1,addr=0x0.2",
            "pcie.0,addr=0x1c.3",
        ];
        for (port, bus) in ports.iter().zip(buses) {
            assert!(port.contains(&format!(",bus={bus},")), "{port}");
        }
        assert_eq!((ports.len(), words.len()), (4, 10));
    }

    #[test]
    fn all_that_devices_reach_is_locked() {
        let ports = Ports { spare: 2, largest: 1 << 30 };
        assert_eq!(locked(&[], 1, [1].into_iter(), ports), None);
        let all = locked(&[device("01:00.0")], 1 << 29, [1 << 20, 2 << 20].into_iter(), ports);
        assert_eq!(all, Some((1 << 29) + (3 << 20) + (2 << 30) + SPARE));
        assert_eq!(locked(&[device("01:00.0")], u64::MAX, [1].into_iter(), ports), Some(u64::MAX));
    }

    #[test]
    fn only_what_is_given_is_shown() {
        let root = std::env::temp_dir().join(format!("vshmem-passed-{}", std::process::id()));
        let seen = std::cell::RefCell::new(Vec::new());
        let put = |theirs: &Path, ours: &Path, _: u64| {
            seen.borrow_mut().push((theirs.to_path_buf(), ours.strip_prefix(&root).unwrap().to_path_buf()));
            Ok(())
        };
        let outcome = build(&root, &[device("01:00.0")], &put);
        let link = fs::read_link(root.join("sys/bus/pci/devices/0000:01:00.0/iommu_group")).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(link.file_name().unwrap(), "7");
        // There is no such group here, and perhaps no VFIO.
        assert!(outcome.unwrap_err().to_string().contains("could not give QEMU /dev/vfio/"));
        assert!(seen.borrow().iter().all(|(theirs, ours)| Path::new("/").join(ours) == *theirs));
    }
}
