//! A launcher whose machines are processes in namespaces. They share this kernel, so their pools are the
//! files themselves, to which there are links in a machine's directory.

use super::machine::{LINKS, WORD};
use super::namespaces::{self, Program};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_hypervisor::boot::driver;
use vshmem_hypervisor::boot::kernel::Kernel;
use vshmem_hypervisor::boot::software::Software;
use vshmem_hypervisor::launcher::grants::{GrantResult, Grants};
use vshmem_hypervisor::launcher::options::{PoolOptions, Progress};
use vshmem_hypervisor::launcher::traits::{Facts, Launcher, StartOptions, Started};
use vshmem_hypervisor::running::Running;
use vshmem_hypervisor::shared::network::Link;
use vshmem_hypervisor::shared::{log, pool};
use vshmem_hypervisor::state::machine::{health_on_record, Health};
use vshmem_hypervisor::state::record::{Granted, Machine, Record};
use vshmem_inspect::host_pool::{path_of, HostPool};
use vshmem_inspect::pools::Form;

/// Its name, and that of its accelerator.
const NAME: &str = "process";
/// The log of a machine, in its directory.
const LOG: &str = "console.log";

/// The launcher.
pub struct Processes;

impl Launcher for Processes {
    fn facts(&self) -> &'static Facts {
        &Facts {
            name: NAME,
            about: "processes in namespaces",
            needs: "The kernel must let this user make namespaces.",
            boot_hint: "",
            accelerators: &[(NAME, "")],
            transports: &["local"],
            channels: 3,
            pool_size: vshmem_pool::MIN_POOL,
            network: false,
            needs_back_end: false,
            can_pin: false,
            gives_devices: false,
            starts_at_once: true,
            reports_hang_up: true,
            has_own_memory: false,
        }
    }

    fn check_host(&self) -> Result<()> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(Error::new("machines are started on x86_64 only"));
        }
        namespaces::flags().map(drop).explain(|| "this kernel gives this user no namespaces".into())
    }

    fn grants(&self, _: &str) -> Result<&'static dyn Grants> {
        Ok(&Processes)
    }

    fn can_grant(&self, _: &Record, _: &Machine, _: &PoolOptions) -> bool {
        true
    }

    fn can_revoke(&self, _: &Record, _: &Granted) -> bool {
        true
    }

    fn pool_name(&self, _: &str) -> String {
        "default".into()
    }

    fn pool_path(&self, cluster: &str) -> PathBuf {
        pool::path(&pool::own(cluster))
    }

    /// Machines have the kernel that runs, and load nothing.
    fn software(
        &self,
        _: Option<&str>,
        _: Option<&Path>,
        _: &driver::Choice,
        _: Option<&str>,
        _: &mut dyn FnMut(&str),
    ) -> Result<Software> {
        let image = PathBuf::from("/proc/version");
        let kernel = Kernel { image: image.clone(), version: String::new(), modules: vec![], disk: None };
        Ok(Software { kernel, driver: None, accel: NAME, description: "as processes", image })
    }

    fn create_pool(&self, record: &mut Record) -> Result<()> {
        let form = Form { head: false, align: 0 };
        pool::create(&pool::reference(&record.pool), record.pool_size, form)
    }

    fn remove_pool(&self, record: &Record) -> Result<()> {
        pool::remove(&pool::reference(&record.pool))
    }

    fn start(
        &self,
        record: &Record,
        index: usize,
        _: &StartOptions,
        _: Option<Vec<Link>>,
        _: &mut dyn FnMut(Progress),
    ) -> Result<Started> {
        let machine = &record.machines[index];
        let failed = || format!("could not start {}", machine.name);
        let directory = record.machine_directory(machine)?;
        let _ = fs::remove_dir_all(directory.join(LINKS));
        fs::create_dir(directory.join(LINKS)).explain(failed)?;
        machine.pools.iter().try_for_each(|pool| link(&directory, &pool.name, &pool.path))?;
        let (mut ours, theirs) = UnixStream::pair().explain(failed)?;
        let words = [&machine.name, WORD, &record.channels.to_string()].map(String::from);
        let program = Program::new(&machine.name, &directory, &words, theirs.into());
        let log = File::create(directory.join(LOG)).explain(failed)?;
        let process = program.start(&log.into()).explain(failed)?;
        // The machine ends at the end of its input, unless it has read a byte.
        let keep = Box::new(move || ours.write_all(b"k").explain(|| "the machine has ended".into()));
        Ok(Started { running: Running::Process(process), keep, populated: None })
    }

    fn health(&self, _: &Record, machine: &Machine) -> Health {
        health_on_record(&machine.pools)
    }

    fn last_output(&self, record: &Record, machine: &Machine) -> String {
        let directory = record.machine_directory(machine);
        directory.map(|directory| log::tail(&directory.join(LOG))).unwrap_or_default()
    }
}

/// The record is written before a link is made, and after one is removed: an interrupted command can be
/// repeated.
impl Grants for Processes {
    fn grant(&self, record: &mut Record, index: usize, pool: &HostPool, _: Duration) -> Result<GrantResult> {
        let begun = Instant::now();
        let machine = &mut record.machines[index];
        let before = machine.pools.iter().any(|had| had.path == pool.path && had.name == pool.name);
        if !before {
            if machine.pools.iter().any(|had| had.path == pool.path || had.name == pool.name) {
                return Err(error!("{} has this pool or this name already", machine.name));
            }
            machine.pools.push(Granted::new(pool.name.clone(), pool.path.clone(), pool.size, false));
            record.write()?;
        }
        let directory = record.machine_directory(&record.machines[index])?;
        link(&directory, &pool.name, &pool.path)?;
        let took = begun.elapsed();
        Ok(GrantResult { name: pool.name.clone(), address: String::new(), before, usable: Ok(()), took })
    }

    fn revoke(&self, record: &mut Record, index: usize, pool: &str, _: Duration) -> Result<String> {
        let machine = &record.machines[index];
        let path = path_of(pool);
        let is_it = |had: &&Granted| had.name == pool || Some(&had.path) == path.as_ref();
        let Some(Granted { name, .. }) = machine.pools.iter().find(is_it).cloned() else {
            return Err(error!("{} does not have the pool {pool}", machine.name).code(1));
        };
        let link = record.machine_directory(machine)?.join(LINKS).join(&name);
        fs::remove_file(&link).explain(|| format!("could not remove {}", link.display()))?;
        record.machines[index].pools.retain(|had| had.name != name);
        record.write()?;
        Ok(name)
    }

    fn power_off(&self, record: &mut Record, index: usize) -> Result<()> {
        let running = record.machines[index].runs.as_ref();
        running.map(|running| running.end(Duration::ZERO)).ok_or_else(|| Error::new("it does not run"))
    }
}

/// Has a machine see a pool.
fn link(directory: &Path, name: &str, pool: &Path) -> Result<()> {
    let link = directory.join(LINKS).join(name);
    let _ = fs::remove_file(&link);
    symlink(pool, &link).explain(|| format!("could not make {}", link.display()))
}
