//! What machines run on, a folder for each: starting a machine, watching it and ending it is asked of a [`Hypervisor`].
//!
//! Pools are plugged into machines that run ([`super::grant`]), and machines are adopted ([`super::attach`]), with QEMU only.

pub mod qemu;
pub mod xen;

use super::boot::{Outfit, Software};
use super::driver;
use super::health::Health;
use super::process::Process;
use super::state::{Machine, Record};
use super::up::Options;
use crate::error::Result;
use qemu::sandbox::Leash;
use qemu::{accel, Link};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use xen::Domain;

/// What machines run on.
pub trait Hypervisor: Sync {
    /// An error unless it can be used here; asked before anything is downloaded, made or ended.
    fn check_host(&self) -> Result<()>;

    /// An error unless it can be used so.
    fn check(&self, options: &Options) -> Result<()>;

    /// How many channels for commands each machine has.
    fn channels(&self) -> usize;

    /// Doorbells between its machines are the back end's.
    fn needs_back_end(&self) -> bool;

    /// Virtual cores can be pinned to cores of this host.
    fn can_pin(&self) -> bool;

    /// A machine is told when the host's end of a channel is closed.
    fn tells_of_hang_ups(&self) -> bool;

    /// What machines call the pool of their cluster.
    fn pool_name(&self, cluster: &str) -> String;

    /// The file of the pool that a cluster's machines share.
    fn pool_path(&self, cluster: &str) -> PathBuf;

    /// Finds what machines boot.
    fn software(
        &self,
        kernel: Option<&Path>,
        driver: &driver::Choice,
        accel: accel::Choice,
        note: &mut dyn FnMut(&str),
    ) -> Result<Software>;

    /// Makes that pool.
    fn create_pool(&self, record: &mut Record) -> Result<()>;

    /// Removes it. The machines have ended; it may be gone already.
    fn remove_pool(&self, record: &Record) -> Result<()>;

    /// Starts the machine in this place. It ends with this process, unless it is let go of.
    fn start(
        &self,
        record: &Record,
        place: usize,
        outfit: &Outfit,
        link: Option<Link>,
    ) -> Result<(Running, Option<Leash>)>;

    /// Pins a machine's virtual cores to these.
    fn pin(&self, record: &Record, place: usize, cores: &[usize]) -> Result<()>;

    /// Whether a machine that takes commands can use the pool, too.
    fn has_pool(&self, record: &Record, machine: &Machine) -> Result<bool>;

    /// How a machine that runs is.
    fn health(&self, record: &Record, machine: &Machine) -> Health;

    /// The last lines that a machine has said, for an error message.
    fn last_words(&self, record: &Record, machine: &Machine) -> String;
}

/// A machine that was started, as long as it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Running {
    /// A process of QEMU.
    Qemu(Process),
    /// A domain of Xen.
    Xen(Domain),
}

impl Running {
    /// It has not ended.
    pub fn alive(&self) -> bool {
        match self {
            Running::Qemu(process) => process.alive(),
            Running::Xen(domain) => domain.alive(),
        }
    }

    /// Ends it, by force after `patience`, and returns when it is gone (or nothing helps).
    pub fn end(&self, patience: Duration) {
        match self {
            Running::Qemu(process) => process.end(patience),
            Running::Xen(domain) => domain.end(),
        }
    }

    /// Its process on this host, if it is one.
    pub fn pid(&self) -> Option<i32> {
        match self {
            Running::Qemu(process) => Some(process.pid),
            Running::Xen(_) => None,
        }
    }

    /// Its domain's id, if it is one.
    pub fn domain(&self) -> Option<u16> {
        match self {
            Running::Qemu(_) => None,
            Running::Xen(domain) => Some(domain.domain),
        }
    }
}
