//! Descendants of commands on this kernel: background processes whose parents have ended. An agent adopts
//! them and kills them when its session ends, as a machine's agent does by cgroups, for which it lacks the
//! rights here.

use rustix::process::{getpid, set_child_subreaper};
use std::time::{Duration, Instant};
use std::{fs, io};
use vshmem_transport::stat;

/// Time for which killing goes on, if the killed processes start others.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Makes this process the parent of descendants that lose theirs.
pub fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Kills all descendants of this process. Those of the killed become its children, until there are none.
pub fn end() {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        for child in children() {
            // SAFETY: plain values. It is our child and not reaped, so its pid was not reused.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        loop {
            // SAFETY: plain values; no status is wanted.
            match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
                0 => break,
                // There are no children.
                -1 => return,
                _ => (),
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// This process's children, the dead included.
fn children() -> Vec<i32> {
    let ours = std::process::id();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_ours = |pid: &i32| stat::of(Some(pid.unsigned_abs())).is_some_and(|stat| stat.parent == ours);
    pids.filter(is_ours).collect()
}
