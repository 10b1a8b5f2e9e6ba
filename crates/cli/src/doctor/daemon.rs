//! The command `vshmem doctor --daemon idle`: the daemon's status, and its gain.

use super::state;
use crate::json::print_document;
use crate::output::print;
use crate::table::Table;
use clap::ValueEnum;
use vshmem_base::document::Document;
use vshmem_base::Result;
use vshmem_doctor::{keep_from_idling, prove, Contender, Live, Proof, Spread, Status, System};

/// A daemon, which runs until it is ended.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Daemon {
    /// Keeps virtual processors from idling, where nobody else wants their cores
    Idle,
}

/// Keeps processors from idling until a signal comes, or measures the gain of that.
pub fn idle(only_proves: bool, json: bool) -> Result<u8> {
    let system = System::live();
    if only_proves {
        state::prepare()?;
        let proof = prove(&system, &Live, &state::of_proof())?;
        match json {
            true => print_document(proof)?,
            false => print(&describe_proof(&proof))?,
        }
        return Ok(0);
    }
    let mut first = true;
    keep_from_idling(&system, &Live, &mut |status| {
        let beginning = std::mem::take(&mut first);
        match json {
            true => print(&Document::line(status)),
            false => print(&describe(status, beginning)),
        }
    })?;
    Ok(0)
}

fn describe(status: &Status, beginning: bool) -> String {
    let Status { seconds, source, processors } = status;
    let mut out = String::new();
    if beginning {
        out += &format!("Whether others want a core is told by {source}.\n");
    }
    for it in processors {
        let does = if it.spins { "kept from idling" } else { "left to idle" };
        out += &format!("{seconds:>6.0} s  processor {}: {does}: {}\n", it.processor, it.why);
    }
    out
}

fn describe_proof(proof: &Proof) -> String {
    let Proof { turns, contenders, missing, .. } = proof;
    let mut out = format!("Medians of {turns} turns each, and from the least to the most:\n");
    let mut table = Table::new("IDLING  THERE-AND-BACK  LATE  WORK  WATTS");
    let first = contenders.first().map_or(1.0, |it| it.work.median);
    for Contender { name, there_and_back, late, work, watts } in contenders {
        let there_and_back = there_and_back.map_or_else(|| "-".into(), microseconds);
        let work = format!("{:.1} %", 100.0 * work.median / first);
        let watts = watts.map_or_else(|| "-".into(), |watts| format!("{watts:.1}"));
        table.row(&[name, &there_and_back, &microseconds(*late), &work, &watts]);
    }
    out += &table.layout();
    for it in missing {
        out += &format!("missing: {}: {}\n", it.what, it.why);
    }
    out + "THERE-AND-BACK: from one processor to another that idles, and back. LATE: a sleep of a millisecond. WORK: of a\n\
        thread that wants a processor all the time.\n"
}

fn microseconds(spread: Spread) -> String {
    let Spread { median, least, most } = spread;
    format!("{median:.1} µs ({least:.1} to {most:.1})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vshmem_doctor::{Missing, Processor, Source};

    #[test]
    fn changes_and_gains_are_told() {
        let processor = Processor { processor: 3, spins: false, taken: Some(9.0), why: "because".into() };
        let status = Status { seconds: 7.4, source: Source::Steal, processors: vec![processor] };
        let said = describe(&status, true);
        assert_eq!(said.lines().count(), 2);
        assert!(said.ends_with("     7 s  processor 3: left to idle: because\n"), "{said}");
        let spread = |median| Spread { median, least: 1.0, most: 9.5 };
        let contender = |name: &str, took, work| Contender {
            name: name.into(),
            there_and_back: Some(spread(took)),
            late: spread(2.0),
            work: spread(work),
            watts: None,
        };
        let proof = Proof {
            source: Source::Steal,
            turns: 6,
            contenders: vec![contender("as it is", 8.0, 200.0), contender("idle processes", 4.0, 199.0)],
            missing: vec![Missing { what: "watts".into(), why: "none".into() }],
        };
        let said = describe_proof(&proof);
        assert!(said.contains("4.0 µs (1.0 to 9.5)") && said.contains("99.5 %"), "{said}");
        assert!(said.contains("missing: watts: none\n"), "{said}");
    }
}
