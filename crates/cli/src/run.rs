//! The commands `vshmem exec`, `vshmem shell` and `vshmem run`.

use crate::{args, explain};
use std::ffi::OsString;
use std::path::Path;
use vshmem_base::{error, library, user::Identity, Error, Result};
use vshmem_hypervisor::launcher::table::location;
use vshmem_hypervisor::state::machine::find;
use vshmem_hypervisor::state::record::{Machine, Record};
use vshmem_session::commands::job::Job;
use vshmem_session::commands::location::Location;
use vshmem_session::commands::run::{self, RunOptions};

/// The shell that every machine has.
const SHELL: &str = "/bin/sh";

/// Runs a command in one machine.
pub fn exec(exec: args::Exec) -> Result<u8> {
    let mut job = job_in(&exec.cluster, exec.machine, &exec.how)?;
    job.request.argv = exec.line.command;
    job.request.stdin = !exec.no_stdin;
    run_alone(if exec.tty { job.with_terminal()? } else { job })
}

/// Runs a login shell in one machine, in a terminal.
pub fn shell(shell: args::Shell) -> Result<u8> {
    let mut job = job_in(&shell.cluster, shell.machine, &shell.how)?.with_terminal()?;
    let mut variables = job.request.env.iter();
    let own = variables.find(|(name, path)| name == "SHELL" && Path::new(path).is_absolute());
    let own = own.map(|(_, path)| path.clone());
    job.request.argv = own.into_iter().chain([SHELL.into()]).collect();
    job.request.login = true;
    run_alone(job)
}

/// A job in one machine; its command is to be filled in.
fn job_in(cluster: &args::ClusterArg, machine: String, how: &args::CommandOptions) -> Result<Job> {
    let (record, machines) = find(&cluster.cluster, &[machine])?;
    let machine = machines.into_iter().next().expect("find returns what it was asked for");
    let label = machine.name.clone();
    let location = Location::Machine(location(&record, &machine));
    Ok(Job::new(location, label, &changes(how)?, how.cwd.as_deref(), identity(how)?))
}

fn run_alone(job: Job) -> Result<u8> {
    run::run(&[job], RunOptions { prefix: false, keep_going: false, insist: false, silent: false })
}

/// Runs programs on Vshmem.
pub fn run(first: args::Run, further: Vec<args::Run>) -> Result<u8> {
    let library = library::find()?;
    explain::check_variables(&library)?;
    let prefix = !first.no_prefix;
    let keep_going = first.keep_going;
    let mut jobs = Vec::new();
    for part in std::iter::once(first).chain(further) {
        add_jobs(part, &library, &mut jobs)?;
    }
    let size = jobs.len();
    for (rank, job) in jobs.iter_mut().enumerate() {
        job.request.env.push(("VSHMEM_RANK".into(), rank.to_string().into()));
        job.request.env.push(("VSHMEM_SIZE".into(), size.to_string().into()));
        job.request.stdin = rank == 0;
    }
    run::run(&jobs, RunOptions { prefix, keep_going, insist: true, silent: false })
}

fn add_jobs(part: args::Run, library: &Path, jobs: &mut Vec<Job>) -> Result<()> {
    explain::warn_of_program(&part);
    let locations = locations(&part)?;
    let identity = identity(&part.how)?;
    let mut changes = changes(&part.how)?;
    if part.local {
        explain::warn_of_surroundings(&changes);
    }
    changes.push(("LD_PRELOAD".into(), preload(library)));
    if std::env::var_os("VSHMEM_LOG").is_none() && !changes.iter().any(|(name, _)| name == "VSHMEM_LOG") {
        changes.push(("VSHMEM_LOG".into(), "error".into()));
    }
    for (label, location) in locations {
        let mut job = Job::new(location, label, &changes, part.how.cwd.as_deref(), identity.clone());
        job.request.argv.clone_from(&part.line.command);
        job.request.needs = vec![library.into()];
        jobs.push(job);
    }
    Ok(())
}

/// The label and the location of each process.
fn locations(part: &args::Run) -> Result<Vec<(String, Location)>> {
    if part.processes == Some(0) {
        return Err(Error::new("-n 0 would run nothing; the least is 1").code(2));
    }
    if part.local {
        let count = part.processes.unwrap_or(1);
        return Ok((0..count).map(|i| (format!("p{i}"), Location::Local)).collect());
    }
    let (record, machines) = find(&part.cluster.cluster, &part.vm)?;
    let count = part.processes.map_or(machines.len(), |n| n as usize);
    Ok((0..count).map(|i| in_machine(&record, &machines, i, count)).collect())
}

fn in_machine(record: &Record, machines: &[Machine], i: usize, count: usize) -> (String, Location) {
    let machine = machines[i % machines.len()].clone();
    let label = if count > machines.len() {
        format!("{}.{}", machine.name, i / machines.len())
    } else {
        machine.name.clone()
    };
    (label, Location::Machine(location(record, &machine)))
}

/// The value of `LD_PRELOAD`: the library, and then what was preloaded before.
fn preload(library: &Path) -> OsString {
    let mut out = library.as_os_str().to_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        out.push(":");
        out.push(others);
    }
    out
}

/// The user that a command runs as.
pub fn identity(how: &args::CommandOptions) -> Result<Identity> {
    match &how.user {
        Some(user) => Identity::parse(user),
        None => Ok(Identity::current()),
    }
}

/// The variables that `--env` sets.
pub fn changes(how: &args::CommandOptions) -> Result<Vec<(OsString, OsString)>> {
    how.env
        .iter()
        .map(|change| match change.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
            _ => Err(error!("--env {change} is not of the form NAME=VALUE").code(2)),
        })
        .collect()
}
