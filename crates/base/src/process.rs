//! Processes by pid and start time, so that a process is not taken for another one that had its pid before.

use crate::interrupt;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::Duration;
use vshmem_transport::stat;

/// A process of this boot of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// Its start time, in clock ticks since boot.
    pub started: u64,
}

impl Process {
    /// The process that has this pid now.
    pub fn find(pid: i32) -> Option<Process> {
        let found = stat::of(Some(pid.try_into().ok()?))?;
        let started = found.start;
        (found.state != b'Z').then_some(Process { pid, started })
    }

    /// This process.
    pub fn current() -> Process {
        let pid = std::process::id() as i32;
        Process::find(pid).unwrap_or(Process { pid, started: 0 })
    }

    /// Whether the process has not ended.
    pub fn alive(&self) -> bool {
        Process::find(self.pid) == Some(*self)
    }

    /// Whether the process has ended and its memory is free.
    pub fn has_left(&self) -> bool {
        // Threads may end after the first one, and the last of them has the memory.
        !self.alive() && threads(self.pid) <= 1
    }

    /// Sends SIGTERM, after the timeout SIGKILL, and returns when it has ended and its memory is free (or
    /// nothing helps).
    pub fn end(&self, timeout: Duration) {
        if !self.alive() {
            return;
        }
        for (signal, timeout) in [(libc::SIGTERM, timeout), (libc::SIGKILL, Duration::from_secs(5))] {
            if self.alive() {
                // SAFETY: plain values; the process was just seen to be the right one.
                unsafe { libc::kill(self.pid, signal) };
                interrupt::repeat(timeout, Duration::from_millis(5), || (!self.alive()).then_some(()));
            }
        }
        let gone = || (self.alive() || self.has_left()).then_some(());
        interrupt::repeat(Duration::from_secs(5), Duration::from_millis(5), gone);
    }
}

/// The number of threads of the process that has this pid; one that has ended and was not waited for
/// counts.
fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// The pid in its innermost PID namespace of the process or thread with this directory in /proc.
pub fn pid_inside(directory: &Path) -> Option<i32> {
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let mut lines = status.lines();
    let pids = lines.find_map(|line| line.strip_prefix("NSpid:"))?;
    pids.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_pid_inside_is_found() {
        let directory = std::env::temp_dir().join(format!("vshmem-status-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let with = |status: &str| {
            fs::write(directory.join("status"), status).unwrap();
            pid_inside(&directory)
        };
        assert_eq!(with("Pid:\t7\nNSpid:\t812\t7\nThreads:\t1\n"), Some(7));
        assert_eq!(with("Pid:\t7\n"), None);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_process_is_found_and_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id() as i32).unwrap();
        assert!(process.alive());
        let other = Process { started: process.started + 1, ..process };
        assert!(!other.alive());
        other.end(Duration::from_secs(1));
        assert!(process.alive());
        process.end(Duration::from_secs(5));
        assert!(!process.alive());
        assert!(!child.wait().unwrap().success());
    }
}
