//! A placement as text.

use super::{groups, uses, Use};
use crate::plan::{Placed, Plan};
use crate::topology::Topology;
use std::fmt::Write;
use vshmem_cluster::size;

/// Columns that a line of cores takes at the most.
const WIDTH: usize = 100;
/// Characters of a machine's name that are shown on its cores.
const NAME: usize = 8;

/// Who runs where, and why.
pub fn text(topology: &Topology, plan: &Plan) -> String {
    let mut text = String::new();
    map(&mut text, topology, plan);
    for machine in &plan.machines {
        describe(&mut text, machine);
    }
    text
}

/// Each core, and who has it.
fn map(text: &mut String, topology: &Topology, plan: &Plan) {
    let cell = |used: &Use| match used {
        Use::Machine(index) => plan.machines[*index].name.chars().take(NAME).collect(),
        Use::Shared => "~".to_owned(),
        Use::Emulator => "*".to_owned(),
        Use::Free => ".".to_owned(),
    };
    let cells: Vec<String> = uses(topology, plan).iter().map(cell).collect();
    let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(1);
    let mut seen = None;
    for group in groups(topology) {
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
    let _ = writeln!(text, "  . free, * emulator threads, ~ shared; one line is one last-level cache\n");
}

fn describe(text: &mut String, machine: &Placed) {
    let Placed { name, vcpus, emulator, nodes, bound, guest, .. } = machine;
    let pinned = vcpus.iter().all(|set| set.len() == 1);
    let on = match (pinned, vcpus.first()) {
        (true, _) => {
            vcpus.iter().flat_map(|set| set.iter()).map(|pu| pu.to_string()).collect::<Vec<_>>().join(" ")
        }
        (false, Some(set)) => format!("any of {set}"),
        (false, None) => String::new(),
    };
    let _ = writeln!(text, "{name}: vCPUs on {on}; emulator threads on {emulator}");
    let memory = size::show(machine.memory);
    let _ = match (nodes.len(), bound) {
        (0, _) => writeln!(text, "  {memory} from any node"),
        (_, true) => writeln!(text, "  {memory} from node {nodes}"),
        (_, false) => writeln!(text, "  {memory} from node {nodes} first"),
    };
    let _ = write!(
        text,
        "  sees {} x {} x {} (sockets, cores, threads)",
        guest.sockets, guest.cores, guest.threads
    );
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
