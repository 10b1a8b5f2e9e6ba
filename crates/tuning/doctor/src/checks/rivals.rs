//! Programs that place machines and interrupts, too.

use super::cores::bound;
use crate::check::Check;
use crate::cpus;
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::machines;
use crate::system::{System, Unseen};

/// Programs that change what is checked here, and what they are known to change.
const RIVALS: [(&str, &str); 6] = [
    ("tuned", "governors, huge pages, KSM, timers"),
    ("numad", "where machines' memory and processors are"),
    ("irqbalance", "interrupts"),
    ("ksmtuned", "KSM"),
    ("power-profiles-", "governors"),
    ("auto-cpufreq", "governors"),
];

/// A rival that runs.
pub struct Rival {
    /// The name of its process.
    pub name: &'static str,
    /// The settings that it is known to change.
    pub changes: &'static str,
    pid: u32,
}

/// The rivals that run, by the names of processes (15 characters of them).
pub fn rivals(system: &System) -> Result<Vec<Rival>, Unseen> {
    let mut found: Vec<Rival> = Vec::new();
    for pid in system.numbers("proc")? {
        let comm = system.text(&format!("proc/{pid}/comm"))?.unwrap_or_default();
        let rival = RIVALS.iter().find(|(name, _)| comm.trim() == *name);
        let rival = rival.filter(|(name, _)| found.iter().all(|other| other.name != *name));
        found.extend(rival.map(|(name, changes)| Rival { name, changes, pid }));
    }
    Ok(found)
}

/// Two that place the same things.
pub const PLACES: Check = Check {
    id: "rivals",
    title: "Nobody else places what is placed",
    about: "numad binds processes to nodes and moves their memory, also machines that somebody has bound already. irqbalance \
        spreads interrupts over all processors every ten seconds, also to those of bound virtual processors, unless it is \
        told which to leave alone or they are isolated (isolcpus, nohz_full). What it was told is read from its environment.",
    by_hand: "pgrep -l 'numad|irqbalance'; tr '\\0' '\\n' </proc/$(pgrep irqbalance)/environ | grep BANNED",
    remedy: "stop numad; tell irqbalance the cores to leave alone (IRQBALANCE_BANNED_CPULIST in its configuration)",
    class: Class::Live,
    risk: "processes that nobody has placed are no longer placed; the other cores have more interrupts",
    source: "numad(8), irqbalance(1)",
    causes: &[],
    look: places,
};

fn places(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let bound = bound(&machines(look)?);
    if bound.is_empty() {
        return Ok(Verdict::fine("no virtual processor of QEMU is bound to a core here"));
    }
    let mut worse = Vec::new();
    for rival in rivals(look.system)? {
        match rival.name {
            "numad" => worse.push("numad may bind machines otherwise".to_owned()),
            "irqbalance" => {
                let open = &bound - &left_alone(look, rival.pid)?;
                if !open.is_empty() {
                    worse.push(format!("irqbalance may send interrupts to the cores {}", cpus::show(&open)));
                }
            }
            _ => continue,
        }
        look.note(format!("process {}", rival.pid), rival.name);
    }
    if worse.is_empty() {
        return Ok(Verdict::fine("neither numad runs, nor an irqbalance that does not leave them alone"));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("Virtual processors are bound to cores, and {}.", worse.join("; ")),
        estimate: "remote memory, or 5 to 20 µs of the machine's time for each interrupt".into(),
        ..Costs::default()
    }))
}

/// The processors to which irqbalance sends nothing: those that it was told, or else those that are isolated.
fn left_alone(look: &mut Look<'_>, pid: u32) -> Result<cpus::Cpus, Unseen> {
    let environment = look.system.text(&format!("proc/{pid}/environ"))?.unwrap_or_default();
    let told = environment.split('\0').find_map(|line| line.strip_prefix("IRQBALANCE_BANNED_CPULIST="));
    if let Some(list) = told {
        look.note(format!("/proc/{pid}/environ, IRQBALANCE_BANNED_CPULIST"), list);
        return Ok(cpus::parse(list));
    }
    let mut alone = cpus::Cpus::new();
    for list in ["isolated", "nohz_full"] {
        let path = format!("sys/devices/system/cpu/{list}");
        alone.extend(cpus::parse(&look.text(&path)?.unwrap_or_default()));
    }
    Ok(alone)
}
