//! Options of a cluster, with every default, and the progress of starting it.

use crate::boot::driver;
use crate::boot::image::Image;
use crate::state::ports::Ports;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use vshmem_base::error::Error;
use vshmem_devices::want::Want;
use vshmem_guest::settings::uplink::Uplink;
use vshmem_placement::pages::{PageRules, Pages, PoolNodes};
use vshmem_placement::rules::Rules;

/// Options of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterOptions {
    /// The cluster's name.
    pub cluster: String,
    /// Its machines.
    pub machines: Vec<MachineOptions>,
    /// Its pools, its own one first.
    pub pools: Vec<PoolOptions>,
    /// Directories that machines see besides the system's: `DIR`, `DIR:ro` or `DIR:rw`.
    pub shares: Vec<String>,
    /// Ports for pools that are granted later.
    pub ports: Ports,
    /// The placement of machines on this host; by default, each virtual core on a core of its own, if there
    /// are as many.
    #[serde(default)]
    pub placement: Option<Rules>,
    /// The rules by which machines and pools get their pages.
    #[serde(default)]
    pub pages: PageRules,
    /// A network between the machines.
    pub network: bool,
    /// A network outside that they are on.
    #[serde(default)]
    pub uplink: Option<Uplink>,
    /// Doorbells between the machines, served by the back end; by default, if the machines load the driver.
    pub doorbell: Option<bool>,
    /// The driver that the machines load.
    pub driver: driver::Choice,
    /// The URI of the service that starts the machines, if one does.
    #[serde(default)]
    pub service: Option<String>,
    /// The accelerator; by default, the best one that works.
    pub accel: Option<String>,
    /// The kernel image; by default, one that is found.
    pub kernel: Option<PathBuf>,
    /// The way in which machines see the host's files.
    #[serde(default)]
    pub root: RootKind,
    /// Machines boot, also where they could thaw from a template.
    #[serde(default)]
    pub cold: bool,
}

/// The way in which machines with the host's root see its files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RootKind {
    /// By a file server, as they are.
    #[default]
    #[serde(rename = "9p")]
    NineP,
    /// As a disk, as they were when the machines started.
    #[serde(rename = "erofs")]
    Erofs,
}

impl RootKind {
    /// All, by the names that options have for them.
    pub const ALL: [(&'static str, RootKind); 2] = [("9p", RootKind::NineP), ("erofs", RootKind::Erofs)];

    /// The one of this name.
    pub fn named(name: &str) -> Option<RootKind> {
        RootKind::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        RootKind::ALL.into_iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// Options of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineOptions {
    /// Its name.
    pub name: String,
    /// Virtual cores.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The pages of its memory; by default, what the kernel gives.
    #[serde(default)]
    pub pages: Option<Pages>,
    /// The devices of the host that it has for itself.
    #[serde(default)]
    pub devices: Vec<Want>,
    /// The image that it boots.
    #[serde(default)]
    pub image: Image,
    /// The pools that it gets, by their names, in their order.
    pub pools: Vec<String>,
}

/// Options of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolOptions {
    /// Its name in machines.
    pub name: String,
    /// The pool of this host that it is, a name or a path; by default, it is made for the cluster.
    pub host: Option<String>,
    /// Its size in bytes, a power of two, if it is made.
    pub size: u64,
    /// Segments in it begin at a multiple of this, if it is made.
    pub align: u64,
    /// The transport by which machines get it, if not the launcher's default.
    pub transport: Option<String>,
    /// Back it with memory before the machines start, for good.
    pub reserve: bool,
    /// The pages that it is in, if it is made; by default, what its file system gives.
    #[serde(default)]
    pub pages: Option<Pages>,
    /// The nodes that its memory comes from, if it is made; by default, where it is touched.
    #[serde(default)]
    pub node: Option<PoolNodes>,
}

/// An option that a launcher can't serve.
#[derive(Debug)]
pub struct Refusal {
    /// The option.
    pub place: RefusedOption,
    /// The reason.
    pub error: Error,
}

/// The option of a cluster that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedOption {
    /// The network between the machines.
    Network,
    /// The network outside that the machines are on.
    Uplink,
    /// The pages of the machine with this index.
    Pages(usize),
    /// The pool of this name.
    Pool(String),
    /// Another one, which the reason names.
    Other,
}

impl Refusal {
    /// The refusal of this option, for this reason.
    pub fn new(place: RefusedOption, why: impl Into<String>) -> Refusal {
        Refusal { place, error: Error::new(why).code(2) }
    }
}

/// Progress of starting machines.
#[derive(Debug, Clone)]
pub enum Progress {
    /// A message for the user.
    Message(String),
    /// Something that is not as it was asked for.
    Warning(String),
    /// This machine takes commands now.
    Ready(String),
}
