//! A domain that runs.

use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const PROGRAM: &str = "xl";
/// How long a domain may be seen after it was destroyed.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(20);

/// A domain, as long as it exists: ids are given again, so its UUID belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Its id.
    pub domain: u16,
    /// Its UUID.
    pub uuid: String,
}

impl Domain {
    /// It exists. xl's own process destroys it when it has turned itself off, or has crashed.
    pub fn alive(&self) -> bool {
        vshmem_agent::xen::is_domain(self.domain, &self.uuid).unwrap_or(false)
    }

    /// It has attached this pool of dom0's.
    pub fn has_attached(&self, pool: &str) -> bool {
        self.alive() && vshmem_agent::xen::has_attached(self.domain, pool).unwrap_or(false)
    }

    /// Destroys it, as if its power failed, and returns when it is gone (or nothing helps).
    pub fn end(&self) {
        if !self.alive() {
            return;
        }
        destroy(self.domain);
        let deadline = Instant::now() + DESTROY_TIMEOUT;
        while self.alive() && Instant::now() < deadline {
            sleep(Duration::from_millis(20));
        }
    }
}

pub fn destroy(domain: u16) {
    let mut command = Command::new(PROGRAM);
    command
        .args(["destroy", &domain.to_string()])
        .stdin(Stdio::null());
    // Whether it is gone is looked at afterwards.
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}
