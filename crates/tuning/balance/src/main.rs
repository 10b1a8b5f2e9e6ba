//! `vshmem balance`: keeps running machines near their memory.

use clap::Parser;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use vshmem_balance::host::live;
use vshmem_balance::INTERVAL;
use vshmem_base::document::schema;
use vshmem_base::{error, Error, Result};
use vshmem_place::hwloc;
use vshmem_place::topology::Topology;

/// Keeps running machines near their memory (NUMA-first)
#[derive(Parser)]
#[command(name = "vshmem balance", version, after_help = EXAMPLES)]
struct Options {
    /// Tell of each move, and why
    #[arg(long, conflicts_with_all = ["restore", "json"])]
    explain: bool,
    /// Decide, and move nothing
    #[arg(long, conflicts_with = "restore")]
    dry_run: bool,
    /// Decide once, and leave what was moved
    #[arg(long, conflicts_with = "restore")]
    once: bool,
    /// Put back what one that was killed, or decided once, has moved
    #[arg(long)]
    restore: bool,
    /// Seconds between decisions
    #[arg(long, value_name = "SECONDS", default_value_t = INTERVAL, value_parser = positive)]
    interval: f64,
    /// What to take this host for: a file that 'lstopo FILE.xml' wrote, or hwloc's synthetic description
    #[arg(long, value_name = "FILE|TEXT")]
    topology: Option<String>,
    /// Print JSON: a line for each step
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
  vshmem balance --once --dry-run --explain --topology 'pack:2 [numa(memory=68719476736)] l3:2 core:8 pu:2'

It works until it is interrupted, and puts everything back where it was.";

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
    if options.schema {
        return print(&json_schema()).map(drop);
    }
    if options.restore {
        return print(&live::restore(topology(None)?)?).map(drop);
    }
    let Options { interval, once, dry_run, explain, json, .. } = *options;
    let how = live::Options { interval, once, dry_run, explain, json };
    live::run(topology(options.topology.as_deref())?, how, &mut print)
}

fn topology(source: Option<&str>) -> Result<Topology> {
    hwloc::read(source).map_err(Error::new)
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
fn json_schema() -> String {
    serde_json::to_string_pretty(&schema::<live::StepReport>()).expect("it is plain data") + "\n"
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
    fn the_schema_is_written_down() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/schemas/balance.json");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        assert!(
            written == json_schema(),
            "what is printed has changed: see docs/json.md, and write {file} anew by vshmem balance --schema"
        );
    }
}
