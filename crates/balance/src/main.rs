//! `vshmem balance`: keeps running machines near their memory.

use clap::{Parser, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use vshmem_balance::host::live;
use vshmem_balance::simulator::many::{self, Scenario};
use vshmem_balance::simulator::paper;
use vshmem_balance::{report, INTERVAL};
use vshmem_base::document::{schema, Document};
use vshmem_base::{error, Error, Result};
use vshmem_place::hwloc;
use vshmem_place::topology::Topology;

/// Keeps running machines near their memory (NUMA-first)
#[derive(Parser)]
#[command(name = "vshmem balance", version, after_help = EXAMPLES)]
struct Options {
    /// Tell of each move, and why
    #[arg(long, conflicts_with_all = ["simulate", "restore", "json"])]
    explain: bool,
    /// Decide, and move nothing
    #[arg(long, conflicts_with_all = ["simulate", "restore"])]
    dry_run: bool,
    /// Decide once, and leave what was moved
    #[arg(long, conflicts_with_all = ["simulate", "restore"])]
    once: bool,
    /// Put back what one that was killed, or decided once, has moved
    #[arg(long, conflicts_with = "simulate")]
    restore: bool,
    /// Seconds between decisions
    #[arg(long, value_name = "SECONDS", default_value_t = INTERVAL, value_parser = positive)]
    interval: f64,
    /// Simulate, and touch no machine
    #[arg(long, value_enum)]
    simulate: Option<Simulation>,
    /// The host to simulate machines on, or what to take this one for: a file that 'lstopo FILE.xml' wrote,
    /// or hwloc's synthetic description
    #[arg(long, value_name = "FILE|TEXT")]
    topology: Option<String>,
    /// Machines to simulate
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "simulate",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    machines: u32,
    /// vCPUs that are active on average, as part of the cores
    #[arg(long, value_name = "PART", default_value_t = 0.75, requires = "simulate", value_parser = positive)]
    load: f64,
    /// Seconds to simulate
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, requires = "simulate", value_parser = positive)]
    seconds: f64,
    /// What chance depends on
    #[arg(long, value_name = "N", default_value_t = 1, requires = "simulate")]
    seed: u64,
    /// Print JSON: a line for each step, or what was simulated
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of what --json prints
    #[arg(long, conflicts_with_all = ["json", "explain", "restore"])]
    schema: bool,
}

const EXAMPLES: &str = "\
Examples:
  vshmem balance --explain
  vshmem balance --once --dry-run --explain
  vshmem balance --simulate paper
  vshmem balance --simulate host --machines 40 --topology 'pack:2 [numa(memory=68719476736)] l3:2 core:8 pu:2'

It works until it is interrupted, and puts everything back where it was.";

#[derive(Clone, Copy, ValueEnum)]
enum Simulation {
    /// The table of Han et al.: fitted on some rows, and what follows for the others
    Paper,
    /// Many machines on a host: the kernel alone, a rule like ESXi's, and NUMA-first
    Host,
}

/// What `--simulate host --json` prints.
#[derive(Serialize, JsonSchema)]
struct Many<'a> {
    /// The host.
    topology: &'a str,
    /// How many machines it has.
    machines: u32,
    /// vCPUs that are active on average, as part of the cores.
    load: f64,
    /// Simulated seconds.
    seconds: f64,
    /// What each rule has made of it.
    rules: &'a [many::Outcome],
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("vshmem balance: {why}");
            ExitCode::from(why.exit_code())
        }
    }
}

fn run(options: &Options) -> Result<()> {
    match options.simulate {
        simulation if options.schema => print(&schema_of(simulation)).map(drop),
        Some(Simulation::Paper) => {
            let table = paper::table(options.seed);
            match options.json {
                true => print(&Document::text(&table)),
                false => print(&report::paper(&table)),
            }
            .map(drop)
        }
        Some(Simulation::Host) => simulate_host(options),
        None if options.restore => print(&live::restore(topology(None)?)?).map(drop),
        None => {
            let Options { interval, once, dry_run, explain, json, .. } = *options;
            let how = live::Options { interval, once, dry_run, explain, json };
            live::run(topology(options.topology.as_deref())?, how, &mut print)
        }
    }
}

fn topology(source: Option<&str>) -> Result<Topology> {
    hwloc::read(source).map_err(Error::new)
}

fn simulate_host(options: &Options) -> Result<()> {
    let topology = match &options.topology {
        Some(source) => topology(Some(source))?,
        None => many::large_host(),
    };
    let Options { load, seconds, interval, seed, .. } = *options;
    let scenario = Scenario { machines: options.machines as usize, load, seconds, interval, seed };
    let rules = &many::compare(&topology, &scenario);
    let text = match options.json {
        true => {
            let topology = &topology.source;
            Document::text(Many { topology, machines: options.machines, load, seconds, rules })
        }
        false => report::many(&topology, &scenario, rules),
    };
    print(&text).map(drop)
}

/// A number above 0.
fn positive(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().map_err(|why| why.to_string())?;
    match number.is_finite() && number > 0.0 {
        true => Ok(number),
        false => Err("it must be more than 0".into()),
    }
}

/// The schema of what is printed with `--json`.
fn schema_of(simulation: Option<Simulation>) -> String {
    let schema = match simulation {
        None => schema::<live::Told>(),
        Some(Simulation::Paper) => schema::<paper::Table>(),
        Some(Simulation::Host) => schema::<Many<'_>>(),
    };
    serde_json::to_string_pretty(&schema).expect("it is plain data") + "\n"
}

/// Prints text; false if nobody reads it any more.
fn print(text: &str) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(error!("could not write the answer: {why}")),
        Ok(()) => Ok(true),
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

    #[test]
    fn shapes_are_written_down() {
        let all = [
            ("balance", None, ""),
            ("balance-paper", Some(Simulation::Paper), " --simulate paper"),
            ("balance-host", Some(Simulation::Host), " --simulate host"),
        ];
        for (name, simulation, option) in all {
            let file = format!("{}/../../docs/schemas/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let written = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                written == schema_of(simulation),
                "what is printed has changed: see docs/json.md, and write {file} anew by vshmem balance --schema{option}"
            );
        }
    }
}
