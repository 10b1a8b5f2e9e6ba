//! The commands `vshmem exec`, `vshmem shell` and `vshmem run`.

use crate::args::{ClusterArg, CommandLine, CommandOptions, EXIT_CODES};
use crate::complete::values;
use crate::explain;
use clap::{Args, Parser};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vshmem_base::error::Explain;
use vshmem_base::{error, library, user::Identity, Error, Result};
use vshmem_hypervisor::launcher::table::location;
use vshmem_hypervisor::state::machine::find;
use vshmem_hypervisor::state::record::{Machine, Record};
use vshmem_session::commands::job::Job;
use vshmem_session::commands::location::Location;
use vshmem_session::commands::run::{self, RunOptions};

#[derive(Args)]
#[command(after_help = format!("\
Examples:
  vshmem exec vm0 -- uname -a
  vshmem exec vm1 -- sh -c 'echo $HOSTNAME' < input
  vshmem exec -u root vm0 -- dmesg
  vshmem exec -t vm0 -- top

The command runs as the calling user, in the same directory and environment as far as the machine has them. Output, input,
signals and the exit code are passed on. With -t the program has your terminal, and gets ctrl-C itself: editors, debuggers
and full-screen programs work. If the machine does not answer, ctrl-C ends vshmem after three seconds; if nobody
reads the output, as where a pager waits, a second one after five.

{EXIT_CODES}"))]
pub struct Exec {
    #[command(flatten)]
    pub cluster: ClusterArg,
    #[command(flatten)]
    pub how: CommandOptions,
    /// Don't pass on standard input
    #[arg(long, short = 'n')]
    pub no_stdin: bool,
    /// Give the command your terminal
    #[arg(long, short, conflicts_with = "no_stdin")]
    pub tty: bool,
    /// The machine
    #[arg(value_name = "VM", add = values::machines())]
    pub machine: String,
    #[command(flatten)]
    pub line: CommandLine,
}

#[derive(Args)]
#[command(after_help = format!("\
Examples:
  vshmem shell vm0                         then vshmem run --local -- ./a.out
  vshmem shell -u root vm1
  vshmem shell -e SHELL=/bin/sh -C / vm0

Runs your login shell ($SHELL), or /bin/sh if the machine does not have it, as vshmem exec -t does. System V calls of what
is typed there go to the machine's own kernel; those of programs that vshmem run --local starts there go to its pool.

{EXIT_CODES}"))]
pub struct Shell {
    #[command(flatten)]
    pub cluster: ClusterArg,
    #[command(flatten)]
    pub how: CommandOptions,
    /// The machine
    #[arg(value_name = "VM", add = values::machines())]
    pub machine: String,
}

#[derive(Args)]
#[command(override_usage = "vshmem run [OPTIONS] -- <COMMAND>... [: [OPTIONS] -- <COMMAND>...]...", after_help = format!("\
Examples:
  vshmem run -- ./a.out                             one process in each machine
  vshmem run --vm vm0 -- ./server : --vm vm1 -- ./client
  vshmem run --local -n 2 -- python3 program.py     two processes on this kernel
  vshmem run --local -- ./a.out                     one, in place of vshmem itself
  vshmem run -n 64 -- ./a.out                       64, distributed to the machines
  vshmem run -n 64 -o results -- ./a.out            their output in files: results/0.vm0.out, ...
  VSHMEM_KEYS=0x1000-0x1fff vshmem run -- ./a.out   only these keys go to Vshmem

The program's System V calls go to the pool that the machines share (libvshmem.so is preloaded). VSHMEM_RANK and
VSHMEM_SIZE tell each process its number and the number of processes; the first process gets standard input. When one
process fails, the others are ended, as by mpirun; the exit code is that of the first to fail. If there are several
processes, each line of output begins with the name of its machine. A machine takes 1024 processes of one run. A command
behind a colon has the cluster of the first, and options of its own besides.

{EXIT_CODES}"))]
pub struct Run {
    #[command(flatten)]
    pub cluster: ClusterArg,
    #[command(flatten)]
    pub how: CommandOptions,
    /// The machines, instead of all
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "VM,...",
        add = values::machines(),
        conflicts_with = "local"
    )]
    pub vm: Vec<String>,
    /// On this kernel, not in a machine
    #[arg(long)]
    pub local: bool,
    /// Number of processes, distributed to the machines in turn
    #[arg(short = 'n', long = "processes", value_name = "N")]
    pub processes: Option<u32>,
    /// Let the other processes go on when one fails
    #[arg(long, short)]
    pub keep_going: bool,
    /// Don't begin each line of output with the name of its machine
    #[arg(long)]
    pub no_prefix: bool,
    /// Write each process's output to files in this directory, N.MACHINE.out and N.MACHINE.err
    #[arg(long, short, value_name = "DIR", add = values::directories())]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub line: CommandLine,
}

/// The further commands of `run`, behind a colon.
#[derive(Parser)]
#[command(name = "vshmem run ... :", no_binary_name = true)]
pub struct MoreRun {
    #[command(flatten)]
    pub run: Run,
}

/// The shell that every machine has.
const SHELL: &str = "/bin/sh";

/// Runs a command in one machine.
pub fn exec(exec: Exec) -> Result<u8> {
    let mut job = job_in(&exec.cluster, exec.machine, &exec.how)?;
    job.request.argv = exec.line.command;
    job.request.stdin = !exec.no_stdin;
    run_alone(if exec.tty { job.with_terminal()? } else { job })
}

/// Runs a login shell in one machine, in a terminal.
pub fn shell(shell: Shell) -> Result<u8> {
    let mut job = job_in(&shell.cluster, shell.machine, &shell.how)?.with_terminal()?;
    let mut variables = job.request.env.iter();
    let own = variables.find(|(name, path)| name == "SHELL" && Path::new(path).is_absolute());
    let own = own.map(|(_, path)| path.clone());
    job.request.argv = own.into_iter().chain([SHELL.into()]).collect();
    job.request.login = true;
    run_alone(job)
}

/// A job in one machine; its command is to be filled in.
fn job_in(cluster: &ClusterArg, machine: String, how: &CommandOptions) -> Result<Job> {
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
pub fn run(first: Run, further: Vec<Run>) -> Result<u8> {
    let library = library::find()?;
    explain::check_variables(&library)?;
    let prefix = !first.no_prefix;
    let keep_going = first.keep_going;
    let output = first.output.clone();
    if let Some(directory) = &output {
        fs::create_dir_all(directory).explain(|| format!("could not make {}", directory.display()))?;
    }
    let mut jobs = Vec::new();
    for part in std::iter::once(first).chain(further) {
        add_jobs(part, &library, &mut jobs)?;
    }
    let size = jobs.len();
    for (rank, job) in jobs.iter_mut().enumerate() {
        job.request.env.push(("VSHMEM_RANK".into(), rank.to_string().into()));
        job.request.env.push(("VSHMEM_SIZE".into(), size.to_string().into()));
        job.request.stdin = rank == 0;
        if let Some(directory) = &output {
            job.files = Some(output_files(directory, rank, job.location.name().unwrap_or("local"))?);
        }
    }
    run::run(&jobs, RunOptions { prefix, keep_going, insist: true, silent: false })
}

/// The files of a process's output and errors, made anew.
fn output_files(directory: &Path, rank: usize, place: &str) -> Result<[Arc<File>; 2]> {
    let create = |ending| {
        let path = directory.join(format!("{rank}.{place}.{ending}"));
        File::create(&path).map(Arc::new).explain(|| format!("could not make {}", path.display()))
    };
    Ok([create("out")?, create("err")?])
}

fn add_jobs(part: Run, library: &Path, jobs: &mut Vec<Job>) -> Result<()> {
    explain::warn_of_program(&part.line.command[0], part.how.cwd.as_deref());
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
fn locations(part: &Run) -> Result<Vec<(String, Location)>> {
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
pub fn identity(how: &CommandOptions) -> Result<Identity> {
    match &how.user {
        Some(user) => Identity::parse(user),
        None => Ok(Identity::current()),
    }
}

/// The variables that `--env` sets.
pub fn changes(how: &CommandOptions) -> Result<Vec<(OsString, OsString)>> {
    how.env
        .iter()
        .map(|change| match change.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
            _ => Err(error!("--env {change} is not of the form NAME=VALUE").code(2)),
        })
        .collect()
}
