//! The machines that are to be placed: of options, of a cluster's file, or of a request of `vshmem up`.

use crate::options::{Options, Strict};
use std::io::Read;
use std::path::Path;
use vshmem_base::{error, Explain, Result};
use vshmem_cluster::description::cluster::{Description, Placement};
use vshmem_cluster::description::file::File;
use vshmem_cluster::host::{devices, pages, placing};
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::pages::Pages;
use vshmem_placement::request::{Machine, Request, Taken, VERSION};
use vshmem_placement::rules::{Insist, Memory, Rules};

/// Machines that are to be placed on a host.
pub struct Wanted {
    pub machines: Vec<Machine>,
    /// Processors and memory that others have.
    pub taken: Taken,
    /// Lines for the user.
    pub notes: String,
}

impl Wanted {
    /// The machines that options ask for.
    pub fn of(options: &Options) -> Result<Wanted> {
        if options.request {
            return requested();
        }
        let chosen = placement(options);
        let (machines, taken, notes) = match &options.file {
            Some(file) => described(file, chosen, options.topology.is_some())?,
            None => (alike(options, chosen.unwrap_or_default().rules()), Taken::default(), String::new()),
        };
        Ok(Wanted { machines, taken, notes })
    }
}

/// The placement that options ask for, if they do.
fn placement(options: &Options) -> Option<Placement> {
    let memory = match options.strict.contains(&Strict::Memory) {
        true => Some(Memory::Strict),
        false => options.interleave.then_some(Memory::Interleave),
    };
    let placement = Placement {
        policy: options.policy,
        cores: options.strict.contains(&Strict::Cores).then_some(Insist::Strict),
        memory,
        devices: options.strict.contains(&Strict::Devices).then_some(Insist::Strict),
        smt: options.smt,
        reserve_cores: options.reserve_cores,
    };
    (placement != Placement::default()).then_some(placement)
}

fn alike(options: &Options, rules: Rules) -> Vec<Machine> {
    let machine = |index| machine(format!("vm{index}"), options.cpus, options.memory, rules);
    (0..options.machines).map(machine).collect()
}

fn machine(name: String, cpus: u32, memory: u64, rules: Rules) -> Machine {
    Machine { name, cpus: cpus as usize, memory, page: 0, near: CpuSet::default(), rules }
}

/// The machines of a file, what others have of this host if it is this one, and a note.
fn described(
    path: &Path,
    chosen: Option<Placement>,
    elsewhere: bool,
) -> Result<(Vec<Machine>, Taken, String)> {
    let file = File::read(path).map_err(|why| if why.exit_code() == 2 { why } else { why.code(1) })?;
    let name = std::env::var("VSHMEM_CLUSTER").ok();
    let of_options = Description { name, placement: chosen, ..Description::default() };
    let description = file.description.clone().overridden_by(of_options);
    let (_, cluster) = description.resolve().map_err(|fault| file.explain(fault))?;
    let rules = cluster.placement.unwrap_or_default();
    let mut taken = Taken::default();
    if !elsewhere {
        taken = placing::taken(&cluster.cluster)?;
        taken.pages_left = pages::left_by_others(&cluster.cluster)?;
    }
    // Devices are those of this host.
    let near = |wants: &[_]| if elsewhere { CpuSet::default() } else { devices::near(wants) };
    let machines = cluster.machines.into_iter().map(|it| {
        let (near, page) = (near(&it.devices), page(it.pages, it.memory, cluster.pages.insist, &taken));
        Machine { near, page, ..machine(it.name, it.cpus, it.memory, rules) }
    });
    let machines: Vec<_> = machines.collect();
    let notes = match file.description.placement {
        Some(_) => String::new(),
        None => format!(
            "{} has no [placement]: vshmem up pins each vCPU to a core, if there are enough, and no memory.\n",
            path.display()
        ),
    };
    Ok((machines, taken, notes))
}

/// The size of the reserved pages that a machine's memory comes in, or 0: where they are preferred, and there
/// are too few on all nodes together, it comes in others.
fn page(wanted: Option<Pages>, memory: u64, insist: Insist, taken: &Taken) -> u64 {
    let Some(size) = wanted.and_then(Pages::reserved) else { return 0 };
    let left = taken.pages_left.get(&size).map(|by_node| by_node.values().sum::<u64>());
    match insist == Insist::Preferred && left.is_some_and(|left| left < memory) {
        true => 0,
        false => size,
    }
}

/// The machines of the request on standard input.
fn requested() -> Result<Wanted> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).explain(|| "could not read the request".into())?;
    let request: Request =
        serde_json::from_str(&text).map_err(|why| error!("the request can't be understood: {why}"))?;
    if request.version != VERSION {
        return Err(error!("the request has version {}, and this program knows {VERSION}", request.version));
    }
    Ok(Wanted { machines: request.machines, taken: request.taken, notes: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_as_much_memory_as_up_gives_them() {
        use clap::Parser;
        use vshmem_cluster::description::machines::DEFAULT_MEMORY;
        assert_eq!(Options::parse_from(["place"]).memory, DEFAULT_MEMORY.0);
    }

    #[test]
    fn a_machine_that_only_prefers_its_pages_does_without() {
        let taken =
            Taken { pages_left: [(2 << 20, [(0, 8 << 20), (1, 8 << 20)].into())].into(), ..Taken::default() };
        let page = |memory, insist| page(Some(Pages::TwoMib), memory, insist, &taken);
        assert_eq!(page(16 << 20, Insist::Preferred), 2 << 20);
        assert_eq!(page(32 << 20, Insist::Preferred), 0);
        assert_eq!(page(32 << 20, Insist::Strict), 2 << 20);
        // Of other hosts it is not known.
        assert_eq!(super::page(Some(Pages::OneGib), 1 << 40, Insist::Preferred, &taken), 1 << 30);
        assert_eq!(super::page(Some(Pages::Transparent), 1 << 40, Insist::Strict, &taken), 0);
    }
}
