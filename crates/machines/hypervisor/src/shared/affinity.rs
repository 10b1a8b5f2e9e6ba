//! The processors of this host that threads may run on.

use rustix::io::Errno;
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet as Mask, Pid};
use std::{fs, io};
use vshmem_base::process::pid_inside;
use vshmem_placement::cpuset::CpuSet;

/// Rounds over a process's threads, since new ones come while others are pinned.
const ROUNDS: usize = 4;

/// The cores that this process may use; the first thread of each physical core comes before the others.
pub fn available_cores() -> Vec<usize> {
    let allowed = allowed(0).unwrap_or_default();
    let mut cores: Vec<usize> = allowed.iter().map(|core| core as usize).collect();
    cores.sort_by_key(|&core| (rank_among_siblings(core), core));
    cores
}

/// The processors of a memory node that this process may use.
pub fn near(node: u32) -> CpuSet {
    let list = fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
    let its: CpuSet = list.unwrap_or_default().trim().parse().unwrap_or_default();
    let allowed = allowed(0).unwrap_or_default();
    its.iter().filter(|core| allowed.contains(*core)).collect()
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

/// The processors that the threads of a machine's process may run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    /// The processors of each virtual core, in order.
    pub vcpus: Vec<CpuSet>,
    /// The processors of all other threads; without it they are left alone.
    pub others: Option<CpuSet>,
}

/// Pins a process's threads; `vcpus` are those of its virtual cores, in order.
pub fn pin(process: i32, vcpus: &[i32], pins: &Pins) -> io::Result<()> {
    for (thread, set) in vcpus.iter().zip(&pins.vcpus) {
        set_allowed(*thread, set)?;
    }
    let Some(others) = &pins.others else {
        return Ok(());
    };
    // A new thread may run where the one may that starts it, so this ends.
    for _ in 0..ROUNDS {
        let is_wrong = |thread: &i32| allowed(*thread).is_ok_and(|set| set != *others);
        let wrong: Vec<i32> = other_threads(process, vcpus)?.into_iter().filter(is_wrong).collect();
        if wrong.is_empty() {
            break;
        }
        for thread in wrong {
            match set_allowed(thread, others) {
                // It has ended meanwhile.
                Err(Errno::SRCH) => (),
                done => done?,
            }
        }
    }
    Ok(())
}

/// The differences between a process's threads and what they were pinned to, in words.
pub fn differences(process: i32, vcpus: &[i32], pins: &Pins) -> io::Result<Vec<String>> {
    let mut all = Vec::new();
    if vcpus.len() != pins.vcpus.len() {
        all.push(format!(
            "{} virtual cores are threads of the host, and not {}",
            vcpus.len(),
            pins.vcpus.len()
        ));
    }
    for (number, (thread, wanted)) in vcpus.iter().zip(&pins.vcpus).enumerate() {
        let found = allowed(*thread)?;
        if found != *wanted {
            all.push(format!("virtual core {number} may run on {found} instead of {wanted}"));
        }
    }
    let Some(wanted) = &pins.others else {
        return Ok(all);
    };
    let strays = other_threads(process, vcpus)?.into_iter().filter_map(|thread| allowed(thread).ok());
    let strays: Vec<CpuSet> = strays.filter(|found| found != wanted).collect();
    if let Some(found) = strays.first() {
        let (count, plural) = (strays.len(), if strays.len() == 1 { "" } else { "s" });
        all.push(format!("{count} other thread{plural} may run on {found} instead of {wanted}"));
    }
    Ok(all)
}

/// The threads of a process but for these.
fn other_threads(process: i32, but: &[i32]) -> io::Result<Vec<i32>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/task"))? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        threads.extend(number.filter(|thread| !but.contains(thread)));
    }
    Ok(threads)
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

/// Lets a thread run on these processors, and on no others; 0 is the caller.
///
/// # Errors
/// There is no such thread, it is another user's, or this host has none of the processors.
pub fn set_allowed(thread: i32, set: &CpuSet) -> Result<(), Errno> {
    let mut mask = Mask::new();
    set.iter().map(|core| core as usize).filter(|core| *core < Mask::MAX_CPU).for_each(|core| mask.set(core));
    sched_setaffinity(Pid::from_raw(thread), &mask)
}

/// The processors that a thread may run on; 0 is the caller.
///
/// # Errors
/// There is no such thread.
pub fn allowed(thread: i32) -> Result<CpuSet, Errno> {
    let mask = sched_getaffinity(Pid::from_raw(thread))?;
    Ok((0..Mask::MAX_CPU).filter(|core| mask.is_set(*core)).map(|core| core as u32).collect())
}

fn rank_among_siblings(core: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    let list: CpuSet = fs::read_to_string(path).unwrap_or_default().parse().unwrap_or_default();
    let rank = list.iter().position(|sibling| sibling as usize == core);
    rank.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

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

    /// A process of its own: its threads are known.
    #[test]
    fn threads_are_pinned_and_found_to_be() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = child.id() as i32;
        let here = allowed(0).unwrap();
        let one: CpuSet = here.first().into_iter().collect();
        let pins = |vcpu: &CpuSet, others| Pins { vcpus: vec![vcpu.clone()], others };
        // The process has one thread: as a virtual core, or as another thread.
        pin(process, &[process], &pins(&one, Some(one.clone()))).unwrap();
        assert_eq!(allowed(process).unwrap(), one);
        assert!(differences(process, &[process], &pins(&one, Some(here.clone()))).unwrap().is_empty());
        let beyond: CpuSet = one.iter().chain([1000]).collect();
        pin(process, &[process], &pins(&beyond, None)).unwrap();
        let why = differences(process, &[process], &pins(&beyond, None)).unwrap();
        assert_eq!(why, [format!("virtual core 0 may run on {one} instead of {beyond}")]);
        let others = Pins { vcpus: vec![], others: Some(beyond.clone()) };
        pin(process, &[], &others).unwrap();
        let why = differences(process, &[], &others).unwrap();
        assert_eq!(why, [format!("1 other thread may run on {one} instead of {beyond}")]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pin(process, &[process], &pins(&one, None)).is_err());
    }

    #[test]
    fn new_threads_run_where_the_one_does_that_starts_them() {
        let (say, said) = channel();
        std::thread::spawn(move || {
            let one: CpuSet = allowed(0).unwrap().first().into_iter().collect();
            set_allowed(0, &one).unwrap();
            std::thread::spawn(move || say.send(allowed(0).unwrap() == one)).join().unwrap()
        });
        assert!(said.recv().unwrap());
    }
}
