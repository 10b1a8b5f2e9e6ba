//! Settings of a system that can be changed while it runs, and put back.

use crate::cpus::{self, Cpus};
use crate::mounts;
use crate::system::System;
use crate::text::chosen;
use rustix::fs::CWD;
use rustix::mount::{fsconfig_reconfigure, fsconfig_set_string, fspick, FsPickFlags};
use rustix::thread::{sched_setaffinity, CpuSet, Pid};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// A setting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Setting {
    /// A file of /proc or /sys, perhaps a process's.
    File {
        /// Its path below the root.
        path: String,
        /// The thread that it belongs to; `None`: the system.
        process: Option<Thread>,
    },
    /// The processors that a thread may use.
    Affinity(Thread),
    /// A module of the kernel: `loaded`, or unset.
    Module {
        /// Its name as the kernel writes it, with underscores.
        name: String,
        /// Its options, as modprobe(8) takes them; perhaps none.
        options: Vec<String>,
    },
    /// The option `huge=` of a mounted tmpfs; its mount point, below the root.
    HugePages(String),
}

/// The value of a module that is loaded.
pub const LOADED: &str = "loaded";

/// A thread that can't be taken for a later one of the same number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Thread {
    /// Its process.
    pub process: u32,
    /// Its number.
    pub number: u32,
    /// The time of its start, in ticks since the kernel was booted.
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
            Setting::Module { name, options } => {
                write!(
                    f,
                    "module {}",
                    std::iter::once(name).chain(options).cloned().collect::<Vec<_>>().join(" ")
                )
            }
            Setting::HugePages(point) => write!(f, "option huge of /{point}"),
        }
    }
}

impl Setting {
    /// A file of the system.
    pub fn file(path: &str) -> Setting {
        Setting::File { path: path.into(), process: None }
    }

    /// The value now; `None`: the process has ended, or the file is gone. Empty: nothing is set.
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
            Setting::Module { name, .. } => {
                let is_loaded = system.path(&format!("sys/module/{name}")).try_exists()?;
                Ok(Some(if is_loaded { LOADED.into() } else { String::new() }))
            }
            Setting::HugePages(point) => {
                let mounts =
                    system.need("proc/self/mounts").map_err(|unseen| io::Error::other(unseen.to_string()))?;
                Ok(mounts::options(&mounts, &format!("/{point}")).map(|options| mounts::huge(options).into()))
            }
        }
    }

    /// Sets it.
    pub fn set(&self, system: &System, value: &str) -> io::Result<()> {
        match self {
            Setting::File { path, .. } => system.write(path, value),
            // The others are no files, so a recorded system does not have them.
            _ if !system.is_live() => Err(io::ErrorKind::Unsupported.into()),
            Setting::Affinity(it) => bind(it.number, value),
            Setting::Module { name, options } if value == LOADED => modprobe(&["--"], name, options),
            Setting::Module { name, .. } => modprobe(&["-r", "--"], name, &[]),
            Setting::HugePages(point) => remount(&system.path(point), value),
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

/// Has modprobe(8) load a module, or remove it.
fn modprobe(how: &[&str], name: &str, options: &[String]) -> io::Result<()> {
    // Where administrators' commands lie is not in everybody's path.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new("modprobe");
    command.args(how).arg(name).args(options).env("PATH", path).stdin(Stdio::null());
    let done =
        command.output().map_err(|e| io::Error::new(e.kind(), format!("could not run modprobe: {e}")))?;
    if done.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}

/// Changes an option of a file system that is mounted, and leaves all others as they are.
fn remount(point: &Path, huge: &str) -> io::Result<()> {
    let mounted = fspick(CWD, point, FsPickFlags::FSPICK_CLOEXEC)?;
    fsconfig_set_string(&mounted, "huge", huge)?;
    Ok(fsconfig_reconfigure(&mounted)?)
}
