//! Which process a pool means by a pid. Pids are those of the process's own PID name space, and kernels run several: containers. The pool notes
//! which one, by a number; what the process is called from here, and the host name of its container, /proc tells.

use rustix::fd::AsRawFd;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use vshmem_ipc::stats::{self, Who};
use vshmem_pool::Pool;
use vshmem_transport::{namespaces_number, Handle};

/// A name out of a pool, without what a terminal could take for a command.
pub(crate) fn readable(name: &[u8]) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    String::from_utf8_lossy(name).chars().map(shown).collect()
}

/// A process that uses a pool, or did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Process {
    /// Its pid, in its own PID name space.
    pub pid: i32,
    /// Name of the kernel that it runs on.
    pub kernel: String,
    /// Which PID name space of that kernel it is in, by a number that means nothing else; null: that is not known, as where it had no /proc.
    pub namespace: Option<u32>,
    /// The host name there, if it can be seen from here.
    pub hostname: Option<String>,
    /// Its pid as it is seen from here, if it is.
    pub pid_here: Option<i32>,
    /// `PID@NAME`, as people are shown it.
    #[serde(rename = "name")]
    pub label: String,
}

/// A PID name space of this kernel, as it is seen from here.
#[derive(Default)]
struct PidNamespace {
    hostname: Option<String>,
    /// By pids there, those here.
    pids: HashMap<i32, i32>,
}

/// The processes of a pool.
pub struct Processes {
    here: Option<u16>,
    /// What kernels are called.
    names: BTreeMap<u16, String>,
    all: Vec<Who>,
    /// Kernels with processes of several PID name spaces.
    mixed: BTreeSet<u16>,
    /// Our PID name space.
    ours: Option<u32>,
    /// Those of this kernel, by number.
    seen: HashMap<u32, PidNamespace>,
}

impl Processes {
    /// Of a pool. /proc is asked only where there are processes of other name spaces than ours.
    pub fn of(pool: &Pool, handle: &Handle) -> Processes {
        let mut names = BTreeMap::new();
        pool.members(|index, name, _| {
            names.insert(index, readable(name));
        });
        let here = handle.find_member(pool);
        let mut all = Vec::new();
        let mut spaces: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        let back = &mut |at, len| handle.reserve(at, len);
        stats::processes(pool, back, |id, who| {
            let lives = Some(who.member) != here || handle.alive(id.slot) != Some(false);
            if lives {
                all.push(who);
            }
            if lives && who.namespace != 0 {
                spaces.entry(who.member).or_default().insert(who.namespace);
            }
        });
        let ours = spaces_of("self");
        if let Some(here) = here {
            spaces.entry(here).or_default().extend(ours);
        }
        let several = |(&member, all): (&u16, &BTreeSet<u32>)| (all.len() > 1).then_some(member);
        let mixed: BTreeSet<u16> = spaces.iter().filter_map(several).collect();
        let local = here.filter(|here| mixed.contains(here));
        let seen = local.map_or_else(HashMap::new, |here| visible(&spaces[&here]));
        Processes {
            here,
            names,
            all,
            mixed,
            ours,
            seen,
        }
    }

    /// All that live, as far as that is known, but for Vshmem's own.
    pub fn all(&self) -> Vec<Process> {
        self.all.iter().map(|&who| self.describe(who)).collect()
    }

    /// The process that an IPC object notes; `None` if it notes none.
    pub fn recorded(&self, who: Who) -> Option<Process> {
        (who.pid != 0).then(|| self.describe(who))
    }

    /// A process that a record names.
    pub fn describe(&self, who: Who) -> Process {
        let space = (who.namespace != 0).then_some(who.namespace);
        let kernel = self.names.get(&who.member).cloned();
        let kernel = kernel.unwrap_or_else(|| format!("member {}", who.member));
        let is_here = Some(who.member) == self.here;
        let seen = space
            .filter(|_| is_here)
            .and_then(|space| self.seen.get(&space));
        let hostname = seen.and_then(|space| space.hostname.clone());
        let is_mixed = self.mixed.contains(&who.member)
            || is_here && space.is_some_and(|it| Some(it) != self.ours);
        let is_alone = |name: &str| {
            let same = |space: &&PidNamespace| space.hostname.as_deref() == Some(name);
            self.seen.values().filter(same).count() == 1
        };
        let whose = match (space, &hostname) {
            _ if !is_mixed => kernel.clone(),
            (None, _) => format!("{kernel}?"),
            (Some(_), Some(name)) if is_alone(name) => name.clone(),
            (Some(space), name) => format!("{}#{space:x}", name.as_ref().unwrap_or(&kernel)),
        };
        Process {
            pid: who.pid,
            label: format!("{}@{whose}", who.pid),
            kernel,
            namespace: space,
            pid_here: seen.and_then(|space| space.pids.get(&who.pid).copied()),
            hostname,
        }
    }
}

/// The number of the name spaces in which a process's pid and start mean something.
fn spaces_of(process: &str) -> Option<u32> {
    let inode =
        |kind| fs::metadata(format!("/proc/{process}/ns/{kind}")).map(|meta| meta.ino() as u32);
    Some(namespaces_number(
        inode("pid").ok()?,
        inode("time").unwrap_or(0),
    ))
}

/// What of name spaces can be seen from here.
fn visible(wanted: &BTreeSet<u32>) -> HashMap<u32, PidNamespace> {
    let mut seen: HashMap<u32, PidNamespace> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<i32>() else {
            continue;
        };
        let Some(number) = spaces_of(&name).filter(|number| wanted.contains(number)) else {
            continue;
        };
        let space = seen.entry(number).or_insert_with(|| PidNamespace {
            hostname: hostname_of(pid),
            pids: HashMap::new(),
        });
        if let Some(there) = pid_there(pid) {
            space.pids.insert(there, pid);
        }
    }
    seen
}

/// What a process is called in its own PID name space.
fn pid_there(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// The host name that a process sees, asked by a child that goes there.
fn hostname_of(pid: i32) -> Option<String> {
    let open = |kind| File::open(format!("/proc/{pid}/ns/{kind}")).ok();
    let (uts, user) = (open("uts")?, open("user")?);
    let ours = fs::metadata("/proc/self/ns/uts").ok()?;
    if uts.metadata().ok()?.ino() == ours.ino() {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        return Some(readable(name.trim().as_bytes()));
    }
    let ask = move || {
        // SAFETY: the calls take descriptors that are open, and a structure that lives across them; zeros are a valid one. They may be made between
        // fork and exec.
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
    // SAFETY: what runs there allocates nothing and takes no lock; it ends the child, so nothing is executed.
    unsafe { command.pre_exec(ask) };
    let said = command.output().ok()?.stdout;
    (!said.is_empty()).then(|| readable(&said))
}
