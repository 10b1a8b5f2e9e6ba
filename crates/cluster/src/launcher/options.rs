//! Options of a new cluster, and the progress of starting it.

use crate::boot::driver;
use crate::state::ports::Ports;
use std::path::PathBuf;
use std::time::Duration;

/// Options of a new cluster.
#[derive(Clone)]
pub struct Options {
    /// The cluster's name.
    pub cluster: String,
    /// Number of machines.
    pub machines: u32,
    /// Virtual cores of each machine.
    pub cpus: u32,
    /// Memory of each machine in bytes.
    pub memory: u64,
    /// The transport of the pool, if not the launcher's default.
    pub transport: Option<String>,
    /// Size of the pool in bytes, a power of two.
    pub pool_size: u64,
    /// Further pools of this host for the machines: names or paths.
    pub pools: Vec<String>,
    /// Back all pools with memory before the machines start, for good.
    pub reserve: bool,
    /// Directories that machines see besides the system's: `DIR`, `DIR:ro` or `DIR:rw`.
    pub shares: Vec<String>,
    /// Ports for pools that are granted later.
    pub ports: Ports,
    /// A network between the machines.
    pub network: bool,
    /// Doorbells between the machines, served by the back end; by default, if the machines load the driver.
    pub doorbell: Option<bool>,
    /// The driver that the machines load.
    pub driver: driver::Choice,
    /// The accelerator; by default, the best one that works.
    pub accel: Option<String>,
    /// The kernel image; by default, one that is found.
    pub kernel: Option<PathBuf>,
    /// Time limit for booting.
    pub timeout: Duration,
}

/// Progress of starting machines.
#[derive(Debug, Clone)]
pub enum Progress {
    /// A message for the user.
    Message(String),
    /// This machine takes commands now.
    Ready(String),
}
