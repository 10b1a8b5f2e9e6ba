//! The host's machines: QEMU's processes, and where their threads may run.

use crate::cpus::{self, Cpus};
use crate::look::Look;
use crate::setting::Thread;
use crate::system::{System, Unseen};

/// A process of QEMU.
pub struct Machine {
    /// Its pid.
    pub pid: u32,
    /// What it is called, or else the pid.
    pub name: String,
    /// Threads of virtual processors; none if QEMU neither names its threads nor says it by its monitor.
    pub vcpus: Vec<Placed>,
    /// All others.
    pub others: Vec<Placed>,
}

/// A thread, and where it may run.
pub struct Placed {
    /// The thread.
    pub thread: Thread,
    /// Its name.
    pub name: String,
    /// The processors that it may use.
    pub allowed: Cpus,
}

/// All machines that can be seen; what of them is decisive becomes evidence.
pub fn machines(look: &mut Look<'_>) -> Result<Vec<Machine>, Unseen> {
    let system = look.system;
    let mut found = Vec::new();
    for pid in system.numbers("proc")? {
        let comm = system.text(&format!("proc/{pid}/comm"))?.unwrap_or_default();
        if is_qemu(comm.trim()) {
            found.extend(machine(system, pid)?);
        }
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
        let is_vcpu = name.starts_with("CPU ") || name.starts_with("ALL CPUs");
        if is_vcpu { &mut vcpus } else { &mut others }.push(Placed { thread, name, allowed });
    }
    if vcpus.is_empty() {
        let told = system.vcpus(pid).unwrap_or_default();
        let index =
            |it: &Placed| told.iter().find(|vcpu| vcpu.thread == it.thread.number).map(|vcpu| vcpu.index);
        (vcpus, others) = others.into_iter().partition(|it| index(it).is_some());
        for it in &mut vcpus {
            it.name = format!("CPU {}", index(it).unwrap_or_default());
        }
    }
    let line = system.text(&format!("proc/{pid}/cmdline"))?.unwrap_or_default();
    let name = called(&line).map_or_else(|| format!("QEMU {pid}"), |name| format!("{name} ({pid})"));
    Ok((!others.is_empty()).then_some(Machine { pid, name, vcpus, others }))
}

/// What a machine is called: a label, and nothing else is taken from a command line.
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

/// Says which machines can't be judged, since QEMU does not say which of its threads are processors.
pub fn without_names(machines: &[Machine]) -> Option<String> {
    let names: Vec<&str> =
        machines.iter().filter(|machine| machine.vcpus.is_empty()).map(|machine| &*machine.name).collect();
    let why =
        "QEMU does not say which of its threads are processors (-name debug-threads=on, or a second monitor)";
    (!names.is_empty()).then(|| format!("{}: {why}", names.join(", ")))
}
