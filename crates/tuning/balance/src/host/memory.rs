//! A machine's memory: the nodes that it is on, whether it can be moved, and moving it.

use std::fs;
use std::io;
use std::path::Path;

/// Pages that are moved by one system call. A machine that needs one of them waits until it returns.
const CHUNK: usize = 1024;
/// Mappings smaller than this are not the machine's memory.
const LEAST: u64 = 16 << 20;

/// The flag of move_pages(2) by which pages that other processes have as well stay, from <linux/mempolicy.h>.
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// A mapping of a machine's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    page: u64,
    /// It may be on certain nodes only.
    bound: bool,
}

/// The memory of a process.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Bytes on each node, by the numbers that Linux gives them.
    pub nodes: Vec<(u32, u64)>,
    /// The reason why it can't be moved, if it can't.
    pub stays: Option<String>,
    mappings: Vec<Mapping>,
}

impl Memory {
    /// Looks at all mappings of a process, which takes the kernel a while: it looks at each page.
    pub fn read(process: i32) -> io::Result<Memory> {
        let directory = format!("/proc/{process}");
        let read = |name: &str| fs::read_to_string(format!("{directory}/{name}"));
        let mut memory = Memory::of(&read("numa_maps")?, &read("maps")?);
        if has_devices(Path::new(&directory)) {
            memory.stays = Some("devices have it (VFIO)".into());
        }
        Ok(memory)
    }

    fn of(numa_maps: &str, maps: &str) -> Memory {
        let mut memory = Memory::default();
        let ends: Vec<(u64, u64)> = maps.lines().filter_map(range).collect();
        for line in numa_maps.lines().filter(|line| is_own(line)) {
            let Some((start, policy)) = line.split_once(' ') else { continue };
            let Ok(start) = u64::from_str_radix(start, 16) else { continue };
            let page = field(line, "kernelpagesize_kB=").unwrap_or(4) << 10;
            for (node, pages) in line.split(' ').filter_map(on_node) {
                let bytes = pages.saturating_mul(page);
                match memory.nodes.iter_mut().find(|(it, _)| *it == node) {
                    Some((_, all)) => *all += bytes,
                    None => memory.nodes.push((node, bytes)),
                }
            }
            let end = ends.iter().find(|(it, _)| *it == start).map_or(start, |(_, end)| *end);
            if end - start >= LEAST {
                let bound = policy.starts_with("bind");
                memory.mappings.push(Mapping { start, end, page, bound });
            }
        }
        if !memory.mappings.is_empty() && memory.mappings.iter().all(|mapping| mapping.bound) {
            memory.stays = Some("it is bound to its nodes".into());
        }
        memory
    }

    /// Moves pages from a node to another until so many bytes have been, from the place on where the last
    /// call has ended. Returns how many bytes are on the other node now that were on the first.
    pub fn migrate(&self, process: i32, ways: (u32, u32), bytes: u64, place: &mut u64) -> io::Result<u64> {
        let mut moved = 0;
        let free = self.mappings.iter().filter(|mapping| !mapping.bound);
        let chunks = free.flat_map(Mapping::chunks);
        // From where the last call has ended, then from the beginning.
        let (before, after): (Vec<_>, Vec<_>) = chunks.partition(|(_, pages)| pages[0] < *place);
        for (page, addresses) in after.into_iter().chain(before) {
            if moved >= bytes {
                break;
            }
            *place = addresses[0];
            let at = locate(process, &addresses, None)?;
            let there = addresses.iter().zip(at).filter(|(_, node)| *node == ways.0 as i32);
            let wanted: Vec<u64> = there.map(|(address, _)| *address).collect();
            if !wanted.is_empty() {
                let now = locate(process, &wanted, Some(ways.1))?;
                moved += page * now.iter().filter(|node| **node == ways.1 as i32).count() as u64;
            }
        }
        Ok(moved)
    }

    /// Counts bytes as moved since it was read.
    pub fn moved(&mut self, ways: (u32, u32), bytes: u64) {
        for (node, all) in &mut self.nodes {
            if *node == ways.0 {
                *all = all.saturating_sub(bytes);
            } else if *node == ways.1 {
                *all += bytes;
            }
        }
        if self.nodes.iter().all(|(node, _)| *node != ways.1) {
            self.nodes.push((ways.1, bytes));
        }
    }
}

impl Mapping {
    /// The addresses of its pages, so many together as are moved at once, with the size of each.
    fn chunks(&self) -> impl Iterator<Item = (u64, Vec<u64>)> + '_ {
        let pages = (self.end - self.start) / self.page;
        let chunk = CHUNK as u64;
        (0..pages.div_ceil(chunk)).map(move |index| {
            let numbers = index * chunk..((index + 1) * chunk).min(pages);
            (self.page, numbers.map(|number| self.start + number * self.page).collect())
        })
    }
}

/// The node of each page, once those have been moved to a node, if one is given; less than 0 for pages that
/// are not there, or could not be moved.
fn locate(process: i32, pages: &[u64], to: Option<u32>) -> io::Result<Vec<i32>> {
    let nodes = to.map(|node| vec![node as i32; pages.len()]);
    let nodes = nodes.as_ref().map_or(std::ptr::null(), |nodes| nodes.as_ptr());
    let mut status = vec![-1i32; pages.len()];
    // SAFETY: three arrays as long as is said (or none of nodes); addresses are those of another process, of
    // which the kernel moves pages and no contents.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            process,
            pages.len(),
            pages.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    // More than 0: so many pages could not be moved.
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(status)
}

/// Whether a line of `numa_maps` is memory of the process itself: not a file's, unless nobody else has that.
fn is_own(line: &str) -> bool {
    !line.contains(" file=") || line.contains(" file=/memfd:")
}

fn range(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

fn field(line: &str, name: &str) -> Option<u64> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok())
}

/// A node and the number of pages there: `N1=20`.
fn on_node(word: &str) -> Option<(u32, u64)> {
    let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
    Some((node.parse().ok()?, pages.parse().ok()?))
}

/// Whether a process with this directory in /proc has devices, which know its memory by physical addresses.
fn has_devices(process: &Path) -> bool {
    let entries = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|file| file.starts_with("/dev/vfio"))
}

/// Free memory of a node in bytes.
pub fn free(node: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo")).ok()?;
    let line = text.lines().find(|line| line.contains(" MemFree:"))?;
    let kib: u64 = line.split_ascii_whitespace().rev().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let numa_maps = "\
10000000 bind:0 anon=8192 dirty=8192 N0=4096 N1=4096 kernelpagesize_kB=4
20000000 default file=/usr/lib/libc.so mapped=7 N0=7 kernelpagesize_kB=4
40000000 prefer:1 file=/memfd:memory\\040(deleted) huge anon=2 N1=64 kernelpagesize_kB=2048
nonsense
";
        let maps = "10000000-12000000 rw-p 00000000 00:00 0\n40000000-48000000 rw-s 0 0:1 5 /memfd:memory\n";
        let memory = Memory::of(numa_maps, maps);
        assert_eq!(memory.nodes, [(0, 16 << 20), (1, (16 + 128) << 20)]);
        assert_eq!(memory.stays, None);
        let mapping = |start, end, page, bound| Mapping { start, end, page, bound };
        assert_eq!(
            memory.mappings,
            [
                mapping(0x1000_0000, 0x1200_0000, 4096, true),
                mapping(0x4000_0000, 0x4800_0000, 2 << 20, false)
            ]
        );
        let chunks: Vec<_> = memory.mappings[0].chunks().collect();
        assert_eq!(
            (chunks.len(), chunks[7].1.len(), chunks[7].1[1]),
            (8, 1024, 0x1000_0000 + 7 * 1024 * 4096 + 4096)
        );
        let bound = Memory::of(numa_maps.lines().next().unwrap(), maps);
        assert_eq!(bound.stays.as_deref(), Some("it is bound to its nodes"));
        assert!(free(0).is_none_or(|free| free > 0));
    }

    /// On a host with one node: what is there already is not moved, and what is said to be elsewhere is not
    /// there. Pages are moved by a test of machines in a machine with two.
    #[test]
    fn pages_are_located() {
        const SIZE: usize = 32 << 20;
        let mut memory = vec![1u8; SIZE];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 2);
        let own = std::process::id() as i32;
        // Containers may be denied these system calls.
        let Ok(seen) = Memory::read(own) else { return };
        assert!(seen.nodes.iter().map(|(_, bytes)| bytes).sum::<u64>() >= SIZE as u64);
        let page = memory.as_ptr() as u64 & !4095;
        match locate(own, &[page + 4096], None) {
            Ok(at) => assert!(seen.nodes.iter().any(|(node, _)| *node as i32 == at[0])),
            Err(why) => assert!(matches!(why.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)), "{why}"),
        }
        drop(memory);
    }
}
