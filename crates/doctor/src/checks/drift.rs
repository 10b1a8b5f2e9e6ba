//! What others change after `--fix`.

use crate::check::Check;
use crate::finding::{Change, Class, Costs, Verdict};
use crate::look::Look;
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

/// Settings that did not stay.
pub const DRIFT: Check = Check {
    id: "drift",
    title: "What --fix has set stays so",
    about: "Others set the same things: tuned by its profile, numad, irqbalance, a unit of systemd that is loaded anew \
        (daemon-reload writes cgroups' values again). The check compares what --fix has set with what is there, and names \
        the programs of that kind that run.",
    by_hand: "ps -C tuned,numad,irqbalance,ksmtuned; tuned-adm active",
    remedy: "have the rival set it (a tuned profile, a unit's CPUAffinity= and AllowedCPUs=), or stop it, and --fix again",
    class: Class::Live,
    risk: "the rival may do more than that one thing",
    source: "tuned(8), numad(8), irqbalance(1), systemd.resource-control(5)",
    causes: &[],
    look: drift,
};

fn drift(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let rivals = rivals(look.system)?;
    for (name, what) in &rivals {
        look.note(format!("a process {name}"), format!("changes {what}"));
    }
    let mut changes = Vec::new();
    for entry in &look.saved.entries {
        let now = entry.setting.current(look.system).ok().flatten();
        if let Some(from) = now.filter(|now| *now != entry.set) {
            changes.push(Change { setting: entry.setting.clone(), from, to: entry.set.clone() });
        }
    }
    let names: Vec<&str> = rivals.iter().map(|(name, _)| *name).collect();
    if changes.is_empty() {
        let kept = match look.saved.entries.len() {
            0 => "nothing was set by --fix since boot".into(),
            n => format!("what --fix has set is as it was left ({n})"),
        };
        let running =
            if names.is_empty() { String::new() } else { format!("; {} may change them", names.join(", ")) };
        return Ok(Verdict::fine(kept + &running));
    }
    for change in &changes {
        look.note(change.setting.to_string(), format!("{}, where --fix left {}", change.from, change.to));
    }
    let suspects =
        if names.is_empty() { "no program that is known for it runs".into() } else { names.join(", ") };
    Ok(Verdict::Costs(Costs {
        why: format!("Settings that somebody has changed since --fix: {} ({suspects}).", changes.len()),
        estimate: "that of the finding which came back".into(),
        ..Costs::default()
    }))
}

/// Those that run, by the names of processes (15 characters of them).
fn rivals(system: &System) -> Result<Vec<(&'static str, &'static str)>, Unseen> {
    let mut found = Vec::new();
    for pid in system.numbers("proc")? {
        let comm = system.text(&format!("proc/{pid}/comm"))?.unwrap_or_default();
        let rival = RIVALS.iter().find(|(name, _)| comm.trim() == *name);
        found.extend(rival.filter(|rival| !found.contains(*rival)).copied());
    }
    Ok(found)
}
