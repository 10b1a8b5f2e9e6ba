//! What a cluster is to be.

use crate::boot::driver;
use crate::state::ports::Ports;
use std::path::PathBuf;
use std::time::Duration;

/// What to start.
#[derive(Clone)]
pub struct Options {
    /// The cluster's name.
    pub cluster: String,
    /// How many machines.
    pub machines: u32,
    /// Virtual cores of each.
    pub cpus: u32,
    /// Memory of each, in bytes.
    pub memory: u64,
    /// The transport by which the machines are given it, if not the launcher's first.
    pub transport: Option<String>,
    /// Size of the pool in bytes, a power of two.
    pub pool_size: u64,
    /// Pools of this host that they get beside it: names or paths.
    pub pools: Vec<String>,
    /// Pools have all of their memory before the machines start, and keep it.
    pub reserve: bool,
    /// Directories that they see beside the system's: `DIR`, `DIR:ro` or `DIR:rw`.
    pub shares: Vec<String>,
    /// Room for pools that they are granted later.
    pub ports: Ports,
    /// A network between the machines.
    pub network: bool,
    /// Doorbells between the machines, by the back end; if not said, where they have the driver.
    pub doorbell: Option<bool>,
    /// The driver that the machines load.
    pub driver: driver::Choice,
    /// What carries out their instructions, if not the best that works.
    pub accel: Option<String>,
    /// A kernel image to use.
    pub kernel: Option<PathBuf>,
    /// How long the machines may take to boot.
    pub timeout: Duration,
}

/// What `up` is doing.
#[derive(Debug, Clone)]
pub enum Progress {
    /// Something worth a line.
    Message(String),
    /// This machine takes commands now.
    Ready(String),
}
