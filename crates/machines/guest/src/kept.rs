//! Keeps further processes of this program running beside the agent: the machine's front end, and what leases
//! its address on a network outside.

use super::console::print;
use super::hypervisor::table;
use crate::settings::Settings;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vshmem_base::signal_mask;

/// Pause before one is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// A process that is kept running.
pub struct Kept {
    what: &'static str,
    arguments: Vec<String>,
    pid: Option<i32>,
    due: Instant,
}

impl Kept {
    /// The machine's front end, which is due at once.
    pub fn front_end(settings: &Settings) -> Kept {
        Kept::new("the front end", table::of(&settings.launcher).front_end(settings.uid))
    }

    /// What `vshmem` does with these arguments, which is due at once.
    pub fn new(what: &'static str, arguments: Vec<String>) -> Kept {
        Kept { what, arguments, pid: None, due: Instant::now() }
    }

    /// When it is due, if it does not run.
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
                self.due = Instant::now() + 60 * PAUSE;
            }
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, pid: i32) {
        if self.pid == Some(pid) {
            self.pid = None;
            self.due = Instant::now() + PAUSE;
        }
    }
}
