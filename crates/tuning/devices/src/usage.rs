//! The uses that this host has for a function.

use crate::function::{Function, DEVICES};
use crate::tree::Tree;

/// A network interface's flag: it is up.
const IFF_UP: u32 = 1;

/// The uses that this host has for a function, in words; none if it has no use for it.
pub fn of(tree: &dyn Tree, function: &Function) -> Vec<String> {
    [interfaces(tree, function), disks(tree, function)].concat()
}

/// Network interfaces that are up, or parts of others.
fn interfaces(tree: &dyn Tree, function: &Function) -> Vec<String> {
    let directory = format!("{DEVICES}/{}/net", function.address);
    let used = |name: &String| {
        let at = format!("{directory}/{name}");
        let flags = tree.text(&format!("{at}/flags"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok());
        if let Some(master) = tree.link(&format!("{at}/master")) {
            return Some(format!("the network interface {name} is a part of {master}"));
        }
        (flags.unwrap_or(0) & IFF_UP != 0).then(|| format!("the network interface {name} is up"))
    };
    tree.names_or_none(&directory).iter().filter_map(used).collect()
}

/// Disks that are mounted, swapped to, or parts of others.
fn disks(tree: &dyn Tree, function: &Function) -> Vec<String> {
    let mounts = tree.text("proc/self/mountinfo").unwrap_or_default();
    let swaps = tree.text("proc/swaps").unwrap_or_default();
    let mut used = Vec::new();
    for disk in tree.names_or_none("sys/block").iter().filter(|disk| is_of(tree, disk, function)) {
        let at = format!("sys/block/{disk}");
        let parts = tree.names_or_none(&at).into_iter().filter(|name| name.starts_with(disk.as_str()));
        for (name, at) in std::iter::once((disk.clone(), at.clone()))
            .chain(parts.map(|part| (part.clone(), format!("{at}/{part}"))))
        {
            let number = tree.text(&format!("{at}/dev")).unwrap_or_default();
            if let Some(place) = mounted(&mounts, &number, &name) {
                used.push(format!("{name} is mounted at {place}"));
            }
            if swaps.lines().any(|line| line.split_whitespace().next() == Some(&*format!("/dev/{name}"))) {
                used.push(format!("{name} is swap space"));
            }
            let holders = tree.names_or_none(&format!("{at}/holders"));
            if !holders.is_empty() {
                used.push(format!("{name} is a part of {}", holders.join(", ")));
            }
        }
    }
    used
}

/// True if a disk is behind a function. A disk with several paths (NVMe's native ones) is behind those of its
/// subsystem.
fn is_of(tree: &dyn Tree, disk: &str, function: &Function) -> bool {
    let address = function.address.to_string();
    let through =
        |path: &str| tree.target(path).is_ok_and(|target| target.split('/').any(|part| part == address));
    let at = format!("sys/block/{disk}");
    let controllers = tree.names_or_none(&format!("{at}/device"));
    let mut controllers = controllers.iter().filter(|name| name.starts_with("nvme"));
    through(&at) || controllers.any(|name| through(&format!("{at}/device/{name}")))
}

/// The first mount point of a disk, by its number or its name: some file systems have numbers of their own.
fn mounted<'a>(mounts: &'a str, number: &str, name: &str) -> Option<&'a str> {
    let device = format!("/dev/{name}");
    mounts.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (its, place) = (words.nth(2)?, words.nth(1)?);
        let source = line.split_once(" - ").and_then(|(_, rest)| rest.split_whitespace().nth(1));
        (!number.is_empty() && its == number || source == Some(&*device)).then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_or_by_name() {
        let mounts =
            "22 1 259:2 / / rw - ext4 /dev/root rw\n30 22 0:40 /a /data rw - btrfs /dev/nvme1n1 rw\n";
        assert_eq!(mounted(mounts, "259:2", "nvme0n1p2"), Some("/"));
        assert_eq!(mounted(mounts, "259:9", "nvme1n1"), Some("/data"));
        assert_eq!(mounted(mounts, "259:9", "nvme1n2"), None);
        assert_eq!(mounted(mounts, "", "sda"), None);
    }
}
