//! What can be changed on a system that runs, and put back.

use crate::cpus::{self, Cpus};
use crate::system::System;
use crate::text::chosen;
use rustix::thread::{sched_setaffinity, CpuSet, Pid};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Something that can be changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Setting {
    /// A file of /proc or /sys, perhaps a process's.
    File {
        /// Below the root.
        path: String,
        /// Whose it is.
        process: Option<Thread>,
    },
    /// The processors that a thread may use.
    Affinity(Thread),
}

/// A thread that can't be taken for a later one of the same number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Thread {
    /// Its process.
    pub process: u32,
    /// Its number.
    pub number: u32,
    /// When it was started, in ticks since the kernel was booted.
    pub since: u64,
}

impl Thread {
    /// A thread that runs.
    pub fn find(system: &System, process: u32, number: u32) -> Option<Thread> {
        let stat = system.text(&format!("proc/{process}/task/{number}/stat")).ok()??;
        // The name, in parentheses, may contain anything.
        let since = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        Some(Thread { process, number, since })
    }

    fn lives(&self, system: &System) -> bool {
        Thread::find(system, self.process, self.number).is_some_and(|now| now == *self)
    }

    /// A file of it.
    pub fn file(&self, name: &str) -> String {
        format!("proc/{}/task/{}/{name}", self.process, self.number)
    }

    /// The processors that it may use.
    pub fn allowed(&self, system: &System) -> Option<Cpus> {
        let status = system.text(&self.file("status")).ok()??;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(cpus::parse(line))
    }

    /// The processors that its cgroup admits, or all that run.
    pub fn admitted(&self, system: &System) -> Cpus {
        let group = system.text(&self.file("cgroup")).ok().flatten().unwrap_or_default();
        let group = group.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default().to_owned();
        let effective = system.text(&format!("sys/fs/cgroup/{group}/cpuset.cpus.effective")).ok().flatten();
        let online = || system.text("sys/devices/system/cpu/online").ok().flatten();
        cpus::parse(&effective.or_else(online).unwrap_or_default())
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::File { path, .. } => write!(f, "/{path}"),
            Setting::Affinity(it) => write!(f, "processors of thread {} of {}", it.number, it.process),
        }
    }
}

impl Setting {
    /// A file of the system.
    pub fn file(path: &str) -> Setting {
        Setting::File { path: path.into(), process: None }
    }

    /// What is set now; `None`: the process has ended, or the file is gone. Empty: nothing is set.
    pub fn current(&self, system: &System) -> io::Result<Option<String>> {
        match self {
            Setting::File { process: Some(it), .. } if !it.lives(system) => Ok(None),
            Setting::File { path, .. } => {
                let text = system.text(path).map_err(|unseen| io::Error::other(unseen.to_string()))?;
                Ok(text.map(|text| chosen(text.trim()).to_owned()))
            }
            Setting::Affinity(it) if !it.lives(system) => Ok(None),
            // A thread that may use all that its cgroup admits is not bound: what it may use follows that.
            Setting::Affinity(it) => {
                Ok(it.allowed(system).map(|allowed| match allowed == it.admitted(system) {
                    true => String::new(),
                    false => cpus::show(&allowed),
                }))
            }
        }
    }

    /// Sets it.
    pub fn set(&self, system: &System, value: &str) -> io::Result<()> {
        match self {
            Setting::File { path, .. } => system.write(path, value),
            Setting::Affinity(it) if system.is_live() => bind(it.number, value),
            Setting::Affinity(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Binds a thread to processors; to none in particular if the list is empty. Then it may use all that its
/// cgroup admits now and later.
fn bind(thread: u32, list: &str) -> io::Result<()> {
    let wanted = cpus::parse(list);
    let mut set = CpuSet::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| wanted.is_empty() || wanted.contains(cpu)) {
        set.set(cpu);
    }
    Ok(sched_setaffinity(Pid::from_raw(thread as i32), &set)?)
}
