//! What machines run on, a folder for each: starting a machine, watching it and ending it is asked of a [`Hypervisor`].
//!
//! Pools are plugged into machines that run ([`super::grant`]), and machines are adopted ([`super::attach`]), with QEMU only.

pub mod qemu;

use super::boot::{Outfit, Software};
use super::driver;
use super::health::Health;
use super::process::Process;
use super::state::{Machine, Record};
use crate::error::Result;
use qemu::{accel, Link};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

/// What machines run on.
pub trait Hypervisor: Sync {
    /// An error unless it can be used here; asked before anything is downloaded or made.
    fn check_installed(&self) -> Result<()>;

    /// How many channels for commands each machine has.
    fn channels(&self) -> usize;

    /// Finds what machines boot.
    fn software(
        &self,
        kernel: Option<&Path>,
        driver: &driver::Choice,
        accel: accel::Choice,
        note: &mut dyn FnMut(&str),
    ) -> Result<Software>;

    /// Makes the pool that a cluster's machines share.
    fn create_pool(&self, record: &mut Record) -> Result<()>;

    /// Removes it. The machines have ended; it may be gone already.
    fn remove_pool(&self, record: &Record) -> Result<()>;

    /// Starts the machine in this place. A child that is returned is ended by the caller if the machine does not come up.
    fn start(
        &self,
        record: &Record,
        place: usize,
        outfit: &Outfit,
        link: Option<Link>,
    ) -> Result<(Option<Child>, Running)>;

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
}

impl Running {
    /// It has not ended.
    pub fn alive(&self) -> bool {
        match self {
            Running::Qemu(process) => process.alive(),
        }
    }

    /// Ends it, after `patience` at once, and returns when it is gone (or nothing helps).
    pub fn end(&self, patience: Duration) {
        match self {
            Running::Qemu(process) => process.end(patience),
        }
    }

    /// Its process on this host.
    pub fn pid(&self) -> Option<i32> {
        match self {
            Running::Qemu(process) => Some(process.pid),
        }
    }
}
