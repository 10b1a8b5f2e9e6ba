//! The interface of a launcher. Its counterpart in a machine is [`vshmem_guest::hypervisor::Hypervisor`].

use super::grants::Grants;
use super::options::{ClusterOptions, PoolOptions, Progress, Refusal};
use crate::boot::driver;
use crate::boot::image::System;
use crate::boot::initramfs_files::Initramfs;
use crate::boot::software::Software;
use crate::running::Running;
use crate::shared::affinity::{self, Pins};
use crate::shared::logs;
use crate::shared::network::Link;
use crate::state::machine::Health;
use crate::state::ports::Ports;
use crate::state::record::{Granted, Machine, Record};
use crate::template::templates::Templates;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_placement::pages::Populated;

/// Starts machines.
pub trait Launcher: Sync {
    /// The facts that always hold for it.
    fn facts(&self) -> &'static Facts;

    /// An error unless it can be used on this host. Called before anything is downloaded, made or ended.
    fn check_host(&self) -> Result<()>;

    /// An error unless it supports these options.
    fn check(&self, _options: &ClusterOptions) -> std::result::Result<(), Refusal> {
        Ok(())
    }

    /// The largest pool that its machines can address, by this accelerator or else by the best that there
    /// seems to be. `None`: not known.
    fn largest_pool(&self, _accelerator: Option<&str>) -> Option<u64> {
        None
    }

    /// The URI of the service that starts its machines: the chosen one, if one is, or its default.
    fn service(&self, uri: Option<&str>) -> Result<Option<String>> {
        match uri {
            None => Ok(None),
            Some(_) => Err(Error::new("it leads to what starts the machines, which is not said (via)")),
        }
    }

    /// An error unless a machine can boot this system, as far as its files tell.
    fn check_image(&self, _system: &System) -> Result<()> {
        Err(Error::new("its machines boot no images"))
    }

    /// Whether its machines can be on a network outside of their cluster.
    fn gives_uplinks(&self) -> bool {
        false
    }

    /// True if this launcher can give its machines the host's files as a disk.
    fn gives_root_disk(&self) -> bool {
        false
    }

    /// An error unless it would start the machines of this record, as far as that can be known before
    /// anything is made: the service that starts them answers, and they can have their network outside.
    fn check_start(&self, _record: &Record) -> Result<()> {
        Ok(())
    }

    /// An error unless machines of this cluster can be restarted, as far as that can be known while they run.
    fn check_restart(&self, _record: &Record) -> Result<()> {
        Ok(())
    }

    /// Its way of granting pools to machines that run, or why this one can be granted none.
    fn grants(&self, machine: &str) -> Result<&'static dyn Grants> {
        Err(error!("{machine} can be granted no pools while it runs"))
    }

    /// Whether a machine can be granted this pool while it runs.
    fn can_grant(&self, _record: &Record, _machine: &Machine, _pool: &PoolOptions) -> bool {
        false
    }

    /// Whether a machine can lose this pool while it runs.
    fn can_revoke(&self, _record: &Record, _pool: &Granted) -> bool {
        false
    }

    /// The name of a cluster's pool in its machines.
    fn pool_name(&self, cluster: &str) -> String;

    /// The file of a cluster's pool.
    fn pool_path(&self, cluster: &str) -> PathBuf;

    /// A cluster's pool as commands on this host name it.
    fn pool_reference(&self, record: &Record) -> String {
        record.pool.to_string_lossy().into_owned()
    }

    /// Finds what machines boot. `transport` is that of their pool, if not the default; `accelerator` is one
    /// of its own; by default, the best one that works.
    fn software(
        &self,
        transport: Option<&str>,
        kernel: Option<&Path>,
        driver: &driver::Choice,
        accelerator: Option<&str>,
        report: &mut dyn FnMut(&str),
    ) -> Result<Software>;

    /// Waiters in a machine are woken by other kernels; otherwise they poll.
    fn wakes(&self, record: &Record) -> bool {
        (record.doorbell || !self.facts().needs_back_end) && record.driver.is_some()
    }

    /// Makes a cluster's pool.
    fn create_pool(&self, record: &mut Record) -> Result<()>;

    /// Removes a cluster's pool, if it still exists. The machines have ended.
    fn remove_pool(&self, record: &Record) -> Result<()>;

    /// Makes the back end serve a pool of a cluster; returns the socket that machines connect to.
    fn serve(&self, _record: &Record, _pool: &Path) -> Result<PathBuf> {
        Err(Error::new("its machines need no vshmem agent"))
    }

    /// Stops serving a pool.
    fn stop_serving(&self, _pool: &Path) {}

    /// A machine does not use a pool any more, so it is not served any longer if no other machine uses it.
    /// `process` is the pid that ran the machine.
    fn release_pool(&self, _pool: &Granted, _machine: &str, _process: Option<i32>) {}

    /// Links a machine that is restarted to its neighbours again. Reports neighbours that refuse.
    fn reconnect(&self, _record: &Record, _index: usize, _tell: &mut dyn FnMut(&str)) -> Result<Vec<Link>> {
        Ok(vec![])
    }

    /// Starts the machine with this index, and reports how its memory is taken, if that is done before it
    /// boots. It ends with this process unless it is kept.
    fn start(
        &self,
        record: &Record,
        index: usize,
        options: &StartOptions,
        links: Option<Vec<Link>>,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Started>;

    /// Makes a template that the machine with this index would thaw from, if there is none yet. Returns its
    /// name. An error also if its machines thaw from none.
    fn make_template(
        &self,
        record: &Record,
        index: usize,
        _options: &StartOptions,
        _report: &mut dyn FnMut(Progress),
    ) -> Result<String> {
        let (name, by) = (&record.machines[index].name, self.facts().name);
        Err(error!("{name} can't thaw from a template: machines of {by} boot").code(1))
    }

    /// The threads of this host that are a machine's virtual cores, in order, if they are some.
    fn core_threads(&self, _record: &Record, _index: usize) -> Result<Vec<i32>> {
        Ok(vec![])
    }

    /// Pins the threads of a machine.
    fn pin(&self, record: &Record, index: usize, pins: &Pins) -> Result<()> {
        let machine = &record.machines[index];
        let Some(process) = machine.runs.as_ref().and_then(Running::pid) else {
            return Ok(());
        };
        let threads = self.core_threads(record, index)?;
        let pinned = affinity::pin(process, &threads, pins);
        pinned.explain(|| format!("could not pin the threads of {} to their cores", machine.name))
    }

    /// Removes what there is of a cluster's machines outside of its directory, those included that no record
    /// says to run. Those that one does have ended.
    fn clear(&self, _record: &Record) -> Result<()> {
        Ok(())
    }

    /// Whether a machine that takes commands can use the pool as well.
    fn has_pool(&self, _record: &Record, _machine: &Machine) -> Result<bool> {
        Ok(true)
    }

    /// The health of a machine that runs.
    fn health(&self, record: &Record, machine: &Machine) -> Health;

    /// The last lines that a machine has printed, for an error message.
    fn last_output(&self, record: &Record, machine: &Machine) -> String;

    /// The log of what a machine's kernel and its first process print.
    fn console(&self, record: &Record, machine: &Machine) -> Result<PathBuf> {
        Ok(logs::console(&record.machine_directory(machine)?))
    }
}

/// Options that machines are started with, besides what the cluster's record says.
pub struct StartOptions<'a> {
    /// The software that they boot.
    pub software: &'a Software,
    /// Their initramfs.
    pub initramfs: &'a Initramfs,
    /// Ports for pools that are granted later.
    pub ports: Ports,
    /// The templates that they may thaw from.
    pub templates: &'a Templates,
    /// The sockets at which the back end serves the machine's pools, in order, as far as it does.
    pub doorbell_sockets: &'a [Option<PathBuf>],
}

/// Facts that always hold for a launcher.
pub struct Facts {
    /// Its name on command lines and in records.
    pub name: &'static str,
    /// A line of a help text.
    pub about: &'static str,
    /// Its requirements, as a sentence for `vshmem up --help`.
    pub needs: &'static str,
    /// A hint for machines that do not boot.
    pub boot_hint: &'static str,
    /// Its accelerators, as in records, with help texts for those that can be chosen.
    pub accelerators: &'static [(&'static str, &'static str)],
    /// The transports by which its machines can be given their pool, the default first.
    pub transports: &'static [&'static str],
    /// Channels for commands that each machine has.
    pub channels: usize,
    /// Size of a cluster's pool in bytes, by default.
    pub pool_size: u64,
    /// Clusters have a network between the machines, by default.
    pub network: bool,
    /// The back end passes doorbells on between its machines ([`Launcher::serve`]).
    pub needs_back_end: bool,
    /// Virtual cores are threads of this host, which can be pinned, and their memory is its own.
    pub can_pin: bool,
    /// Its machines can have devices of the host for themselves.
    pub gives_devices: bool,
    /// Several machines of a cluster can be started at the same time.
    pub starts_at_once: bool,
    /// A machine notices when the host's end of a channel is closed.
    pub reports_hang_up: bool,
    /// Machines and their pool have memory of their own, apart from this host's.
    pub has_own_memory: bool,
}

/// A machine that was started.
pub struct Started {
    /// The process or domain that runs it.
    pub running: Running,
    /// Has it outlive this process.
    pub keep: Keep,
    /// Its memory that was taken before it boots.
    pub populated: Option<Populated>,
}

/// Lets a machine that was started outlive this process.
pub type Keep = Box<dyn FnOnce() -> Result<()> + Send>;
