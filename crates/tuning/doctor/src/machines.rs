//! The host's machines: QEMU's processes, and the processors of their threads.

use crate::cpus::{self, Cpus};
use crate::look::Look;
use crate::setting::Thread;
use crate::system::{System, Unseen};
use std::collections::BTreeSet;

/// A process of QEMU.
pub struct Machine {
    /// Its pid.
    pub pid: u32,
    /// Its name, or else the pid.
    pub name: String,
    /// Threads of virtual processors; none if QEMU neither names its threads nor says it by its monitor.
    pub vcpus: Vec<MachineThread>,
    /// All others.
    pub others: Vec<MachineThread>,
}

/// A thread of a machine, and the processors that it may use.
pub struct MachineThread {
    /// The thread.
    pub thread: Thread,
    /// Its name.
    pub name: String,
    /// The processors that it may use.
    pub allowed: Cpus,
}

/// All machines that can be seen. The processors of their threads become evidence.
pub fn machines(look: &mut Look<'_>) -> Result<Vec<Machine>, Unseen> {
    let system = look.system;
    let (mut found, mut strangers) = (Vec::new(), Vec::new());
    for pid in system.numbers("proc")? {
        let comm = system.text(&format!("proc/{pid}/comm"))?.unwrap_or_default();
        if !is_qemu(comm.trim()) {
            continue;
        }
        match doubt(system, pid)? {
            None => found.extend(machine(system, pid)?),
            Some(why) => strangers.push((pid, why)),
        }
    }
    for (pid, why) in strangers {
        look.note(format!("process {pid}, which is called QEMU"), format!("left out: {why}"));
    }
    for machine in &found {
        for it in &machine.vcpus {
            look.note(
                format!("{}, {}", machine.name, it.name),
                format!("processors {}", cpus::show(&it.allowed)),
            );
        }
    }
    Ok(found)
}

/// The name of a process: 15 characters of that of its program.
fn is_qemu(comm: &str) -> bool {
    comm.starts_with("qemu-system-") || comm == "qemu-kvm" || comm == "kvm"
}

/// The reason why a process that is called QEMU is not believed: its own files are none to change the host.
fn doubt(system: &System, pid: u32) -> Result<Option<String>, Unseen> {
    let Some(believed) = &system.believed else {
        return Ok(None);
    };
    let text = |name: &str| Ok(system.text(&format!("proc/{pid}/{name}"))?.unwrap_or_default());
    // Of a process of somebody else's this can't be read; root's is believed all the same.
    let program = system.link(&format!("proc/{pid}/exe")).ok().flatten();
    if let Some(program) = program.filter(|it| !is_qemu(it.trim_end_matches(" (deleted)"))) {
        return Ok(Some(format!("it runs {program}")));
    }
    let stat = text("stat")?;
    let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
    if std::iter::once(pid).chain(parent).any(|it| believed.processes.contains(&it)) {
        return Ok(None);
    }
    // Only root puts processes there: libvirt's machines have a user of their own.
    let is_managed =
        |line: &str| line.splitn(3, ':').nth(2).is_some_and(|it| it.starts_with("/machine.slice/"));
    if text("cgroup")?.lines().any(is_managed) {
        return Ok(None);
    }
    let status = text("status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let users: Vec<&str> = line.split_whitespace().collect();
    let is_believed = |user: &&str| user.parse().is_ok_and(|user| believed.users.contains(&user));
    let is_stranger = users.is_empty() || !users.iter().all(is_believed);
    Ok(is_stranger.then(|| format!("its user is {}", users.first().unwrap_or(&"unknown"))))
}

/// The role of a thread by its name: the processor of this number, or (the inner `None`) all of them.
pub fn role(name: &str) -> Option<Option<u64>> {
    if name.starts_with("ALL CPUs/") {
        return Some(None);
    }
    Some(Some(name.strip_prefix("CPU ")?.split_once('/')?.0.parse().ok()?))
}

/// True if these can be the processors of a machine: each once, or all in one thread, and none in the first
/// thread of the process.
fn are_processors(pid: u32, threads: &[MachineThread]) -> bool {
    let roles: BTreeSet<_> = threads.iter().map(|it| role(&it.name)).collect();
    let is_one = roles.len() == threads.len() && (threads.len() == 1 || !roles.contains(&Some(None)));
    is_one && threads.iter().all(|it| it.thread.number != pid)
}

fn machine(system: &System, pid: u32) -> Result<Option<Machine>, Unseen> {
    let (mut vcpus, mut others) = (Vec::new(), Vec::new());
    for number in system.numbers(&format!("proc/{pid}/task"))? {
        let Some(thread) = Thread::find(system, pid, number) else {
            continue;
        };
        let name = system.text(&thread.file("comm"))?.unwrap_or_default().trim().to_owned();
        let Some(allowed) = thread.allowed(system) else {
            continue;
        };
        if role(&name).is_some() { &mut vcpus } else { &mut others }.push(MachineThread {
            thread,
            name,
            allowed,
        });
    }
    if !are_processors(pid, &vcpus) {
        others.append(&mut vcpus);
    }
    if vcpus.is_empty() {
        let told = system.vcpus(pid).unwrap_or_default();
        let index = |it: &MachineThread| {
            told.iter().find(|vcpu| vcpu.thread == it.thread.number).map(|vcpu| vcpu.index)
        };
        (vcpus, others) = others.into_iter().partition(|it| index(it).is_some());
        for it in &mut vcpus {
            it.name = format!("CPU {}", index(it).unwrap_or_default());
        }
    }
    let line = system.text(&format!("proc/{pid}/cmdline"))?.unwrap_or_default();
    let name = called(&line).map_or_else(|| format!("QEMU {pid}"), |name| format!("{name} ({pid})"));
    Ok((!others.is_empty()).then_some(Machine { pid, name, vcpus, others }))
}

/// The name of a machine: a label, and nothing else is taken from a command line.
fn called(line: &str) -> Option<String> {
    let mut words = line.split('\0').skip_while(|word| *word != "-name").skip(1);
    let name = words.next()?.split(',').next()?.trim_start_matches("guest=");
    (!name.is_empty()).then(|| name.into())
}

/// The files that a process has open, as /proc names them.
///
/// # Errors
/// Only its user and root may see them.
pub fn opened(system: &System, pid: u32) -> Result<Vec<String>, Unseen> {
    let directory = format!("proc/{pid}/fd");
    let mut files = Vec::new();
    for fd in system.numbers(&directory)? {
        files.extend(system.target(&format!("{directory}/{fd}"))?);
    }
    Ok(files)
}

/// The machines that can't be judged, since QEMU does not say which of its threads are processors.
pub fn without_names(machines: &[Machine]) -> Option<String> {
    let names: Vec<&str> =
        machines.iter().filter(|machine| machine.vcpus.is_empty()).map(|machine| &*machine.name).collect();
    let why =
        "QEMU does not say which of its threads are processors (-name debug-threads=on, or a second monitor)";
    (!names.is_empty()).then(|| format!("{}: {why}", names.join(", ")))
}
