//! Keeps the machine's front end running, which is another process of this program.

use super::console::print;
use crate::launcher::table;
use crate::signals;
use crate::state::settings::Settings;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Pause before it is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// The front end's process.
pub struct FrontEnd {
    arguments: Vec<String>,
    pid: Option<i32>,
    due: Instant,
}

impl FrontEnd {
    /// A front end that is due at once.
    pub fn new(settings: &Settings) -> FrontEnd {
        FrontEnd {
            arguments: table::guest(&settings.launcher).front_end(settings.uid),
            pid: None,
            due: Instant::now(),
        }
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
        signals::unblock(&mut command);
        match command.spawn() {
            Ok(child) => self.pid = Some(child.id() as i32),
            Err(e) => {
                print(&format!("vshmem: the front end can't be started: {e}"));
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
