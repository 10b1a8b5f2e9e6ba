//! `vshmem place`: who would run where on a host, and why.

use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use vshmem_cluster::size;
use vshmem_place::advise::{advise, Advice};
use vshmem_place::machine::{Insist, Machine, Policy, Rules};
use vshmem_place::{draw, hwloc, place};

/// The version of what `--json` prints.
const VERSION: u32 = 1;

/// Says on which cores machines would run, where their memory would be, and why; starts and moves nothing
#[derive(Parser)]
#[command(name = "vshmem place", version, after_help = EXAMPLES)]
struct Options {
    /// Number of machines
    #[arg(short = 'n', long, default_value_t = 2, conflicts_with = "advise")]
    machines: usize,
    /// Virtual processors (vCPUs) of each machine
    #[arg(long, default_value_t = 1, conflicts_with = "advise")]
    cpus: usize,
    /// Memory of each machine
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse, conflicts_with = "advise")]
    memory: u64,
    /// Where vCPUs may run
    #[arg(long, value_enum, default_value_t = Chosen::NumaFirst, conflicts_with = "advise")]
    policy: Chosen,
    /// What must be had as it is asked for: else the next best is taken, and named
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "advise")]
    strict: Vec<Strict>,
    /// Let vCPUs share cores as SMT siblings
    #[arg(long)]
    smt: bool,
    /// Cores of each memory node that no vCPU gets
    #[arg(long, value_name = "CORES", default_value_t = 0)]
    reserve: usize,
    /// Another host: a file that 'lstopo FILE.xml' wrote, or hwloc's synthetic description
    #[arg(long, value_name = "FILE|TEXT")]
    topology: Option<String>,
    /// Write an image, too
    #[arg(long, value_name = "FILE", conflicts_with = "advise")]
    svg: Option<PathBuf>,
    /// Advise on how many machines of what size, for so many ranks of a parallel program
    #[arg(long, requires = "ranks")]
    advise: bool,
    /// Ranks to advise on
    #[arg(long, value_name = "N", requires = "advise", value_parser = clap::value_parser!(u32).range(1..=65536))]
    ranks: Option<u32>,
    /// Memory of each rank
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse, requires = "advise")]
    rank_memory: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  vshmem place -n 4 --cpus 2 --memory 4G
  vshmem place -n 3 --cpus 8 --strict cores,memory --reserve 1 --svg place.svg
  vshmem place -n 2 --cpus 12 --topology 'pack:2 [numa(memory=68719476736)] l3:2 core:8 pu:2'
  vshmem place --advise --ranks 32 --topology cluster-node.xml

Policies:
  unpinned      the kernel's scheduler decides
  pinned        a core for each vCPU, in the order of cores
  range-pinned  any core of the socket with the most room
  numa-first    a core for each vCPU, on as few memory nodes as can be, near to each other

The exit code is 1 if machines can't be placed as they must be.";

#[derive(Clone, Copy, ValueEnum)]
enum Chosen {
    Unpinned,
    Pinned,
    RangePinned,
    NumaFirst,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Strict {
    /// Cores for vCPUs, and others for emulator threads
    Cores,
    /// Memory on the nodes of these cores
    Memory,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a, T> {
    version: u32,
    topology: &'a str,
    #[serde(flatten)]
    body: T,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("vshmem place: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let topology = hwloc::read(options.topology.as_deref())?;
    if let Some(ranks) = options.ranks {
        let advice = advise(&topology, ranks as usize, options.rank_memory, options.smt, options.reserve);
        return match options.json {
            true => print(&json(&topology.source, &advice)),
            false => print(&advice_text(&advice)),
        };
    }
    let plan = place(&topology, &machines(options), options.reserve).map_err(|why| why.to_string())?;
    if let Some(path) = &options.svg {
        let failed = |why| format!("could not write {}: {why}", path.display());
        std::fs::write(path, draw::svg(&topology, &plan)).map_err(failed)?;
    }
    match options.json {
        true => print(&json(&topology.source, &plan)),
        false => print(&draw::text(&topology, &plan)),
    }
}

fn machines(options: &Options) -> Vec<Machine> {
    let insist = |what| match options.strict.contains(&what) {
        true => Insist::Strict,
        false => Insist::Preferred,
    };
    let policy = match options.policy {
        Chosen::Unpinned => Policy::Unpinned,
        Chosen::Pinned => Policy::Pinned,
        Chosen::RangePinned => Policy::RangePinned,
        Chosen::NumaFirst => Policy::NumaFirst,
    };
    let rules =
        Rules { policy, cores: insist(Strict::Cores), memory: insist(Strict::Memory), smt: options.smt };
    let machine =
        |index| Machine { name: format!("vm{index}"), cpus: options.cpus, memory: options.memory, rules };
    (0..options.machines).map(machine).collect()
}

fn json<T: Serialize>(topology: &str, body: T) -> String {
    let document = Document { version: VERSION, topology, body };
    serde_json::to_string_pretty(&document).expect("it is plain data") + "\n"
}

fn advice_text(advice: &Advice) -> String {
    let mut text = String::from("     machines  vCPUs  nodes  apart\n");
    for (index, division) in advice.divisions.iter().enumerate() {
        let mark = if index == advice.best && division.lacks.is_none() { "best" } else { "" };
        let (machines, cpus, apart) = (division.machines, division.cpus, 100.0 * division.apart);
        text += &match &division.lacks {
            None => format!("{mark:4} {machines:8} {cpus:6} {:6} {apart:4.0} %\n", division.nodes),
            Some(why) => format!("{mark:4} {machines:8} {cpus:6}        {why}\n"),
        };
    }
    text += "nodes: memory nodes of the widest machine; apart: pairs of ranks in different machines\n\n";
    for why in &advice.why {
        text += &format!("{why}\n");
    }
    text
}

/// Prints text. It is not an error if nobody reads it.
fn print(text: &str) -> Result<(), String> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("could not write the answer: {why}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_consistent() {
        Options::command().debug_assert();
    }
}
