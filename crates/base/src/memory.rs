//! Memory of this host, of its processes and its file systems.

use rustix::fs::{statfs, statvfs};
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::ffi::CStr;
use std::fs;
use std::io;

/// Memory that the kernel can give to a file without reclaiming anybody's, swap included. `None` if it is not
/// known, or the file is not in tmpfs.
pub fn available_for(file: &CStr) -> Option<u64> {
    // Huge pages are reserved beforehand, and files on disks can be larger than memory.
    let of_memory = statfs(file).ok()?.f_type == libc::TMPFS_MAGIC;
    of_memory.then(available)?
}

/// Memory that the kernel can give to anybody without reclaiming somebody's, swap included.
pub fn available() -> Option<u64> {
    available_in(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// All memory of this host, swap included, in use or free.
pub fn total() -> Option<u64> {
    total_in(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Memory of a process in bytes, by its field in `/proc/PID/status`: `RssAnon` is what only it has,
/// `HugetlbPages` what it has of the host's reserved pages. `None` if that can't be told.
pub fn of_process(process: i32, field: &str) -> Option<u64> {
    field_of(&fs::read_to_string(format!("/proc/{process}/status")).ok()?, field)
}

/// A number of kilobytes, in bytes.
fn field_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Free bytes of a file's file system.
pub fn free_space(file: &CStr) -> Option<u64> {
    let status = statvfs(file).ok()?;
    Some(status.f_bavail.saturating_mul(status.f_frsize))
}

/// An error unless a process like this one may map so much more address space and, with `promised`, the
/// kernel would commit the memory.
pub fn check_available(bytes: u64, promised: bool) -> io::Result<()> {
    let len = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let access = match promised {
        true => ProtFlags::READ | ProtFlags::WRITE,
        false => ProtFlags::empty(),
    };
    // SAFETY: a new mapping, where the kernel has room for it, and which nothing else uses.
    unsafe {
        let at = mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE)?;
        Ok(munmap(at, len)?)
    }
}

fn available_in(meminfo: &str) -> Option<u64> {
    let swap = field_of(meminfo, "SwapFree").unwrap_or(0);
    Some(field_of(meminfo, "MemAvailable")?.saturating_add(swap))
}

fn total_in(meminfo: &str) -> Option<u64> {
    let swap = field_of(meminfo, "SwapTotal").unwrap_or(0);
    Some(field_of(meminfo, "MemTotal")?.saturating_add(swap))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let text =
            "MemTotal:       100 kB\nMemFree:   1 kB\nMemAvailable:       40 kB\nSwapFree:         2 kB\n";
        assert_eq!(available_in(text), Some(42 * 1024));
        assert_eq!(available_in("MemAvailable: x kB"), None);
        assert_eq!(available_in(""), None);
    }

    #[test]
    fn memory_of_processes_is_read() {
        let status = "VmRSS:\t 90 kB\nRssAnon:\t     12 kB\nHugetlbPages:\t  2048 kB\n";
        assert_eq!(field_of(status, "RssAnon"), Some(12288));
        assert_eq!(field_of(status, "HugetlbPages"), Some(2 << 20));
        assert_eq!((field_of(status, "Rss"), field_of("RssAnon: 1 MB", "RssAnon")), (None, None));
        assert!(of_process(std::process::id() as i32, "RssAnon").is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn some_memory_is_available_and_not_any_amount() {
        for promised in [true, false] {
            assert!(check_available(1 << 20, promised).is_ok());
            assert!(check_available(1 << 60, promised).is_err());
        }
    }

    #[test]
    fn only_files_in_tmpfs_count() {
        assert!(available_for(c"/dev/shm").is_some());
        assert_eq!(available_for(c"/proc"), None);
        assert_eq!(available_for(c"/nowhere"), None);
        assert!(free_space(c"/dev/shm").is_some());
    }
}
