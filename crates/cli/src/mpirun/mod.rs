//! The command `vshmem mpirun`: MPI and OpenSHMEM programs over machines and containers, by their own MPI's
//! launcher.

pub mod args;
pub mod explain;
mod hosts;
mod plan;
mod verify;
pub mod words;

use args::Mpirun;
use plan::Plan;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use verify::Watch;
use vshmem_base::Result;
use vshmem_session::commands::launch::{launch, JobHost, Launch};

/// Runs a job. The exit code is the launcher's.
pub fn mpirun(mpirun: Mpirun) -> Result<u8> {
    let (only_explain, json) = (mpirun.explain, mpirun.json);
    let plan = Plan::new(mpirun)?;
    if only_explain {
        return explain::explain(&plan, json);
    }
    for it in &plan.settings {
        if let Some(harm) = it.harm {
            tell!("vshmem: warning: {}={}: {harm}.", it.name, it.value.to_string_lossy());
        }
    }
    let begin = |log| Watch::begin(&plan.hosts, log, plan.situation.mixed, &plan.settings);
    let watch = plan.situation.log.as_deref().map(begin);
    let code = run(&plan)?;
    if let Some(file) = plan.invisible_file().filter(|_| code != 0) {
        tell!(
            "vshmem: the machines do not see {}. They see what is shared with them when they are started: vshmem up --share DIR",
            file.display()
        );
    }
    watch.map_or(Ok(()), |watch| watch.end(code))?;
    Ok(code)
}

fn run(plan: &Plan) -> Result<u8> {
    let hosts = plan.hosts.iter().map(|host| JobHost { name: host.name.clone(), job: plan.job(host) });
    let command = |rsh: &Path| plan.mpi.command(&plan.line, rsh);
    let mpi = plan.mpi.clone();
    let admit = move |words: &[OsString]| mpi.admit(words);
    let program = std::env::current_exe().unwrap_or("vshmem".into());
    let hosts = hosts.collect();
    let (scratch, stdin, progress) = (plan.scratch, true, std::io::stderr().is_terminal());
    launch(&Launch { hosts, command: &command, admit: &admit, program: &program, scratch, stdin, progress })
}
