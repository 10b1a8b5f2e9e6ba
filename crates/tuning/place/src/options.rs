//! The options of `vshmem place`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use vshmem_base::size;
use vshmem_placement::rules::Policy;

/// Says on which cores machines would run, where their memory would be, and why; starts and moves nothing
#[derive(Parser)]
#[command(name = "vshmem place", version, after_help = EXAMPLES)]
pub struct Options {
    /// The file of a cluster (TOML): its machines, and how it has them placed
    #[arg(conflicts_with_all = ["machines", "cpus", "memory", "advise"])]
    pub file: Option<PathBuf>,
    /// Number of machines
    #[arg(short = 'n', long, default_value_t = 2, conflicts_with = "advise")]
    pub machines: usize,
    /// Virtual processors (vCPUs) of each machine
    #[arg(long, default_value_t = 1, conflicts_with = "advise")]
    pub cpus: u32,
    /// Memory of each machine
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size::parse, conflicts_with = "advise")]
    pub memory: u64,
    /// Where vCPUs may run [default: the file's, or numa-first]
    #[arg(long, value_parser = policies(), conflicts_with = "advise")]
    pub policy: Option<Policy>,
    /// What must be had as it is asked for: else the next best is taken, and named
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "advise")]
    pub strict: Vec<Strict>,
    /// Take memory from all nodes by turns
    #[arg(long, conflicts_with = "advise")]
    pub interleave: bool,
    /// Let vCPUs share cores as SMT siblings
    #[arg(long)]
    pub smt: bool,
    /// Cores of each memory node that no pinned vCPU gets [default: the file's, or 0]
    #[arg(long, value_name = "CORES")]
    pub reserve_cores: Option<u32>,
    /// Another host: a file that 'lstopo FILE.xml' wrote, or hwloc's synthetic description
    #[arg(long, value_name = "FILE|TEXT")]
    pub topology: Option<String>,
    /// Write an image, too
    #[arg(long, value_name = "FILE", conflicts_with = "advise")]
    pub svg: Option<PathBuf>,
    /// Advise on how many machines of what size, for so many ranks of a parallel program
    #[arg(long, requires = "ranks")]
    pub advise: bool,
    /// Ranks to advise on
    #[arg(long, value_name = "N", requires = "advise", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub ranks: Option<u32>,
    /// Memory of each rank
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse, requires = "advise")]
    pub rank_memory: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Read from standard input what is to be placed, as vshmem up asks for it
    #[arg(long, hide = true, conflicts_with_all = ["file", "machines", "cpus", "memory", "policy", "strict", "interleave", "smt", "reserve_cores", "advise"])]
    pub request: bool,
}

const EXAMPLES: &str = "\
Examples:
  vshmem place cluster.toml
  vshmem place cluster.toml --topology big.xml --svg place.svg
  vshmem place -n 4 --cpus 2 --memory 4G
  vshmem place -n 3 --cpus 8 --strict cores,memory --reserve-cores 1
  vshmem place -n 2 --cpus 12 --topology 'pack:2 [numa(memory=68719476736)] l3:2 core:8 pu:2'
  vshmem place --advise --ranks 32 --topology cluster-node.xml

Policies:
  unpinned      the kernel's scheduler decides
  pinned        a core for each vCPU, in the order of cores
  range-pinned  any core of the socket with the most room
  numa-first    a core for each vCPU, on as few nodes as can be, near to each other

What machines of your other clusters have of this host is left out for a file.
The exit code is 1 if machines can't be placed as they must be.";

/// Values of `--policy`.
fn policies() -> impl TypedValueParser<Value = Policy> {
    let names = Policy::ALL.map(|(name, _)| name);
    PossibleValuesParser::new(names).try_map(|name| Policy::named(&name).ok_or("there is no such policy"))
}

/// A part of a placement that must be had as it is asked for.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Strict {
    /// Cores for vCPUs, and others for emulator threads
    Cores,
    /// Memory on the nodes of these cores
    Memory,
    /// Cores near to the machine's devices
    Devices,
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
