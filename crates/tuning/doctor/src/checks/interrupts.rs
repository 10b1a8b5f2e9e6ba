//! Interrupts on the cores of machines.

use super::cores::bound;
use crate::check::Check;
use crate::cpus;
use crate::finding::{Change, Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::machines;
use crate::setting::Setting;
use crate::system::{System, Unseen};

/// Devices' interrupts.
pub const INTERRUPTS: Check = Check {
    id: "interrupts",
    title: "Devices of the host don't interrupt bound virtual processors",
    about: "An interrupt of a device of the host on a core to which a virtual processor is bound takes the core from the \
        machine. Only those count that have come since the host was booted. Where irqbalance runs, it moves them again: \
        IRQBALANCE_BANNED_CPULIST keeps it off cores.",
    by_hand: "cat /proc/interrupts; grep . /proc/irq/*/effective_affinity_list",
    remedy: "send them to the other cores",
    class: Class::Live,
    risk: "the other cores have more to do; a network card's queue may be far from its memory",
    source: "Linux, Documentation/core-api/irq/irq-affinity.rst; Song, Chen and Zang 2011, 3.3",
    causes: &["rivals"],
    look: interrupts,
};

fn interrupts(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let bound = bound(&machines(look)?);
    if bound.is_empty() {
        return Ok(Verdict::fine("no virtual processor of QEMU is bound to a core here"));
    }
    let others = &look.online()? - &bound;
    if others.is_empty() {
        return Ok(Verdict::fine("virtual processors have all cores: interrupts can't go elsewhere"));
    }
    let table = look.system.need("proc/interrupts")?;
    let mut changes = Vec::new();
    for number in look.system.numbers("proc/irq")? {
        let at = format!("proc/irq/{number}");
        let effective = look.system.text(&format!("{at}/effective_affinity_list"))?.unwrap_or_default();
        let hit = &cpus::parse(&effective) & &bound;
        if hit.is_empty() || !hit.iter().any(|&cpu| came(&table, number, cpu)) {
            continue;
        }
        look.note(format!("/{at}/effective_affinity_list"), effective.trim());
        changes.extend(elsewhere(look.system, &at, &cpus::show(&others)));
    }
    if changes.is_empty() {
        return Ok(Verdict::fine("interrupts of devices go to other cores"));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("Interrupts that come to cores of virtual processors: {}.", changes.len()),
        estimate: "5 to 20 µs of the machine's time for each, and what it finds of its caches afterwards"
            .into(),
        changes,
        ..Costs::default()
    }))
}

fn elsewhere(system: &System, at: &str, others: &str) -> Option<Change> {
    let setting = Setting::file(&format!("{at}/smp_affinity_list"));
    let from = setting.current(system).ok()??;
    Some(Change { setting, from, to: others.into() })
}

/// True if an interrupt ever came to a processor. The first line names the columns.
fn came(table: &str, number: u32, cpu: usize) -> bool {
    let mut lines = table.lines();
    let column = lines.next().and_then(|heading| {
        heading.split_whitespace().position(|name| name.strip_prefix("CPU") == Some(&*cpu.to_string()))
    });
    let row = lines.find_map(|line| line.trim_start().strip_prefix(&format!("{number}:")));
    let count =
        row.zip(column).and_then(|(row, column)| row.split_whitespace().nth(column)?.parse::<u64>().ok());
    count.is_some_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_are_found_by_the_heading() {
        let table = "           CPU0       CPU2\n  9:          0          3  IO-APIC  9-fasteoi  acpi\n";
        assert!(super::came(table, 9, 2) && !super::came(table, 9, 0));
        assert!(!super::came(table, 9, 1) && !super::came(table, 8, 2));
    }
}
