//! Simulations as text.

use crate::simulator::many::{Outcome, Scenario};
use crate::simulator::paper::{Scheduling, Table};
use vshmem_base::size;
use vshmem_place::topology::Topology;

/// The published table beside the model's.
pub fn paper(table: &Table) -> String {
    let mut text = String::from("vCPUs  scheduling      paper   model  misses by\n");
    for row in &table.rows {
        let (percent, points) =
            (|part: f64| 100.0 * part, |part: f64| format!("{:+.0} points", 100.0 * part));
        let published = row.published.map_or("-".into(), |it| format!("{:+.0} %", percent(it)));
        let misses = match (row.fitted, row.published) {
            (true, _) => "fitted".into(),
            (false, Some(published)) => points(row.model - published),
            (false, None) => "-".into(),
        };
        let says = if row.says.is_empty() { String::new() } else { format!("  ({})", row.says) };
        let model = format!("{:+.0} %", percent(row.model));
        let line = format!(
            "{:5}  {:14}  {published:>5}  {model:>6}  {misses}{says}",
            row.vcpus,
            name(row.scheduling)
        );
        text += &format!("{line}\n");
    }
    let it = &table.fitted;
    text += &format!(
        "\nRun times of PARSEC in a virtual machine on two sockets, against none (Han et al.), and what a model \
         says\nthat is fitted on the rows with 1 and 4 vCPUs: the hypervisor adds {:.1} %; {:.1} % of the time \
         waits for\nlocal memory; a thread uses {:.1} % of a socket's memory bandwidth; to come under another \
         cache costs {:.1} ms.\n",
        100.0 * it.hypervisor,
        100.0 * it.stall,
        100.0 * it.bandwidth,
        1000.0 * it.refill
    );
    text
}

fn name(scheduling: Scheduling) -> &'static str {
    match scheduling {
        Scheduling::Unpinned => "unpinned",
        Scheduling::Pinned => "pinned",
        Scheduling::RangeFar => "range, far",
        Scheduling::RangeNear => "range, near",
        Scheduling::NumaFirst => "numa-first",
        Scheduling::Balance => "vshmem balance",
    }
}

/// What rules have made of many machines.
pub fn many(topology: &Topology, scenario: &Scenario, outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{} machines on {} ({} cores, {} nodes), {:.0} % of the cores wanted, {:.0} s\n\n",
        scenario.machines,
        topology.source,
        topology.cores.len(),
        topology.nodes.len(),
        100.0 * scenario.load,
        scenario.seconds
    );
    text += "              slower  local  waits  beside an  siblings  moves/s  most at  memory/s\n";
    text += "                                    idle core  beside it             once\n";
    for it in outcomes {
        text += &format!(
            "{:12}  {:4.1} %  {:3.0} %  {:3.1} %     {:4.2} %    {:4.2} %  {:7.1}  {:7}  {:>8}\n",
            it.rule,
            100.0 * it.slower,
            100.0 * it.local,
            100.0 * it.waited,
            100.0 * it.waited_beside_idle,
            100.0 * it.shared_beside_idle,
            it.moves,
            it.most_moves,
            size::show(it.migrated as u64)
        );
    }
    text +=
        "\nslower: than on cores of their own, near their memory, without a hypervisor; local: time on the \
             node of\ntheir memory; waits: for a processor; siblings: of one core, though a core was idle\n";
    text
}
