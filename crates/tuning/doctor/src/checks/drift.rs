//! Drift: changes that others make after `--fix`.

use super::rivals::{rivals, Rival};
use crate::check::Check;
use crate::finding::{Change, Class, Costs, Verdict};
use crate::look::Look;
use crate::setting::Setting;
use crate::system::Unseen;

/// Settings that did not stay.
pub const DRIFT: Check = Check {
    id: "drift",
    title: "What --fix has set stays so",
    about: "Others set the same things: tuned by its profile, numad, irqbalance, a unit of systemd that is loaded anew \
        (daemon-reload writes cgroups' values again). The check compares what --fix has set with what is there, and names \
        those that run and are known to set the like.",
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
    for Rival { name, changes, .. } in &rivals {
        look.note(format!("a process {name}"), format!("changes {changes}"));
    }
    let mut changes = Vec::new();
    for entry in &look.saved.entries {
        let now = entry.setting.current(look.system).ok().flatten();
        if let Some(from) = now.filter(|now| *now != entry.set) {
            changes.push(Change { setting: entry.setting.clone(), from, to: entry.set.clone() });
        }
    }
    let names: Vec<&str> = rivals.iter().map(|rival| rival.name).collect();
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
    let mut suspects: Vec<&str> =
        changes.iter().flat_map(|change| suspects(&change.setting, &rivals)).collect();
    suspects.sort_unstable();
    suspects.dedup();
    let suspects = match &*suspects {
        [] => "no program that is known for it runs".into(),
        them => them.join(", "),
    };
    Ok(Verdict::Costs(Costs {
        why: format!("Settings that somebody has changed since --fix: {} ({suspects}).", changes.len()),
        estimate: "that of the finding which came back".into(),
        ..Costs::default()
    }))
}

/// The program that is known to change a setting, of those that run. systemd writes what it knows of a
/// control group whenever its units are loaded anew.
fn suspects(setting: &Setting, running: &[Rival]) -> Vec<&'static str> {
    let path = setting.to_string();
    let known: &[&str] = match setting {
        Setting::Affinity(_) => &["numad"],
        _ if path.starts_with("/sys/fs/cgroup/") => return vec!["systemd (daemon-reload)"],
        _ if path.starts_with("/proc/irq/") => &["irqbalance"],
        _ if path.contains("/cpufreq/") => &["tuned", "power-profiles-", "auto-cpufreq"],
        _ if path.contains("/ksm/") => &["ksmtuned", "tuned"],
        _ => &["tuned"],
    };
    running.iter().map(|rival| rival.name).filter(|name| known.contains(name)).collect()
}
