//! Bindings of memory to nodes: whether this host permits them, and the nodes of a process's memory, which
//! the kernel lists in `/proc/PID/numa_maps` (proc(5)), mapping by mapping.

use super::cpuset::CpuSet;
use super::plan::Placed;
use super::rules::Memory;
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::size;

/// The unit of sizes in `numa_maps` and `smaps`, in bytes.
const KIB: u64 = 1024;

/// Memory that had been touched when it was looked up, by its nodes and by its pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resident {
    /// Bytes by memory node.
    pub nodes: BTreeMap<u32, u64>,
    /// Bytes by the size of the kernel's pages, in bytes.
    pub pages: BTreeMap<u64, u64>,
    /// Bytes in transparent huge pages, which count as small ones above.
    pub transparent_huge: u64,
}

/// A mapping of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    start: u64,
    /// `default`, `bind`, `prefer`, `prefer (many)`, `interleave`.
    policy: String,
    nodes: CpuSet,
    page: u64,
    /// Bytes that are there, by node.
    there: BTreeMap<u32, u64>,
}

/// Bits of a set of nodes as the kernel reads it: more than any kernel has nodes.
const MOST_NODES: usize = 1024;

/// The kernel's rule for the memory of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bind {
    /// It comes from these nodes, and from no others.
    Strictly,
    /// It comes from the first one, and from others where that has none left.
    Preferably,
    /// It comes from all of them by turns.
    Interleaved,
}

/// Has memory of a mapping that is still to be touched come from nodes. For a file of shared memory that
/// holds for all processes, and stays (mbind(2)).
///
/// # Errors
/// There are no such nodes, or this process must not.
pub fn bind(start: usize, length: usize, bind: Bind, nodes: &CpuSet) -> io::Result<()> {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let mut mask: [libc::c_ulong; MOST_NODES / BITS] = [0; MOST_NODES / BITS];
    let named = match bind {
        Bind::Preferably => nodes.first().into_iter().collect(),
        _ => nodes.clone(),
    };
    for node in named.iter().map(|node| node as usize).filter(|node| *node < MOST_NODES) {
        mask[node / BITS] |= 1 << (node % BITS);
    }
    let mode = match bind {
        Bind::Strictly => libc::MPOL_BIND,
        Bind::Preferably => libc::MPOL_PREFERRED,
        Bind::Interleaved => libc::MPOL_INTERLEAVE,
    };
    // The kernel takes one off the number of bits.
    let bits = MOST_NODES as libc::c_ulong + 1;
    // SAFETY: the kernel checks the range, and the mask has as many bits as are named.
    let bound = unsafe { libc::syscall(libc::SYS_mbind, start, length, mode, mask.as_ptr(), bits, 0) };
    if bound == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// An error if processes of this user must not bind memory to nodes, as in some containers.
pub fn check_permitted() -> io::Result<()> {
    const SIZE: usize = 4096;
    let flags = MapFlags::PRIVATE;
    // SAFETY: a new mapping, which nothing else knows.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), SIZE, ProtFlags::READ, flags)? };
    let outcome = bind(page as usize, SIZE, Bind::Preferably, &CpuSet::from_iter([0]));
    // SAFETY: nothing refers to it.
    unsafe { munmap(page, SIZE)? };
    match outcome {
        // A host without that node permits it, too.
        Err(why) if why.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other,
    }
}

/// Reads what the kernel says of mappings, for a fuzzer.
#[doc(hidden)]
pub fn read(text: &str) {
    let _ = (mappings(text), extents(text));
}

/// The memory of a machine that was placed so and runs in this process; and sentences about where it differs
/// from its placement.
pub fn look(process: i32, placed: &Placed) -> Result<(Resident, Vec<String>)> {
    let (mappings, extents) = mappings_of(process)?;
    Ok(compared(placed, &mappings, &extents))
}

/// The memory of a machine that runs in this process, whose parts have these lengths in bytes: by those,
/// since nothing else tells it from the process's own.
pub fn machine_memory(process: i32, lengths: &[u64]) -> Result<Resident> {
    let (mappings, extents) = mappings_of(process)?;
    let is_part = |extent: &Extent| extent.is_machine && lengths.contains(&extent.length);
    let parts = mappings.iter().filter_map(|it| Some((it, extents.get(&it.start).filter(|at| is_part(at))?)));
    Ok(sum(parts))
}

/// The memory of a range of this process.
pub fn own_memory(start: usize, length: usize) -> Result<Resident> {
    let (mappings, extents) = mappings_of(std::process::id() as i32)?;
    let range = start as u64..start as u64 + length as u64;
    let parts = mappings.iter().filter(|it| range.contains(&it.start));
    Ok(sum(parts.filter_map(|it| Some((it, extents.get(&it.start)?)))))
}

fn mappings_of(process: i32) -> Result<(Vec<Mapping>, HashMap<u64, Extent>)> {
    let read = |name: &str| {
        let path = format!("/proc/{process}/{name}");
        fs::read_to_string(&path).explain(|| format!("could not read {path}"))
    };
    let mappings = mappings(&read("numa_maps")?)
        .ok_or_else(|| error!("/proc/{process}/numa_maps has a line that can't be understood"))?;
    Ok((mappings, extents(&read("smaps")?)))
}

/// The memory of these mappings that is there.
fn sum<'a>(parts: impl Iterator<Item = (&'a Mapping, &'a Extent)>) -> Resident {
    let mut found = Resident::default();
    for (mapping, extent) in parts {
        found.transparent_huge += extent.huge;
        for (node, bytes) in &mapping.there {
            *found.nodes.entry(*node).or_default() += bytes;
            *found.pages.entry(mapping.page).or_default() += bytes;
        }
    }
    found
}

impl Resident {
    /// Bytes that are there.
    pub fn bytes(&self) -> u64 {
        self.pages.values().sum()
    }

    /// The nodes that have some of it.
    pub fn on(&self) -> CpuSet {
        self.nodes.iter().filter(|(_, bytes)| **bytes > 0).map(|(node, _)| *node).collect()
    }

    /// The pages that it is in, as one word: `2M`, or `4K:thp80%` if 80 % of them are transparent huge pages.
    pub fn in_pages(&self) -> String {
        let sizes = self.pages.iter().filter(|(_, bytes)| **bytes > 0).map(|(size, _)| size::show(*size));
        let sizes = sizes.collect::<Vec<_>>().join("+");
        match self.transparent_huge.saturating_mul(100).checked_div(self.bytes()).unwrap_or(0) {
            0 => sizes,
            percent => format!("{sizes}:thp{}%", percent.min(100)),
        }
    }
}

/// The memory of a machine, and sentences about where it differs from its placement.
fn compared(
    placed: &Placed,
    mappings: &[Mapping],
    extents: &HashMap<u64, Extent>,
) -> (Resident, Vec<String>) {
    let mut found = Resident::default();
    let mut differs = Vec::new();
    for (nodes, wanted) in placed.sources() {
        let mut bound = 0;
        let mut elsewhere = 0;
        for mapping in mappings.iter().filter(|it| is_meant(it, placed.rules.memory, &nodes)) {
            if let Some(extent) = extents.get(&mapping.start) {
                bound += extent.length;
                found.transparent_huge += extent.huge;
            }
            for (node, bytes) in &mapping.there {
                *found.nodes.entry(*node).or_default() += bytes;
                *found.pages.entry(mapping.page).or_default() += bytes;
                elsewhere += if nodes.contains(*node) { 0 } else { *bytes };
            }
        }
        if bound < wanted {
            let (bound, wanted) = (size::show(bound), size::show(wanted));
            differs.push(format!("{bound} of {wanted} are bound to node {nodes}"));
        }
        if elsewhere > 0 {
            differs.push(format!("{} are on other nodes than {nodes}", size::show(elsewhere)));
        }
    }
    (found, differs)
}

/// Whether a mapping has this policy and these nodes.
fn is_meant(mapping: &Mapping, memory: Memory, nodes: &CpuSet) -> bool {
    match memory {
        Memory::Strict => mapping.policy == "bind" && mapping.nodes == *nodes,
        Memory::Interleave => mapping.policy == "interleave" && mapping.nodes == *nodes,
        // Before Linux 5.15 one node can be preferred only: it is the first.
        Memory::Preferred => {
            mapping.policy.starts_with("prefer")
                && mapping.nodes.first() == nodes.first()
                && mapping.nodes.is_subset(nodes)
        }
    }
}

/// The lines of `numa_maps`; `None` if one can't be understood.
fn mappings(text: &str) -> Option<Vec<Mapping>> {
    text.lines().map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let (start, rest) = line.split_once(' ')?;
    // The one policy that is two words.
    let (policy, rest) = match rest.strip_prefix("prefer (many)") {
        Some(rest) => ("prefer (many)".to_owned(), rest),
        None => {
            let end = rest.find([':', '=', ' ']).unwrap_or(rest.len());
            (rest[..end].to_owned(), &rest[end..])
        }
    };
    let mut words = rest.split(' ');
    // Flags stand between: =static:0.
    let nodes = words
        .next()
        .and_then(|word| word.rsplit_once(':'))
        .map_or(Some(CpuSet::default()), |(_, nodes)| nodes.parse().ok())?;
    let mut counts = BTreeMap::new();
    let mut page = 4 * KIB;
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        if name == "kernelpagesize_kB" {
            page = value.parse::<u64>().ok()?.checked_mul(KIB)?;
        } else if let Some(node) = name.strip_prefix('N').and_then(|node| node.parse::<u32>().ok()) {
            counts.insert(node, value.parse::<u64>().ok()?);
        }
    }
    let there = counts.into_iter().map(|(node, count)| (node, count.saturating_mul(page))).collect();
    Some(Mapping { start: u64::from_str_radix(start, 16).ok()?, policy, nodes, page, there })
}

/// The extent of a mapping: its length, the bytes of it in transparent huge pages, and whether it may be a
/// machine's memory: to be read and written and not executed, without a file, or a hypervisor's memory file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Extent {
    length: u64,
    huge: u64,
    is_machine: bool,
}

/// Mappings by their start, from `smaps`.
fn extents(text: &str) -> HashMap<u64, Extent> {
    let mut all = HashMap::new();
    let mut current = 0;
    for line in text.lines() {
        if let Some((start, end)) = range(line) {
            current = start;
            let mut words = line.split_ascii_whitespace().skip(1);
            let is_data = words.next().is_some_and(|access| access.starts_with("rw-"));
            // Offset, device and inode stand before it.
            let file = words.nth(3).unwrap_or("/memfd:memory-backend-memfd");
            let is_machine = is_data && file == "/memfd:memory-backend-memfd";
            all.insert(start, Extent { length: end.saturating_sub(start), huge: 0, is_machine });
        } else if let Some(value) =
            line.strip_prefix("AnonHugePages:").or_else(|| line.strip_prefix("ShmemPmdMapped:"))
        {
            let kilobytes =
                value.trim().strip_suffix("kB").and_then(|value| value.trim().parse::<u64>().ok());
            if let (Some(extent), Some(kilobytes)) = (all.get_mut(&current), kilobytes) {
                extent.huge = extent.huge.saturating_add(kilobytes.saturating_mul(KIB));
            }
        }
    }
    all
}

/// The range that a mapping's first line in `smaps` begins with.
fn range(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Guest, GuestNode};
    use crate::rules::Rules;

    const MAPS: &str = "\
7f0000000000 bind:0 anon=3 dirty=3 active=0 N0=2 N1=1 kernelpagesize_kB=4
7f0000100000 prefer (many):0-1 anon=1 N0=1 kernelpagesize_kB=2048
7f0000300000 prefer=static:1
7f0000400000 interleave:0-1 anon=2 N0=1 N1=1 kernelpagesize_kB=4
7f0000500000 default file=/a\\040b=c N0=7 mapped=7 kernelpagesize_kB=4
";
    const SMAPS: &str = "\
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 
Size:               1024 kB
AnonHugePages:      2048 kB
7f0000100000-7f0000300000 rw-p 00000000 00:00 0 
7f0000300000-7f0000400000 rw-p 00000000 00:00 0 
7f0000400000-7f0000500000 rw-p 00000000 00:00 0 
7f0000500000-7f0000600000 r--p 00000000 00:00 0   /a b
";
    const MIB: u64 = 1 << 20;

    fn placed(memory: Memory, nodes: &str, bytes: u64, hosts: &[(u32, u64)]) -> Placed {
        let nodes_of_guest = hosts.iter().map(|(host, memory)| GuestNode {
            vcpus: CpuSet::default(),
            memory: *memory,
            host: *host,
            distances: vec![],
        });
        Placed {
            name: "a".into(),
            memory: bytes,
            rules: Rules { memory, ..Rules::default() },
            vcpus: vec![],
            emulator: CpuSet::default(),
            nodes: nodes.parse().unwrap(),
            near: CpuSet::default(),
            guest: Guest { nodes: nodes_of_guest.collect(), ..Guest::flat(1) },
            why: vec![],
            fallbacks: vec![],
        }
    }

    fn found(placed: &Placed) -> (Resident, String) {
        let (resident, differs) = compared(placed, &mappings(MAPS).unwrap(), &extents(SMAPS));
        (resident, differs.join("; "))
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let all = mappings(MAPS).unwrap();
        let told: Vec<_> = all.iter().map(|it| format!("{} {}", it.policy, it.nodes)).collect();
        assert_eq!(told, ["bind 0", "prefer (many) 0-1", "prefer 1", "interleave 0-1", "default "]);
        assert_eq!((all[1].page, &all[1].there), (2 * MIB, &[(0, 2 * MIB)].into()));
        assert_eq!(extents(SMAPS)[&0x7f0000000000], Extent { length: MIB, huge: 2 * MIB, is_machine: true });
        assert!(mappings("7f00 bind:x anon=1").is_none() && mappings("zz default").is_none());
    }

    #[test]
    fn memory_is_compared_with_its_placement() {
        let (there, why) = found(&placed(Memory::Strict, "0", MIB, &[]));
        assert_eq!(why, "4K are on other nodes than 0");
        assert_eq!(there.nodes, [(0, 8192), (1, 4096)].into());
        assert_eq!((there.pages, there.transparent_huge), ([(4096, 12288)].into(), 2 * MIB));
        let why = |memory, nodes, bytes, hosts: &[_]| found(&placed(memory, nodes, bytes, hosts)).1;
        assert_eq!(why(Memory::Strict, "1", MIB, &[]), "0 of 1M are bound to node 1");
        assert_eq!(why(Memory::Preferred, "0-1", 2 * MIB, &[]), "");
        assert_eq!(why(Memory::Preferred, "1", MIB, &[]), "");
        assert_eq!(why(Memory::Interleave, "0-1", 2 * MIB, &[]), "1M of 2M are bound to node 0-1");
        let both = [(0, MIB), (1, MIB)];
        let (said, missing) = ("4K are on other nodes than 0", "0 of 1M are bound to node 1");
        assert_eq!(why(Memory::Strict, "0-1", 2 * MIB, &both), format!("{said}; {missing}"));
        assert_eq!(why(Memory::Strict, "", MIB, &[]), "", "any node will do");
    }

    #[test]
    fn a_machines_memory_is_known_by_its_length() {
        let (mappings, extents) = (mappings(MAPS).unwrap(), extents(SMAPS));
        let kinds: Vec<bool> = mappings.iter().map(|it| extents[&it.start].is_machine).collect();
        assert_eq!(kinds, [true, true, true, true, false]);
        let both = mappings.iter().take(2).map(|it| (it, &extents[&it.start]));
        let there = sum(both);
        assert_eq!((there.bytes(), there.on().to_string().as_str()), (2 * MIB + 12288, "0-1"));
        assert_eq!(there.in_pages(), "4K+2M:thp99%");
        let only = |page, bytes| Resident { pages: [(page, bytes)].into(), ..Resident::default() };
        assert_eq!((only(2 * MIB, MIB).in_pages().as_str(), only(4096, 0).in_pages().as_str()), ("2M", ""));
        let memfd = "7f00-7f01 rw-s 00000000 00:01 1034 /memfd:memory-backend-memfd (deleted)\n";
        let file = "7f01-7f02 rw-p 00000000 00:01 1034 /a file\n7f02-7f03 rwxp 00000000 00:00 0 \n";
        let all = super::extents(&format!("{memfd}{file}"));
        assert!(all[&0x7f00].is_machine && !all[&0x7f01].is_machine && !all[&0x7f02].is_machine);
    }

    #[test]
    fn our_own_memory_is_told() {
        let (_, differs) = look(std::process::id() as i32, &placed(Memory::Strict, "0", MIB, &[])).unwrap();
        assert_eq!(differs, ["0 of 1M are bound to node 0"]);
    }
}
