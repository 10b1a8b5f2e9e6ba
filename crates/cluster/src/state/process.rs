//! Processes by pid and start time, so that a process is not taken for another one that had its pid before.

use serde::{Deserialize, Serialize};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

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
        let (state, started) = stat(pid)?;
        (state != b'Z').then_some(Process { pid, started })
    }

    /// This process.
    pub fn current() -> Process {
        let pid = std::process::id() as i32;
        Process::find(pid).unwrap_or(Process { pid, started: 0 })
    }

    /// It has not ended.
    pub fn alive(&self) -> bool {
        Process::find(self.pid) == Some(*self)
    }

    /// Sends SIGTERM, after the timeout SIGKILL, and returns when it has ended (or nothing helps).
    pub fn end(&self, timeout: Duration) {
        for (signal, timeout) in [
            (libc::SIGTERM, timeout),
            (libc::SIGKILL, Duration::from_secs(5)),
        ] {
            if !self.alive() {
                return;
            }
            // SAFETY: plain values; the process was just seen to be the right one.
            unsafe { libc::kill(self.pid, signal) };
            let deadline = Instant::now() + timeout;
            while self.alive() && Instant::now() < deadline {
                sleep(Duration::from_millis(5));
            }
        }
    }
}

/// State and start time, fields 3 and 22 of /proc/PID/stat.
fn stat(pid: i32) -> Option<(u8, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

pub(crate) fn parse_stat(text: &str) -> Option<(u8, u64)> {
    // The second field is the name in parentheses, which may contain anything, even parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.bytes().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn odd_names_do_not_confuse_it() {
        let tail = "S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 5";
        assert_eq!(
            parse_stat(&format!("12 (a) R 5) {tail}")),
            Some((b'S', 777))
        );
        assert_eq!(parse_stat("12 (a"), None);
        assert_eq!(parse_stat("12 (a) S 1"), None);
    }

    #[test]
    fn a_process_is_found_and_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id() as i32).unwrap();
        assert!(process.alive());
        let other = Process {
            started: process.started + 1,
            ..process
        };
        assert!(!other.alive());
        other.end(Duration::from_secs(1));
        assert!(process.alive());
        process.end(Duration::from_secs(5));
        assert!(!process.alive());
        assert!(!child.wait().unwrap().success());
    }
}
