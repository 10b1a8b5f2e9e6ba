//! Supervised processes: further processes of this program that run beside the agent. They are the machine's
//! front end, and the DHCP client of its uplink.

use super::console::print;
use super::hypervisor::table;
use crate::settings::Settings;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vshmem_base::signal_mask;

/// Time before a process that has ended is started again.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// A process that is started again when it ends.
pub struct Supervised {
    what: &'static str,
    arguments: Vec<String>,
    pid: Option<i32>,
    due: Instant,
}

impl Supervised {
    /// The process of the machine's front end, which is due at once.
    pub fn front_end(settings: &Settings) -> Supervised {
        Supervised::new("vshmem agent --guest", table::of(&settings.launcher).front_end(settings.uid))
    }

    /// The process of `vshmem` with these arguments, which is due at once.
    pub fn new(what: &'static str, arguments: Vec<String>) -> Supervised {
        Supervised { what, arguments, pid: None, due: Instant::now() }
    }

    /// The time at which it is due, if it does not run.
    pub fn deadline(&self) -> Option<Instant> {
        self.pid.is_none().then_some(self.due)
    }

    /// Starts it if it is due.
    pub fn start_if_due(&mut self) {
        if self.pid.is_some() || Instant::now() < self.due {
            return;
        }
        // The first process still has its file, although the initramfs is out of sight.
        let mut command = Command::new("/proc/self/exe");
        command.args(&self.arguments);
        command.env_clear().stdin(Stdio::null());
        signal_mask::unblock(&mut command);
        match command.spawn() {
            Ok(child) => self.pid = Some(child.id() as i32),
            Err(e) => {
                print(&format!("vshmem: {} can't be started: {e}", self.what));
                self.due = Instant::now() + 60 * RESTART_DELAY;
            }
        }
    }

    /// Notes that a process has ended, which may be this one.
    pub fn ended(&mut self, pid: i32) {
        if self.pid == Some(pid) {
            self.pid = None;
            self.due = Instant::now() + RESTART_DELAY;
        }
    }
}
