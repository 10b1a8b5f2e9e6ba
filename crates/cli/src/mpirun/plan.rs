//! The plan of a job: its hosts, MPI, settings, and the launcher's command line.

use super::args::Mpirun;
use super::hosts::{apportion, command_prefix, has_verbs, hosts, Host};
use super::verify;
use crate::program::Program;
use crate::run::{changes, identity};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use vshmem_base::{error, library, user::Identity, Result};
use vshmem_mpi::environment::misleads_launchers;
use vshmem_mpi::files::{Files, Prefix};
use vshmem_mpi::implementations::listed;
use vshmem_mpi::installation::{no_program, Choice};
use vshmem_mpi::settings::{self, Setting};
use vshmem_mpi::{Line, Mpi, Situation};
use vshmem_session::commands::job::Job;
use vshmem_session::commands::location::Location;

/// The names of the library that answers UCX, beside libvshmem.so.
const UCX_LIBRARIES: [&str; 2] = ["libvshmem-ucx.so.1", "libvshmem_ucx.so"];

/// A job as it will run.
pub struct Plan {
    /// The MPI.
    pub mpi: Mpi,
    /// Its hosts; the launcher runs in the first.
    pub hosts: Vec<Host>,
    /// The situation that its settings depend on.
    pub situation: Situation,
    /// The settings of its ranks.
    pub settings: Vec<Setting>,
    /// The launcher's command line.
    pub line: Line,
    /// The libraries that are preloaded into ranks.
    pub libraries: Vec<PathBuf>,
    /// Its hosts get directories for temporary files, since the user has named none.
    pub scratch: bool,
    /// Variables of all hosts.
    changes: Vec<(OsString, OsString)>,
    identity: Identity,
    cwd: Option<PathBuf>,
}

impl Plan {
    /// The plan of a job.
    pub fn new(job: Mpirun) -> Result<Plan> {
        let own = changes(&job.how)?;
        check_one_program(&job.line.command)?;
        let mut hosts = hosts(&job)?;
        if job.bind_to.as_ref().is_some_and(|to| to != "none") {
            apportion(&mut hosts)?;
        }
        check_files(&hosts, &job)?;
        let files = files(&hosts[0], &job, &own);
        if matches!(files, Files::Host { .. }) {
            check_program(&job)?;
        }
        let choice = job.mpi.as_deref().map_or(Choice::Program, Choice::parse);
        let mpi = Mpi::find(&files, &job.line.command[0], &choice)?;
        if let Some(what) = mpi.untested() {
            tell!("vshmem: warning: {what}. If the job fails where a tested version succeeds, report it.");
        }
        let identity = identity(&job.how)?;
        let groups: BTreeSet<&Option<String>> = hosts.iter().map(|host| &host.pool).collect();
        let mut situation = mpi.situation(groups.len() > 1, oversubscribed(&hosts));
        situation.verbs = situation.mixed && hosts.iter().all(has_verbs);
        situation.crowded = crowded(&hosts);
        situation.apportioned = hosts.iter().any(|host| host.part.is_some());
        situation.heap = heap(&hosts).filter(|_| mpi.shmem);
        situation.log = job.verify_transport.then(verify::log_file).transpose()?;
        let value = |name: &str| {
            let changed = own.iter().rev().find(|(changed, _)| changed == name);
            let parameter = mpi.parameter(&job.mpiexec_arg, name);
            parameter.or_else(|| Some(changed?.1.clone())).or_else(|| std::env::var_os(name))
        };
        let settings = mpi.settings(&situation, value);
        verify::check_settings(&settings)?;
        let libraries = libraries()?;
        let line = Line {
            hosts: hosts.iter().map(|host| (host.name.clone(), host.ranks)).collect(),
            preload: preload(&libraries, value("LD_PRELOAD")),
            label: job.label,
            bind_to: job.bind_to,
            // Containers of one kernel would each count its processors from the first; these are shared out
            // only where binding is asked for.
            unbound: situation.oversubscribed || matches!(files, Files::Reached(_)),
            own_environments: situation.mixed || situation.apportioned,
            root: identity.uid == 0 || matches!(files, Files::Reached(_)),
            extra: job.mpiexec_arg.clone(),
            program: program(&files, &mpi, job.line.command),
        };
        let scratch = own.iter().all(|(name, _)| name != "TMPDIR");
        let mut changes: Vec<(OsString, OsString)> =
            settings.iter().map(|it| (it.name.into(), it.value.clone())).collect();
        if value("VSHMEM_LOG").is_none() {
            changes.push(("VSHMEM_LOG".into(), "error".into()));
        }
        changes.extend(own.into_iter().filter(|(name, _)| name != "LD_PRELOAD"));
        let cwd = job.how.cwd;
        Ok(Plan { mpi, hosts, situation, settings, line, libraries, scratch, changes, identity, cwd })
    }

    /// A file of this host that the program's command line names and its machines do not see.
    pub fn invisible_file(&self) -> Option<PathBuf> {
        let mut rank = self.job(self.hosts.first()?);
        rank.request.argv.clone_from(&self.line.program);
        rank.invisible_file()
    }

    /// The job of the launcher, or of a daemon of its, in this host. Its command is filled in when it starts.
    pub fn job(&self, host: &Host) -> Job {
        let mut changes = self.changes.clone();
        changes.extend(host.pool.iter().map(|pool| ("VSHMEM_POOL".into(), pool.into())));
        if let Some(part) = &host.part {
            changes
                .extend([("HWLOC_SYNTHETIC".into(), part.into()), ("HWLOC_THISSYSTEM".into(), "1".into())]);
        }
        let log = self.situation.log.iter().filter(|_| self.situation.mixed);
        changes.extend(log.map(|log| ("UCX_LOG_FILE".into(), verify::log_file_in(&host.name, log).into())));
        let label = host.name.clone();
        let cwd = self.cwd.as_deref();
        let mut job = Job::new(host.location.clone(), label, &changes, cwd, self.identity.clone());
        // Ranks get the preloaded libraries by the launcher.
        job.request
            .env
            .retain(|(name, _)| name != "LD_PRELOAD" && !misleads_launchers(&name.to_string_lossy()));
        if self.mpi.preloads_daemons() {
            job.request.env.push(("LD_PRELOAD".into(), self.line.preload.clone()));
        }
        if matches!(host.location, Location::Machine(..)) {
            job.request.needs = self.libraries.iter().map(OsString::from).collect();
        }
        job
    }
}

/// The way to the program's files: a machine sees this host's.
fn files(host: &Host, job: &Mpirun, own: &[(OsString, OsString)]) -> Files {
    match &host.location {
        Location::Reached(reached) => Files::Reached(Prefix {
            from: job.how.cwd.clone(),
            variables: own.to_vec(),
            ..command_prefix(reached)
        }),
        _ => {
            let here = std::env::current_dir().unwrap_or("/".into());
            let from = job.how.cwd.as_ref().map_or(here.clone(), |cwd| here.join(cwd));
            Files::Host { from, variables: own.to_vec() }
        }
    }
}

/// Refuses a program that a host does not have, for which some launchers would wait for ever. Machines have
/// the same files.
fn check_files(hosts: &[Host], job: &Mpirun) -> Result<()> {
    let command = &job.line.command[0];
    for host in hosts.iter().filter(|host| matches!(host.location, Location::Reached(_))) {
        files(host, job, &[]).locate(command).ok_or_else(|| no_program(command, Some(&host.name)))?;
    }
    Ok(())
}

/// Whether a host has more ranks than processors. Containers have those of one kernel between them.
fn oversubscribed(hosts: &[Host]) -> bool {
    let is_crowded = |host: &Host| host.processors.is_some_and(|processors| host.ranks > processors);
    let reached = || hosts.iter().filter(|host| matches!(host.location, Location::Reached(_)));
    let ranks: u32 = reached().map(|host| host.ranks).sum();
    let processors = reached().filter_map(|host| host.processors).max();
    hosts.iter().any(is_crowded) || processors.is_some_and(|processors| ranks > processors)
}

/// Whether ranks that wait would keep more processors of machines busy than this host has.
fn crowded(hosts: &[Host]) -> bool {
    let machines = hosts.iter().filter(|host| matches!(host.location, Location::Machine(..)));
    let busy: u32 = machines.map(|host| host.processors.unwrap_or(host.ranks).min(host.ranks)).sum();
    std::thread::available_parallelism().is_ok_and(|own| busy as usize > own.get())
}

/// MiB of each symmetric heap, if all ranks share the cluster's pool.
fn heap(hosts: &[Host]) -> Option<u64> {
    let sizes: Option<Vec<u64>> = hosts.iter().map(|host| host.pool_size).collect();
    let ranks = hosts.iter().map(|host| host.ranks).sum();
    settings::symmetric_heap(sizes?.into_iter().min()?, ranks)
}

/// The command of a rank. OpenSHMEM needs static variables at the same addresses in all ranks, which Linux
/// chooses at random.
fn program(files: &Files, mpi: &Mpi, command: Vec<OsString>) -> Vec<OsString> {
    let setarch = files.locate("setarch".as_ref()).filter(|_| mpi.shmem);
    let prefix = setarch.map(|setarch| [setarch.into(), "--addr-no-randomize".into()]);
    prefix.into_iter().flatten().chain(command).collect()
}

/// Refuses several programs, which launchers take with a colon between them.
fn check_one_program(command: &[OsString]) -> Result<()> {
    match command.iter().any(|word| word == ":") {
        true => Err(error!("a job has one program, and no further ones behind ':'")
            .hint(format!(
                "Run a script that starts each rank's own: its rank is in {}. Name the MPI by --mpi then.",
                listed(|it| format!("{} ({it})", it.rank_variable()), " or ")
            ))
            .code(2)),
        false => Ok(()),
    }
}

/// Refuses a program of this host that the library can't serve.
fn check_program(job: &Mpirun) -> Result<()> {
    let program = Program::find(&job.line.command[0], job.how.cwd.as_deref());
    match program.and_then(|program| program.hurdle().map(|why| (program, why))) {
        Some((program, why)) => {
            Err(error!("the ranks of {} can't use a pool: {why}", program.file.display()).code(126))
        }
        None => Ok(()),
    }
}

/// The libraries that are preloaded into ranks.
fn libraries() -> Result<Vec<PathBuf>> {
    let library = library::find()?;
    let all = UCX_LIBRARIES.map(|name| library.with_file_name(name));
    let ucx = all.iter().find(|file| file.is_file()).ok_or_else(|| {
        error!("{} is not beside {}", UCX_LIBRARIES[0], library.display())
            .hint("Build or install it (make, make install).")
    })?;
    Ok(vec![library, ucx.clone()])
}

fn preload(libraries: &[PathBuf], own: Option<OsString>) -> OsString {
    let own = own.filter(|own| !own.is_empty());
    let all: Vec<OsString> = libraries.iter().map(|file| file.clone().into()).chain(own).collect();
    all.join(":".as_ref())
}
