//! Which pages of a private mapping of a file were written: those that are no file's any more.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Of a page: it is there, and it is a file's.
const PRESENT: u64 = 1 << 3;
const OF_FILE: u64 = 1 << 2;

/// What the kernel is asked, and what it answers (`struct pm_scan_arg`).
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    found: *mut Region,
    room: u64,
    most: u64,
    inverted: u64,
    wanted: u64,
    any_of: u64,
    told: u64,
}

/// Pages of a kind, one after another (`struct page_region`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    kinds: u64,
}

/// `PAGEMAP_SCAN`: Linux 6.7 has it.
const SCAN: libc::c_ulong = 0xc060_6610;

/// Calls `each` with where such pages begin and end, from `start` on.
pub fn each(start: u64, len: u64, page: usize, mut each: impl FnMut(u64, u64)) {
    static MAP: OnceLock<File> = OnceLock::new();
    let map = MAP.get_or_init(|| File::open("/proc/self/pagemap").expect("the kernel's view of our memory"));
    let end = start + len;
    let mut regions = [Region { start: 0, end: 0, kinds: 0 }; 64];
    let mut from = start;
    while from < end {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start: from,
            end,
            walk_end: 0,
            found: regions.as_mut_ptr(),
            room: regions.len() as u64,
            most: 0,
            inverted: OF_FILE,
            wanted: PRESENT | OF_FILE,
            any_of: 0,
            told: PRESENT,
        };
        // SAFETY: the structure is the kernel's, and names room for so many regions.
        let found = unsafe { libc::ioctl(map.as_raw_fd(), SCAN, &raw mut scan) };
        let Ok(found) = usize::try_from(found) else {
            return each_by_entries(map, from, end, page, each);
        };
        regions[..found].iter().for_each(|r| each(r.start, r.end));
        from = scan.walk_end;
    }
}

/// The same, where the kernel must be asked for each page.
fn each_by_entries(map: &File, start: u64, end: u64, page: usize, mut each: impl FnMut(u64, u64)) {
    let mut entries = vec![0u8; (end - start) as usize / page * 8];
    map.read_exact_at(&mut entries, start / page as u64 * 8).expect("an entry for each page");
    for (i, entry) in entries.chunks_exact(8).enumerate() {
        let entry = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
        // There, and no file's: bits 63 and 61.
        if entry >> 61 & 0b101 == 0b100 {
            let at = start + (i * page) as u64;
            each(at, at + page as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::memory::{self, Image};

    #[test]
    fn pages_that_were_written_are_found_in_either_way() {
        let mem = memory::oasis(1 << 20);
        Image::begin(mem).show(mem);
        // Of 64 KiB, the largest pages that there are.
        const EACH: u64 = 1 << 16;
        let at = |page: u64| mem.word(page * EACH).expect("a word");
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        for page in [3, 4, 12, 15] {
            at(page).store(1, relaxed);
        }
        // One that is only read is none of them.
        assert_eq!(at(9).load(relaxed), 0);
        let (start, len) = (mem.base() as u64, mem.len() as u64);
        let (mut found, mut pages) = (Vec::new(), Vec::new());
        // SAFETY: asks libc, which knows it from the start.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        each(start, len, page, |from, to| {
            found.extend((from..to).step_by(EACH as usize).map(|at| (at - start) / EACH));
        });
        let map = File::open("/proc/self/pagemap").expect("the kernel's view of our memory");
        each_by_entries(&map, start, start + len, page, |from, _| {
            pages.push((from - start) / EACH);
        });
        assert_eq!(found, [3, 4, 12, 15]);
        assert_eq!(pages, found);
    }
}
