//! A domain of Xen that was started as a machine.

use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The command of Xen's toolstack.
pub const PROGRAM: &str = "xl";
/// Time for which a domain may be visible after it was destroyed.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(20);

/// A domain by id and UUID: ids are reused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Its id.
    pub domain: u16,
    /// Its UUID.
    pub uuid: String,
}

impl Domain {
    /// Whether it exists. xl's process destroys it when it shuts down or crashes.
    pub fn alive(&self) -> bool {
        vshmem_agent::xen::is_domain(self.domain, &self.uuid).unwrap_or(false)
    }

    /// Whether it has attached this pool of dom0's.
    pub fn has_attached(&self, pool: &str) -> bool {
        self.alive() && vshmem_agent::xen::has_attached(self.domain, pool).unwrap_or(false)
    }

    /// Destroys it, like a power failure, and returns when it is gone (or nothing helps).
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

/// Ends a domain by force.
pub fn destroy(domain: u16) {
    let mut command = Command::new(PROGRAM);
    command.args(["destroy", &domain.to_string()]).stdin(Stdio::null());
    // The caller looks whether it is gone.
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}
