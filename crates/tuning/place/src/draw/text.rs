//! A placement as text.

use super::{cache_groups, uses, Use};
use crate::topology::Topology;
use std::fmt::Write;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::plan::{Placed, Plan};

/// Columns that a line of cores takes at the most.
const WIDTH: usize = 100;
/// Characters of a machine's name that are shown on its cores.
const NAME: usize = 8;

/// A map of the cores, and each machine with the reasons for its placement.
pub fn text(topology: &Topology, plan: &Plan, taken: &CpuSet) -> String {
    let mut text = String::new();
    map(&mut text, topology, plan, taken);
    for machine in &plan.machines {
        describe(&mut text, machine);
    }
    text
}

/// Each core, and the machine that has it.
fn map(text: &mut String, topology: &Topology, plan: &Plan, taken: &CpuSet) {
    let cell = |used: &Use| match used {
        Use::Machine(index) => plan.machines[*index].name.chars().take(NAME).collect(),
        Use::Shared => "~".to_owned(),
        Use::Emulator => "*".to_owned(),
        Use::Others => "#".to_owned(),
        Use::Free => ".".to_owned(),
    };
    let cells: Vec<String> = uses(topology, plan, taken).iter().map(cell).collect();
    let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(1);
    let mut seen = None;
    for group in cache_groups(topology) {
        if seen != Some((group.package, group.node)) {
            seen = Some((group.package, group.node));
            let _ = writeln!(text, "{}", group.heading(topology));
        }
        for cores in group.cores.chunks((WIDTH / (width + 1)).max(1)) {
            let label = topology.pus(cores).to_string();
            let row: Vec<_> = cores.iter().map(|core| format!("{:width$}", cells[*core])).collect();
            let _ = writeln!(text, "  {label:12} {}", row.join(" ").trim_end());
        }
    }
    let others = if taken.is_empty() { "" } else { " # other clusters," };
    let _ =
        writeln!(text, "  . free,{others} * emulator threads, ~ shared; one line is one last-level cache\n");
}

fn describe(text: &mut String, machine: &Placed) {
    let Placed { name, guest, .. } = machine;
    let _ = writeln!(text, "{name}: {}", machine.summary());
    let _ = write!(
        text,
        "  sees {} x {} x {} (sockets, cores, threads)",
        guest.sockets, guest.cores, guest.threads
    );
    let _ = match guest.caches {
        1 => Ok(()),
        count => write!(text, ", {count} last-level caches a socket"),
    };
    let _ = match guest.nodes.len() {
        0 => writeln!(text),
        count => writeln!(text, " and {count} memory nodes"),
    };
    for why in &machine.why {
        let _ = writeln!(text, "  {why}");
    }
    for fallback in &machine.fallbacks {
        let _ = writeln!(text, "  NOT AS ASKED: {fallback}");
    }
}
