//! What launchers have started.

use super::xen::domain::Domain;
use crate::state::process::Process;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A machine that was started, as long as it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Running {
    /// A process of this host.
    Process(Process),
    /// A domain beside it.
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

    /// Ends it, by force after `timeout`, and returns when it is gone (or nothing helps).
    pub fn end(&self, timeout: Duration) {
        match self {
            Running::Process(process) => process.end(timeout),
            Running::Domain(domain) => domain.end(),
        }
    }

    /// Its process on this host, if it is one.
    pub fn pid(&self) -> Option<i32> {
        match self {
            Running::Process(process) => Some(process.pid),
            Running::Domain(_) => None,
        }
    }

    /// Its domain's id, if it is one.
    pub fn domain(&self) -> Option<u16> {
        match self {
            Running::Process(_) => None,
            Running::Domain(domain) => Some(domain.domain),
        }
    }
}
