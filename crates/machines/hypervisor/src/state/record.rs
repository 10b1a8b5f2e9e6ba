//! Records of clusters and their machines.

use super::ports::Ports;
use crate::boot::image::Image;
use crate::launcher::options::{ClusterOptions, PoolOptions};
use crate::running::Running;
use crate::shared::pool;
use crate::shared::root_server::Root;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use vshmem_base::directories::{boot_id, check_name, cluster_directory, runtime_path};
use vshmem_base::error::Result;
use vshmem_base::process::Process;
use vshmem_base::{stored, user};
use vshmem_devices::choose::Assigned;
use vshmem_inspect::participants::MemberId;
use vshmem_placement::binding::Resident;
use vshmem_placement::pages::{Given, PoolNodes};
use vshmem_placement::plan::Placed;
use vshmem_session::share::Share;

/// A pool that a machine has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// Its name in the machine.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// The back end serves it to this machine.
    pub doorbell: bool,
    /// The machine's member in the pool, if its front end has reported it.
    #[serde(default)]
    pub member: Option<MemberId>,
    /// The transport, if it is not the launcher's default. The machine then can't lose the pool.
    #[serde(default)]
    pub transport: Option<String>,
}

impl Granted {
    /// A pool that comes by the launcher's default transport.
    pub fn new(name: String, path: PathBuf, size: u64, doorbell: bool) -> Granted {
        Granted { name, path, size, doorbell, member: None, transport: None }
    }
}

/// One machine of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// `vm0`, `vm1`, ...
    pub name: String,
    /// Its index among the machines.
    pub index: u32,
    /// Seconds since the epoch when it was last started, if not with the cluster.
    #[serde(default)]
    pub since: Option<u64>,
    /// Its process or domain.
    pub runs: Option<Running>,
    /// Its address on the network between the machines.
    pub address: Option<String>,
    /// The host's core that each of its virtual cores is pinned to; empty if they are not pinned.
    pub cores: Vec<usize>,
    /// Its placement, if one was asked for.
    #[serde(default)]
    pub placement: Option<Box<Placed>>,
    /// The nodes and pages of its memory once it was up.
    #[serde(default)]
    pub resident: Option<Box<Resident>>,
    /// The pages of its memory that were asked for, and those that it was given.
    #[serde(default)]
    pub pages: Box<Given>,
    /// Its virtual cores; zero in records of older versions, which don't say what to start it with.
    #[serde(default)]
    pub cpus: u32,
    /// Its memory in bytes.
    #[serde(default)]
    pub memory: u64,
    /// The devices that it has for itself.
    #[serde(default)]
    pub devices: Vec<Assigned>,
    /// The image that it boots.
    #[serde(default)]
    pub image: Image,
    /// The pools that it starts with.
    #[serde(default)]
    pub first_pools: Vec<Granted>,
    /// Its pools, and those that an interrupted command was about to plug in or take out; the hypervisor
    /// knows which.
    #[serde(default)]
    pub pools: Vec<Granted>,
    /// Pools that it had when it died, besides the cluster's, once it has been declared dead in them.
    #[serde(default)]
    pub lost_pools: Vec<Granted>,
    /// Its options were changed after it started: it takes a restart.
    #[serde(default)]
    pub outdated: bool,
    /// The user that it runs as, if not its starter.
    #[serde(default)]
    pub user: Option<u32>,
}

impl Machine {
    /// The user that it runs as, if not its starter. Older versions counted from the first.
    pub fn user(&self) -> Option<u32> {
        (user::uid() == 0).then(|| self.user.unwrap_or(user::MACHINE_USERS.start + self.index))
    }
}

/// A pool that was made for a cluster, and its memory.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MadePool {
    /// Its name in machines.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Its pages.
    pub pages: Given,
    /// The nodes of the host that were asked for; null: wherever it is touched first.
    pub node: Option<PoolNodes>,
    /// The nodes and pages of its memory once it had been taken; null: it was not taken ahead of time.
    pub resident: Option<Resident>,
}

impl MadePool {
    /// A pool as it was asked for, whose pages are still to be chosen.
    pub fn of(wanted: &PoolOptions, path: PathBuf) -> MadePool {
        let PoolOptions { name, size, node, .. } = wanted.clone();
        let pages = Given { wanted: wanted.pages, ..Given::default() };
        MadePool { name, path, size, pages, node, resident: None }
    }
}

/// The record of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Version of this format.
    pub version: u32,
    /// The cluster's name.
    pub name: String,
    /// The boot of the host that it belongs to.
    pub boot: String,
    /// The `vshmem up` that is starting it, if one is.
    pub starter: Option<Process>,
    /// The process that owns the pool, if one does.
    #[serde(default)]
    pub owner: Option<Process>,
    /// The URI of the service that has started its machines, if one has.
    #[serde(default)]
    pub service: Option<String>,
    /// The accelerator: how the machines' instructions are executed.
    pub accel: String,
    /// The kernel that the machines run.
    pub kernel: PathBuf,
    /// The file behind the pool.
    pub pool: PathBuf,
    /// Size of the pool in bytes.
    pub pool_size: u64,
    /// The transport of the pool, if not the launcher's default.
    #[serde(default)]
    pub transport: Option<String>,
    /// The back end serves doorbells on the pool.
    #[serde(default)]
    pub doorbell: bool,
    /// The driver that the machines load, if any.
    #[serde(default)]
    pub driver: Option<PathBuf>,
    /// Ports for pools that machines are granted while they run.
    #[serde(default)]
    pub ports: Ports,
    /// Files of this host that machines see, besides the system's.
    #[serde(default)]
    pub shares: Vec<Share>,
    /// The root that machines have as a disk, if they do.
    #[serde(default)]
    pub root: Option<Root>,
    /// Channels for commands that each machine has.
    pub channels: usize,
    /// Seconds since the epoch when it was started.
    pub since: u64,
    /// The machines.
    pub machines: Vec<Machine>,
    /// Names of further pools that were made for it, or their paths, which are removed with it.
    #[serde(default)]
    pub made_pools: Vec<String>,
    /// All pools that were made for it, its own one first, with their memory.
    #[serde(default)]
    pub pools: Vec<MadePool>,
    /// The options that the cluster was started with.
    #[serde(default)]
    pub options: Option<ClusterOptions>,
}

/// The format that this program writes.
pub const VERSION: u32 = 2;
const RECORD: &str = "cluster.json";

impl Record {
    /// Whether machines that died can be restarted: the cluster was up in this boot of the host, and its pool
    /// exists.
    pub fn is_left_to_restart(&self) -> bool {
        self.boot == boot_id() && self.starter.is_none() && self.pool.exists()
    }

    /// A transport by which machines start with a pool, if not the launcher's default.
    pub fn other_transport(&self) -> Option<&str> {
        let mut pools = self.machines.iter().flat_map(|machine| &machine.first_pools);
        pools.find_map(|pool| pool.transport.as_deref())
    }

    /// Changes the file of a pool that is still to be made.
    pub fn move_pool(&mut self, from: &Path, to: &Path) {
        let machines = self.machines.iter_mut();
        let granted = machines.flat_map(|machine| machine.pools.iter_mut().chain(&mut machine.first_pools));
        granted.filter(|pool| pool.path == from).for_each(|pool| pool.path = to.into());
        if self.pool == from {
            self.pool = to.into();
        }
        let (old, new) = (pool::reference(from), pool::reference(to));
        self.made_pools.iter_mut().filter(|made| **made == old).for_each(|made| made.clone_from(&new));
    }

    /// Reads a cluster's record; `None` if there is none.
    pub fn read(name: &str) -> Result<Option<Record>> {
        let hint = format!("Remove what is left with: vshmem down --cluster {name}");
        if !runtime_path().exists() {
            return check_name(name).map(|()| None);
        }
        stored::read(&cluster_directory(name)?.join(RECORD), VERSION, &hint)
    }

    /// Reads the record of the cluster with this directory; `None` if there is none.
    pub fn read_in(directory: &Path) -> Result<Option<Record>> {
        stored::read(&directory.join(RECORD), VERSION, "Remove what is left with: vshmem down")
    }

    /// Replaces the record.
    pub fn write(&self) -> Result<()> {
        stored::write(&cluster_directory(&self.name)?.join(RECORD), self)
    }

    /// The directory of a machine's sockets and logs.
    pub fn machine_directory(&self, machine: &Machine) -> Result<PathBuf> {
        Ok(cluster_directory(&self.name)?.join(&machine.name))
    }
}
