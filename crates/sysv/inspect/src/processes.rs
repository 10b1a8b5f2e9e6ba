//! The processes that pids in a pool refer to. A pid belongs to its process's PID namespace, and a kernel can
//! have several of these: containers. The pool identifies the namespace by a number; /proc tells the pid here
//! and the container's host name.

use crate::view::View;
use rustix::fd::AsRawFd;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use vshmem_base::process::pid_inside;
use vshmem_ipc::stats::Who;
use vshmem_transport::namespaces_number;

/// A name out of a pool, with control characters replaced.
pub fn readable(name: &[u8]) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    String::from_utf8_lossy(name).chars().map(shown).collect()
}

/// A process that uses a pool, or did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Process {
    /// Its pid, in its own PID namespace.
    pub pid: i32,
    /// Name of the kernel that it runs on.
    pub kernel: String,
    /// Its PID namespace on that kernel, by an arbitrary number; null if unknown, as without /proc.
    pub namespace: Option<u32>,
    /// The host name there, if it can be seen from here.
    pub hostname: Option<String>,
    /// Its pid here, if it can be seen from here.
    pub pid_here: Option<i32>,
    /// `PID@NAME`, as it is displayed.
    #[serde(rename = "name")]
    pub label: String,
}

/// A PID namespace of this kernel, as seen from here.
#[derive(Default)]
struct PidNamespace {
    hostname: Option<String>,
    /// Pids here, by pids there.
    pids: HashMap<i32, i32>,
}

/// The processes of a pool.
pub struct Processes {
    here: Option<u16>,
    /// The kernels' names.
    names: BTreeMap<u16, String>,
    all: Vec<Who>,
    /// Kernels with processes in several PID namespaces.
    mixed: BTreeSet<u16>,
    /// The PID namespace of this process.
    ours: Option<u32>,
    /// The namespaces of this kernel, by number.
    seen: HashMap<u32, PidNamespace>,
}

impl Processes {
    /// The processes of a pool. /proc is only read if some of them are in other namespaces than this one.
    pub(crate) fn of(view: &View) -> Processes {
        let mut names = BTreeMap::new();
        view.pool.members(|index, name, _| {
            names.insert(index, readable(name));
        });
        let here = view.here;
        let mut all = Vec::new();
        let mut namespaces: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        view.processes(|who| {
            all.push(who);
            if who.namespace != 0 {
                namespaces.entry(who.member).or_default().insert(who.namespace);
            }
        });
        let ours = namespaces_of("self");
        if let Some(here) = here {
            namespaces.entry(here).or_default().extend(ours);
        }
        let several = |(&member, all): (&u16, &BTreeSet<u32>)| (all.len() > 1).then_some(member);
        let mixed: BTreeSet<u16> = namespaces.iter().filter_map(several).collect();
        let local = here.filter(|here| mixed.contains(here));
        let seen = local.map_or_else(HashMap::new, |here| visible(&namespaces[&here]));
        Processes { here, names, all, mixed, ours, seen }
    }

    /// All processes that are not known to be dead, without Vshmem's own.
    pub fn all(&self) -> Vec<Process> {
        self.all.iter().map(|&who| self.describe(who)).collect()
    }

    /// The process that an IPC object records; `None` if it records none.
    pub fn recorded(&self, who: Who) -> Option<Process> {
        (who.pid != 0).then(|| self.describe(who))
    }

    /// A process that a record names.
    pub fn describe(&self, who: Who) -> Process {
        let namespace = (who.namespace != 0).then_some(who.namespace);
        let kernel = self.names.get(&who.member).cloned();
        let kernel = kernel.unwrap_or_else(|| format!("member {}", who.member));
        let is_here = Some(who.member) == self.here;
        let seen = namespace.filter(|_| is_here).and_then(|namespace| self.seen.get(&namespace));
        let hostname = seen.and_then(|namespace| namespace.hostname.clone());
        let is_mixed =
            self.mixed.contains(&who.member) || is_here && namespace.is_some_and(|it| Some(it) != self.ours);
        let is_alone = |name: &str| {
            let same = |namespace: &&PidNamespace| namespace.hostname.as_deref() == Some(name);
            self.seen.values().filter(same).count() == 1
        };
        let whose = match (namespace, &hostname) {
            _ if !is_mixed => kernel.clone(),
            (None, _) => format!("{kernel}?"),
            (Some(_), Some(name)) if is_alone(name) => name.clone(),
            (Some(namespace), name) => {
                format!("{}#{namespace:x}", name.as_ref().unwrap_or(&kernel))
            }
        };
        Process {
            pid: who.pid,
            label: format!("{}@{whose}", who.pid),
            kernel,
            namespace,
            pid_here: seen.and_then(|namespace| namespace.pids.get(&who.pid).copied()),
            hostname,
        }
    }
}

/// The number of the namespaces that a process's pid and start time belong to.
fn namespaces_of(process: &str) -> Option<u32> {
    let inode = |kind| fs::metadata(format!("/proc/{process}/ns/{kind}")).map(|meta| meta.ino() as u32);
    Some(namespaces_number(inode("pid").ok()?, inode("time").unwrap_or(0)))
}

/// The wanted namespaces that can be seen from here, each with its host name and the pids in it.
fn visible(wanted: &BTreeSet<u32>) -> HashMap<u32, PidNamespace> {
    let mut seen: HashMap<u32, PidNamespace> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<i32>() else {
            continue;
        };
        let Some(number) = namespaces_of(&name).filter(|number| wanted.contains(number)) else {
            continue;
        };
        let namespace = seen
            .entry(number)
            .or_insert_with(|| PidNamespace { hostname: hostname_of(pid), pids: HashMap::new() });
        if let Some(there) = pid_inside(&entry.path()) {
            namespace.pids.insert(there, pid);
        }
    }
    seen
}

/// The host name that a process sees, read by a child that enters its namespace.
fn hostname_of(pid: i32) -> Option<String> {
    let open = |kind| File::open(format!("/proc/{pid}/ns/{kind}")).ok();
    let (uts, user) = (open("uts")?, open("user")?);
    let ours = fs::metadata("/proc/self/ns/uts").ok()?;
    if uts.metadata().ok()?.ino() == ours.ino() {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        return Some(readable(name.trim().as_bytes()));
    }
    let ask = move || {
        // SAFETY: the calls take open descriptors, and a structure that lives across them and may be zero.
        // They are safe between fork and exec.
        unsafe {
            let enters = |file: &File, kind| libc::setns(file.as_raw_fd(), kind) == 0;
            let is_there = enters(&uts, libc::CLONE_NEWUTS)
                || enters(&user, libc::CLONE_NEWUSER) && enters(&uts, libc::CLONE_NEWUTS);
            let mut name: libc::utsname = std::mem::zeroed();
            if is_there && libc::uname(&mut name) == 0 {
                let text = name.nodename.as_ptr();
                libc::write(1, text.cast(), libc::strlen(text));
            }
            libc::_exit(0)
        }
    };
    let mut command = Command::new("/proc/self/exe");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the closure allocates nothing and takes no lock; it ends the child, so nothing is executed.
    unsafe { command.pre_exec(ask) };
    let said = command.output().ok()?.stdout;
    (!said.is_empty()).then(|| readable(&said))
}
