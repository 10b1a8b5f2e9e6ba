//! What launchers have started.

use super::xen::domain::Domain;
use crate::state::process::Process;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What runs a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Running {
    /// A process of this host.
    Process(Process),
    /// A domain on the same hypervisor.
    Domain(Domain),
}

impl Running {
    /// It has not ended.
    pub fn alive(&self) -> bool {
        match self {
            Running::Process(process) => process.alive(),
            Running::Domain(domain) => domain.alive(),
        }
    }

    /// Ends it, by force after `timeout`, and returns when it has ended (or nothing helps).
    pub fn end(&self, timeout: Duration) {
        match self {
            Running::Process(process) => process.end(timeout),
            Running::Domain(domain) => domain.end(),
        }
    }

    /// Its pid, if it is a process.
    pub fn pid(&self) -> Option<i32> {
        match self {
            Running::Process(process) => Some(process.pid),
            Running::Domain(_) => None,
        }
    }

    /// Its domain id, if it is a domain.
    pub fn domain(&self) -> Option<u16> {
        match self {
            Running::Process(_) => None,
            Running::Domain(domain) => Some(domain.domain),
        }
    }
}
