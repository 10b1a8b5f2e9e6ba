//! Pins virtual cores to cores of the host, one each, if there are enough.

use crate::state::process::pid_inside;
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet, Pid};
use std::fs;
use std::io;

/// The cores that this process may use; the first thread of each physical core comes before the others.
pub fn available_cores() -> Vec<usize> {
    let mut cores = allowed();
    cores.sort_by_key(|&core| (rank_among_siblings(core), core));
    cores
}

/// Assigns `cores` to machines with so many virtual cores each; `None` unless each of those can have its own.
pub fn assign_cores(mut cores: &[usize], cpus: &[u32]) -> Option<Vec<Vec<usize>>> {
    let mut shares = Vec::new();
    for &cpus in cpus {
        let (share, rest) = cores.split_at_checked(cpus as usize)?;
        shares.push(share.to_vec());
        cores = rest;
    }
    Some(shares)
}

/// The thread of a process whose id in its own PID namespace is this one.
pub fn thread_of(process: i32, number: i32) -> io::Result<i32> {
    for entry in fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
        let thread = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (Some(thread), Some(own)) = (thread, pid_inside(&entry.path())) {
            if own == number {
                return Ok(thread);
            }
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Pins a thread to a core.
pub fn pin(thread: i32, core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(Pid::from_raw(thread), &set)?)
}

fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

fn rank_among_siblings(core: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    let list = fs::read_to_string(path).unwrap_or_default();
    parse_list(&list).iter().position(|&sibling| sibling == core).unwrap_or(0)
}

/// Parses a list of cores of the kernel: `0-2,8`.
pub(crate) fn parse_list(text: &str) -> Vec<usize> {
    let mut out = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            out.extend(first..=last.min(first.saturating_add(4096)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(parse_list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(parse_list("3"), [3]);
        assert!(parse_list("").is_empty());
        assert!(parse_list("x-y").is_empty());
        assert!(parse_list("5-4").is_empty());
        let last = usize::MAX;
        assert_eq!(parse_list(&format!("{last}-{last}")), [last]);
    }

    #[test]
    fn cores_are_assigned_only_if_they_suffice() {
        assert_eq!(assign_cores(&[0, 1], &[1, 1]), Some(vec![vec![0], vec![1]]));
        assert_eq!(assign_cores(&[4, 5, 6, 7, 0], &[1, 3]), Some(vec![vec![4], vec![5, 6, 7]]));
        assert_eq!(assign_cores(&[0, 1], &[1, 1, 1]), None);
        assert_eq!(assign_cores(&[0, 1], &[3]), None);
    }

    #[test]
    fn threads_are_found_by_their_pid_inside() {
        let own = std::process::id() as i32;
        assert_eq!(thread_of(own, own).unwrap(), own);
        assert!(thread_of(own, 0).is_err());
    }

    #[test]
    fn a_thread_can_be_pinned() {
        let core = *available_cores().last().unwrap();
        std::thread::spawn(move || {
            pin(0, core).unwrap();
            assert_eq!(allowed(), [core]);
        })
        .join()
        .unwrap();
    }
}
