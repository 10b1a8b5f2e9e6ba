//! What is asked of a launcher, on the host ([`Launcher`]) and in a machine ([`Guest`]).

use super::network::Link;
use super::options::Options;
use super::running::Running;
use crate::boot::driver;
use crate::boot::initramfs::Initramfs;
use crate::boot::software::Software;
use crate::error::{Error, Result};
use crate::state::machine::Health;
use crate::state::ports::Ports;
use crate::state::record::{Granted, Machine, Record};
use std::path::{Path, PathBuf};

/// What can start machines.
pub trait Launcher: Sync {
    /// What it is called on command lines.
    fn name(&self) -> &'static str;

    /// For people, in a line of a help text.
    fn about(&self) -> &'static str;

    /// What it takes, in a sentence for `vshmem up --help`.
    fn needs(&self) -> &'static str;

    /// What can carry out the machines' instructions, as records say; and for people, if it can be chosen.
    fn accelerators(&self) -> &'static [(&'static str, &'static str)];

    /// The transports by which its machines can be given their pool; the first one if nothing else is said.
    fn transports(&self) -> &'static [&'static str];

    /// What clusters have, unless something else is asked for.
    fn defaults(&self) -> Defaults;

    /// An error unless it can be used here; asked before anything is downloaded, made or ended.
    fn check_host(&self) -> Result<()>;

    /// An error unless it can be used so.
    fn check(&self, options: &Options) -> Result<()>;

    /// An error unless machines of this cluster can be started anew, as far as that can be known while they run.
    fn check_restart(&self, _record: &Record) -> Result<()> {
        Ok(())
    }

    /// An error unless its machines can be granted pools while they run.
    fn check_grants(&self, _machine: &str) -> Result<()> {
        Ok(())
    }

    /// How many channels for commands each machine has.
    fn channels(&self) -> usize;

    /// Doorbells between its machines are the back end's, which [`Launcher::serve`] asks.
    fn needs_back_end(&self) -> bool {
        false
    }

    /// Virtual cores can be pinned to cores of this host.
    fn can_pin(&self) -> bool {
        false
    }

    /// A machine is told when the host's end of a channel is closed.
    fn reports_hang_up(&self) -> bool {
        false
    }

    /// Machines, and the pool that they share, have memory of their own, and take none of this host's.
    fn has_own_memory(&self) -> bool {
        false
    }

    /// What machines call the pool of their cluster.
    fn pool_name(&self, cluster: &str) -> String;

    /// The file of the pool that a cluster's machines share.
    fn pool_path(&self, cluster: &str) -> PathBuf;

    /// That pool as commands on this host take it.
    fn pool_reference(&self, record: &Record) -> String {
        record.pool.to_string_lossy().into_owned()
    }

    /// Finds what machines boot that are given their pool by this transport, if it is not the first one. `accelerator` is one of its own; none: the
    /// best that works.
    fn software(
        &self,
        transport: Option<&str>,
        kernel: Option<&Path>,
        driver: &driver::Choice,
        accelerator: Option<&str>,
        report: &mut dyn FnMut(&str),
    ) -> Result<Software>;

    /// Processes that wait in a machine are woken from others, rather than look by themselves.
    fn wakes(&self, record: &Record) -> bool {
        (record.doorbell || !self.needs_back_end()) && record.driver.is_some()
    }

    /// Makes that pool.
    fn create_pool(&self, record: &mut Record) -> Result<()>;

    /// Removes it. The machines have ended; it may be gone already.
    fn remove_pool(&self, record: &Record) -> Result<()>;

    /// Has a pool served by the back end; returns the socket that machines connect to.
    fn serve(&self, _pool: &Path) -> Result<PathBuf> {
        Err(Error::new("its machines need no back end"))
    }

    /// The pool is served no longer.
    fn end_service(&self, _pool: &Path) {}

    /// A machine has let go of a pool: it is served no longer if no other machine uses it. `process` is the one that ran
    /// the machine.
    fn release_pool(&self, _pool: &Granted, _machine: &str, _process: Option<i32>) {}

    /// New links of a machine that is started anew, to those that run. `report` hears of a machine that does not take its
    /// end.
    fn reconnect(
        &self,
        _record: &Record,
        _place: usize,
        _tell: &mut dyn FnMut(&str),
    ) -> Result<Vec<Link>> {
        Ok(vec![])
    }

    /// Starts the machine in this index. It ends with this process, unless it is let go of.
    fn start(
        &self,
        record: &Record,
        index: usize,
        options: &StartOptions,
        links: Option<Vec<Link>>,
    ) -> Result<(Running, Keep)>;

    /// Pins a machine's virtual cores to these.
    fn pin(&self, _record: &Record, _place: usize, _cores: &[usize]) -> Result<()> {
        Ok(())
    }

    /// Whether a machine that takes commands can use the pool, too.
    fn has_pool(&self, _record: &Record, _machine: &Machine) -> Result<bool> {
        Ok(true)
    }

    /// How a machine that runs is.
    fn health(&self, record: &Record, machine: &Machine) -> Health;

    /// The last lines that a machine has said, for an error message.
    fn last_output(&self, record: &Record, machine: &Machine) -> String;

    /// What may help where a machine does not boot.
    fn boot_hint(&self) -> &'static str;

    /// The machine's side.
    fn guest(&self) -> &'static dyn Guest;
}

/// What machines are started with, besides what the cluster's record says.
pub struct StartOptions<'a> {
    /// What they boot.
    pub software: &'a Software,
    /// And from where.
    pub initramfs: &'a Initramfs,
    /// Room for pools that they are granted later.
    pub ports: Ports,
    /// Where the back end serves each of their pools, or nothing.
    pub doorbell_sockets: &'a [PathBuf],
}

/// What clusters have, unless something else is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    /// Size of their pool in bytes.
    pub pool_size: u64,
    /// A network between the machines.
    pub network: bool,
}

/// What is to be called when a machine that was started may outlive this process.
pub type Keep = Box<dyn FnOnce() -> Result<()>>;

/// What machines of a launcher have that others have in another way; asked in the machine.
pub trait Guest: Sync {
    /// How the host's file tree comes: the option `trans` of 9p.
    fn file_transport(&self) -> &'static str;

    /// The device files of the channels for commands, when there are so many.
    fn channels(&self, count: usize) -> Result<Vec<PathBuf>>;

    /// Lets this user map the pools that are there from the start.
    fn set_pool_owner(&self, uid: u32) -> Result<()>;

    /// Notes why the driver could not be loaded, for the front end to report.
    fn driver_failed(&self, _why: &str) {}

    /// What the front end is called by, as arguments of this program.
    fn front_end(&self, uid: u32) -> Vec<String>;
}
