//! The launchers that there are, and what they have started.

/// Machines that others have started: so far, one launcher can adopt them.
pub use super::qemu::adopted;
#[cfg(any(test, feature = "fuzz"))]
pub use super::qemu::fuzz::READERS;
pub use super::qemu::health::clear as clear_adopted;
/// As which user a machine runs, if not as the one who started it.
pub use super::qemu::sandbox::user as machine_user;

use super::qemu::Qemu;
use super::xen::{Domain, Xen};
use super::{Guest, Launcher};
use crate::host::process::Process;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The launchers; the first one is what machines are started by if nothing else is said.
pub fn launchers() -> [&'static dyn Launcher; 2] {
    [&Qemu, &Xen]
}

/// The launcher of this name.
pub fn by_name(name: &str) -> Option<&'static dyn Launcher> {
    launchers()
        .into_iter()
        .find(|launcher| launcher.name() == name)
}

/// The launcher of machines whose instructions are carried out so.
pub fn by_accelerator(accelerator: &str) -> &'static dyn Launcher {
    let its = |launcher: &&dyn Launcher| {
        let mut all = launcher.accelerators().iter();
        all.any(|(name, _)| *name == accelerator)
    };
    launchers().into_iter().find(its).unwrap_or(launchers()[0])
}

/// The machine's side of the launcher of this name; of the first one, if there is none.
pub fn guest(launcher: &str) -> &'static dyn Guest {
    by_name(launcher).unwrap_or(launchers()[0]).guest()
}

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

    /// Ends it, by force after `patience`, and returns when it is gone (or nothing helps).
    pub fn end(&self, patience: Duration) {
        match self {
            Running::Process(process) => process.end(patience),
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
