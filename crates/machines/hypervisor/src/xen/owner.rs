//! The process that owns a cluster's pool: `vshmem xen own`, which gives it to the cluster's domains, and
//! takes it back when they are gone.

use super::config::name_of;
use crate::shared::log;
use crate::state::record::Record;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vshmem_base::directories::cluster_directory;
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::interrupt;
use vshmem_base::process::Process;

/// Time that making the pool may take.
const CREATE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that withdrawing the pool may take.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);

/// The name of a cluster's pool in its domains. XenStore does not permit dots.
pub fn pool_name(cluster: &str) -> String {
    format!("cluster-{cluster}")
}

/// The file of a cluster's pool.
pub fn pool_path(cluster: &str) -> PathBuf {
    Path::new("/dev/vshmem-xen").join(pool_name(cluster))
}

/// Starts the process, and waits until the pool exists.
pub fn start(record: &mut Record) -> Result<()> {
    let log = cluster_directory(&record.name)?.join("own.log");
    let mut child = spawn(record, &log)?;
    let pid = child.id() as i32;
    record.owner = Process::find(pid);
    record.write()?;
    let there = interrupt::wait_for(CREATE_TIMEOUT, || {
        let ended = child.try_wait().is_ok_and(|status| status.is_some());
        let said = fs::read_to_string(&log).unwrap_or_default();
        match said.contains(" is there.") {
            true => Ok(Some(())),
            false if ended => Err(error!("the pool could not be made: {}", said.trim())),
            false => Ok(None),
        }
    })?;
    there.ok_or_else(|| error!("making the pool took longer than {} s", CREATE_TIMEOUT.as_secs()))
}

fn spawn(record: &Record, log: &Path) -> Result<Child> {
    let program = std::env::current_exe().explain(|| "this program's own file is not known".into())?;
    let output = File::create(log).explain(|| format!("could not make {}", log.display()))?;
    let copy = output.try_clone().explain(|| "could not copy a descriptor".into())?;
    let domains: Vec<_> = record.machines.iter().map(|machine| name_of(record, machine)).collect();
    let mut command = Command::new(program);
    command.args(["xen", "own", &pool_name(&record.name), "--size", &record.pool_size.to_string()]);
    command.args(["--to", &domains.join(",")]).current_dir("/");
    command.stdin(Stdio::null()).stdout(output).stderr(copy);
    let own_session = || {
        let _ = rustix::process::setsid();
        Ok(())
    };
    // SAFETY: the closure makes one system call; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(own_session) };
    command.spawn().explain(|| "could not start vshmem xen own".into())
}

/// Ends the process, and withdraws the pool.
pub fn end(record: &Record) -> Result<()> {
    if let Some(owner) = &record.owner {
        owner.end(EXIT_TIMEOUT);
    }
    if !record.pool.exists() {
        return Ok(());
    }
    // Either it was killed before it could withdraw the pool, or another process serves a pool of that name
    // for another user's cluster, which then stays.
    vshmem_agent::xen::withdraw(&pool_name(&record.name))
        .map(|_| ())
        .map_err(|error| Error::new(error.to_string()))
}

/// The error for a process that has ended.
pub fn ended(record: &Record) -> Error {
    let said = cluster_directory(&record.name).map(|directory| log::tail(&directory.join("own.log")));
    error!(
        "the process that owns the pool of the cluster {} has ended:{}",
        record.name,
        said.unwrap_or_default()
    )
    .hint("Start the cluster anew with: vshmem down && vshmem up --hypervisor xen")
}
