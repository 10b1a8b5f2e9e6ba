//! The command `vshmem doctor`: findings that cost a machine or its host speed, and their remedies.

mod daemon;
mod monitor;
mod state;

pub use daemon::Daemon;

use crate::args::ClusterArg;
use crate::complete::values;
use crate::json::print_document;
use crate::output::{columns, print, print_wrapped};
use crate::table::Table;
use clap::builder::PossibleValuesParser;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use vshmem_base::{error, user::Identity, Error, Result};
use vshmem_doctor::{
    by_id, examine, examine_one, explain, fix, page, undo, Change, Done, Finding, Instruments, Live, Outcome,
    Recorded, Saved, System, CHECKS,
};
use vshmem_hypervisor::launcher::table::location;
use vshmem_hypervisor::state::machine::find;
use vshmem_hypervisor::state::record::Machine;
use vshmem_session::commands::job::Job;
use vshmem_session::commands::location::Location;
use vshmem_session::commands::run::{self, RunOptions};

/// Exit code if something costs speed, or a change could not be made or undone.
const COSTS: u8 = 1;
/// The word for all checks in `--explain`.
const ALL: &str = "all";

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem doctor                            this host, and the machines on it
  vshmem doctor --vm vm0                   the same in a machine, as its root
  vshmem doctor --json | jq -r '.findings[] | select(.verdict == \"costs\").id'
  vshmem doctor --explain clock-source     what a check is about
  sudo vshmem doctor --fix --dry-run       what would be changed
  sudo vshmem doctor --fix clock-source ksm
  sudo vshmem doctor --undo                puts back what was there
  vshmem doctor --daemon idle              in a machine: keeps processors from idling
  vshmem doctor --vm vm0 --daemon idle --prove

Looks at what is in force, not at what was asked for, changes nothing without --fix, and measures for about a second. A
check that can't tell says `unknown`, and why; root sees most. What follows from another finding stands below it.

--fix shows what it will do, and asks. It makes only changes that work at once, and are lost at the next boot; what was
there is written down first, so --undo works after an interrupted --fix, too. A setting that somebody else has changed
since is left alone.

--daemon idle has a process of the lowest class for each virtual processor, which spins while there is nothing else to
do, so that nobody has to wake the processor through the hypervisor. It stops where others want the core, tries again
later, and ends by ctrl-C. It says why it does what it does. --prove measures what it gains, by turns with how
processors idle now and with the kernel's own polling.

Exit codes:
  0    nothing is known to cost speed; or all changes were made or undone
  1    something costs speed; or a change could not be made or undone
  2    a mistake in the command line
  125  it could not be examined")]
pub struct Doctor {
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// Only these checks
    #[arg(value_name = "CHECK", value_parser = checks())]
    pub checks: Vec<String>,
    /// In these machines, instead of here
    #[arg(long, value_delimiter = ',', value_name = "VM,...", add = values::machines(), conflicts_with = "root")]
    pub vm: Vec<String>,
    /// List the checks
    #[arg(long, conflicts_with_all = ["fix", "undo", "json"])]
    pub list: bool,
    /// Explain a check, or all
    #[arg(long, value_name = "CHECK", value_parser = explained(), conflicts_with_all = ["fix", "undo", "json", "list"])]
    pub explain: Option<String>,
    /// Apply the remedies that work at once
    #[arg(long, conflicts_with_all = ["undo", "json", "root"])]
    pub fix: bool,
    /// With --fix, only show what would be changed
    #[arg(long, requires = "fix")]
    pub dry_run: bool,
    /// With --fix, don't ask
    #[arg(long, short, requires = "fix")]
    pub yes: bool,
    /// Put back what was there before --fix
    #[arg(long, conflicts_with_all = ["json", "root", "checks"])]
    pub undo: bool,
    /// Until it is ended, keep virtual processors from idling where nobody else wants their cores
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["fix", "undo", "root", "list", "explain", "checks"])]
    pub daemon: Option<Daemon>,
    /// With --daemon, only measure what it gains
    #[arg(long, requires = "daemon")]
    pub prove: bool,
    /// Look at a copy of another system's proc and sys below this directory; nothing is measured
    #[arg(long, value_name = "DIR", add = values::directories())]
    pub root: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn checks() -> PossibleValuesParser {
    PossibleValuesParser::new(CHECKS.iter().map(|check| check.id))
}

fn explained() -> PossibleValuesParser {
    PossibleValuesParser::new(CHECKS.iter().map(|check| check.id).chain([ALL]))
}

/// The findings of an examination, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct Report<'a> {
    /// A finding of each check: first what costs, root causes before what follows from them.
    findings: &'a [Finding],
}

/// Examines, applies remedies, or undoes them.
pub fn doctor(doctor: Doctor) -> Result<u8> {
    if doctor.list {
        return print_wrapped(&list()).map(|()| 0);
    }
    if let Some(id) = &doctor.explain {
        return print_wrapped(&by_id(id).map_or_else(page, |check| explain(check, columns()))).map(|()| 0);
    }
    if !doctor.vm.is_empty() {
        return in_machines(&doctor);
    }
    if doctor.undo {
        return put_back();
    }
    if let Some(Daemon::Idle) = doctor.daemon {
        return daemon::idle(doctor.prove, doctor.json);
    }
    let (system, instruments): (System, &dyn Instruments) = match &doctor.root {
        Some(root) => (System::copied(root).map_err(Error::new)?, &Recorded::default()),
        None => (System::asking(monitor::ask, monitor::recorded()), &Live),
    };
    let saved = match doctor.root {
        Some(_) => Saved::default(),
        None => Saved::read(&state::of_fix(), &system)?,
    };
    let found = match &*doctor.checks {
        [] => examine(&system, instruments, &saved),
        chosen => {
            let chosen = chosen.iter().filter_map(|id| by_id(id));
            chosen.map(|check| examine_one(check, &system, instruments, &saved)).collect()
        }
    };
    if doctor.fix {
        return apply(&doctor, &system, &found);
    }
    match doctor.json {
        true => print_document(Report { findings: &found })?,
        false => print_wrapped(&describe(&found))?,
    }
    Ok(if found.iter().any(|it| it.verdict == Outcome::Costs) { COSTS } else { 0 })
}

/// The findings of all checks on this host now.
///
/// # Errors
/// The state that an earlier `--fix` has saved can't be read.
pub fn findings() -> Result<Vec<Finding>> {
    let system = System::asking(monitor::ask, monitor::recorded());
    let saved = Saved::read(&state::of_fix(), &system)?;
    Ok(examine(&system, &Live, &saved))
}

fn list() -> String {
    let mut table = Table::new("CHECK  REMEDY  WHAT SHOULD BE");
    for check in CHECKS {
        table.row(&[&check.id, &check.class, &check.title]);
    }
    // It is in what --explain says of each, too.
    table.within(columns().unwrap_or(usize::MAX), &["REMEDY"]).layout()
}

fn describe(found: &[Finding]) -> String {
    let mut out = String::new();
    let of = |verdict| found.iter().filter(move |it| it.verdict == verdict);
    for finding in of(Outcome::Costs) {
        out += &describe_cost(finding);
    }
    for finding in of(Outcome::Unknown) {
        out += &format!("unknown  {}: {}\n", finding.id, finding.why);
    }
    for finding in of(Outcome::Fine) {
        out += &format!("fine     {}: {}\n", finding.id, finding.why);
    }
    let count = |verdict| of(verdict).count();
    let (costs, unknown, fine) = (count(Outcome::Costs), count(Outcome::Unknown), count(Outcome::Fine));
    out + &format!("{costs} cost speed, {unknown} unknown, {fine} fine\n")
}

fn describe_cost(finding: &Finding) -> String {
    let mut out = format!("COSTS    {}: {}\n", finding.id, finding.why);
    let mut row = |head: &str, text: &str| out += &format!("           {head:<10}{text}\n");
    if !finding.causes.is_empty() {
        row("follows", &format!("from {}", finding.causes.join(", ")));
    }
    for it in &finding.evidence {
        row("read", &format!("{} = {}", it.of, it.is));
    }
    for it in &finding.measured {
        row("measured", &it.to_string());
    }
    let proven = if finding.proven == Some(true) { "shown above" } else { "an estimate, unproven here" };
    row("cost", &format!("{} ({proven})", finding.cost.as_deref().unwrap_or_default()));
    row("remedy", &format!("{} ({})", finding.remedy, finding.class));
    for change in &finding.changes {
        row("--fix", &change.to_string());
    }
    row("risk", finding.risk);
    row("source", finding.source);
    out
}

/// Makes the changes that the findings ask for.
fn apply(doctor: &Doctor, system: &System, found: &[Finding]) -> Result<u8> {
    let changes: Vec<(&str, Change)> =
        found.iter().flat_map(|it| it.changes.iter().map(|change| (it.id, change.clone()))).collect();
    if changes.is_empty() {
        return print("Nothing was found that --fix could change.\n").map(|()| 0);
    }
    for (id, change) in &changes {
        print(&format!("{id}: {change}\n"))?;
    }
    if doctor.dry_run || !doctor.yes && !is_wanted()? {
        return Ok(0);
    }
    state::prepare()?;
    let done = fix(system, &state::of_fix(), &changes)?;
    let code = report(&done, "done")?;
    for before in found.iter().filter(|it| !it.changes.is_empty()) {
        print(&proof(before, system)?)?;
    }
    print("What was done is lost when this kernel is booted anew. Before that, vshmem doctor --undo puts back what was there.\n")?;
    Ok(code)
}

/// The ratio of a measurement to the one before below which it is a gain, and not chance.
const GAIN: f64 = 0.8;

/// A finding's measurements before and now, in words.
fn proof(before: &Finding, system: &System) -> Result<String> {
    let check = by_id(before.id).expect("a finding is of a check");
    let after = examine_one(check, system, &Live, &Saved::read(&state::of_fix(), system)?);
    let pairs: Vec<_> = before.measured.iter().zip(&after.measured).collect();
    let mut out = String::new();
    for (before, after) in &pairs {
        out += &format!("{}: {before}; now {:.1} {}\n", check.id, after.value, after.unit);
    }
    if !pairs.iter().any(|(before, after)| after.value < GAIN * before.value) {
        out += &format!("{}: no measurement here shows what it cost: unproven\n", check.id);
    }
    Ok(out)
}

fn is_wanted() -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Error::new("nobody can be asked, since standard input is no terminal")
            .hint("Add --yes.")
            .code(2));
    }
    print("Do this? [y/N] ")?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|e| error!("could not read the answer: {e}"))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn put_back() -> Result<u8> {
    let files: Vec<PathBuf> =
        [state::of_fix(), state::of_proof()].into_iter().filter(|file| file.exists()).collect();
    if files.is_empty() {
        return print("There is nothing to undo.\n").map(|()| 0);
    }
    let system = System::live();
    let mut code = 0;
    for file in files {
        if Saved::read(&file, &system)?.lost {
            print(
                "This kernel was booted after the last --fix, so that nothing of it is in force any more.\n",
            )?;
        }
        code = code.max(report(&undo(&system, &file)?, "undone")?);
    }
    Ok(code)
}

/// Prints the changes that were made, and those that failed.
fn report(done: &[Done], word: &str) -> Result<u8> {
    let mut code = 0;
    for it in done {
        match it {
            Done::Yes(what) => print(&format!("{word}: {what}\n"))?,
            Done::Needless(why) => print(&format!("nothing to do: {why}\n"))?,
            Done::No(why) => {
                // In the order in which things were done.
                let _ = io::stdout().flush();
                tell!("vshmem: not {word}: {why}");
                code = COSTS;
            }
        }
    }
    Ok(code)
}

/// Runs the same command in each machine, as its root.
fn in_machines(doctor: &Doctor) -> Result<u8> {
    let (record, machines) = find(&doctor.cluster.cluster, &doctor.vm)?;
    let program = std::env::current_exe().map_err(|e| error!("could not find this program: {e}"))?;
    let flags = [
        (doctor.fix, "--fix"),
        (doctor.dry_run, "--dry-run"),
        (doctor.yes, "--yes"),
        (doctor.undo, "--undo"),
        (doctor.json, "--json"),
        (doctor.daemon.is_some(), "--daemon=idle"),
        (doctor.prove, "--prove"),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| OsString::from(flag));
    let words: Vec<OsString> =
        ["doctor".into()].into_iter().chain(flags).chain(doctor.checks.iter().map(Into::into)).collect();
    let asks = doctor.fix && !doctor.yes && !doctor.dry_run && io::stdin().is_terminal();
    let several = machines.len() > 1;
    let job = |machine: Machine| {
        let name = machine.name.clone();
        let location = Location::Machine(location(&record, &machine));
        let mut job = Job::new(location, name, &[], None, Identity::parse("root")?);
        job.request.argv = std::iter::once(program.clone().into()).chain(words.iter().cloned()).collect();
        if asks {
            job.with_terminal()
        } else {
            Ok(job)
        }
    };
    // Daemons run at the same time, and their lines say whose they are.
    let together = doctor.daemon.is_some() && !doctor.prove;
    let options =
        RunOptions { prefix: together && !doctor.json, keep_going: false, insist: false, silent: false };
    let jobs = machines.into_iter().map(job).collect::<Result<Vec<Job>>>()?;
    if together {
        return run::run(&jobs, options);
    }
    let mut code = 0;
    for job in jobs {
        if several && !doctor.json {
            print(&format!("{}:\n", job.label))?;
        }
        code = code.max(run::run(&[job], options)?);
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::wrapped;
    use std::fs;
    use std::path::Path;

    /// What is shown of a host in whose files this was planted, as the file in tests/screens has it;
    /// SCREENS_WRITE=1 writes that anew.
    #[test]
    fn findings_fit_terminals() {
        let root = std::env::temp_dir().join(format!("vshmem-screen-{}", std::process::id()));
        for (file, text) in [("sys/kernel/mm/ksm/run", "1\n"), ("sys/kernel/mm/ksm/pages_sharing", "4711\n")]
        {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let system = System::below(&root);
        let checks = ["ksm", "numa-balancing", "cx16"].map(|id| by_id(id).unwrap());
        let found = checks.map(|check| examine_one(check, &system, &Live, &Saved::default()));
        fs::remove_dir_all(&root).unwrap();
        assert!(found.iter().any(|it| it.verdict == Outcome::Costs));
        let screens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/screens");
        for columns in [80, 120] {
            let said = wrapped(&describe(&found), columns);
            assert!(said.lines().all(|line| line.chars().count() <= columns), "{said}");
            let file = screens.join(format!("doctor-{columns}.txt"));
            if std::env::var_os("SCREENS_WRITE").is_some() {
                fs::write(&file, &said).unwrap();
            }
            assert_eq!(fs::read_to_string(&file).unwrap(), said);
        }
    }
}
