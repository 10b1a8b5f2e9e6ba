//! `vshmem place`: says where machines would run on a host, and why.

mod options;
mod wanted;

use clap::Parser;
use options::Options;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use vshmem_base::{error, Error, Explain, Result};
use vshmem_place::advise::{advise, Advice};
use vshmem_place::{draw, hwloc, place};
use vshmem_placement::request::{Answer, SAYS, VERSION};
use wanted::Wanted;

/// The document of `--advise --json`.
#[derive(Serialize)]
struct Advised<'a> {
    version: u32,
    topology: &'a str,
    #[serde(flatten)]
    advice: &'a Advice,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{SAYS}{why}");
            ExitCode::from(why.exit_code())
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let wanted = match options.advise {
        true => None,
        false => Some(Wanted::of(options)?),
    };
    let failed = |why: String| Error::new(why).code(1);
    let topology = hwloc::read(options.topology.as_deref()).map_err(failed)?;
    let Some(Wanted { machines, taken, notes }) = wanted else {
        let (ranks, reserve) = (options.ranks.unwrap_or(1) as usize, options.reserve_cores.unwrap_or(0));
        let advice = advise(&topology, ranks, options.rank_memory, options.smt, reserve);
        return match options.json {
            true => print(&json(&Advised { version: VERSION, topology: &topology.source, advice: &advice })),
            false => print(&advice_text(&advice)),
        };
    };
    let plan = place(&topology, &machines, &taken).map_err(|why| failed(why.to_string()))?;
    if let Some(path) = &options.svg {
        std::fs::write(path, draw::svg(&topology, &plan, &taken.cpus))
            .explain(|| format!("could not write {}", path.display()))
            .map_err(|why| why.code(1))?;
    }
    if options.json {
        return print(&json(&Answer { version: VERSION, topology: topology.source, plan }));
    }
    print(&(draw::text(&topology, &plan, &taken.cpus) + &notes))
}

fn json<T: Serialize>(document: &T) -> String {
    serde_json::to_string_pretty(document).expect("it is plain data") + "\n"
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
fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error!("could not write the answer: {why}").code(1))
        }
        _ => Ok(()),
    }
}
