//! The end of a command.

use serde::{Deserialize, Serialize};

/// The end of a command: its exit code, or the signal that killed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It called exit with this code.
    Exited(u8),
    /// This signal killed it.
    Killed(u8),
}

impl Ended {
    /// The exit code by which a shell reports it.
    pub fn code(self) -> u8 {
        match self {
            Ended::Exited(code) => code,
            Ended::Killed(signal) => 128u8.saturating_add(signal),
        }
    }

    /// The end that a status of `waitpid` means.
    pub fn from_wait(status: i32) -> Ended {
        if libc::WIFSIGNALED(status) {
            Ended::Killed(libc::WTERMSIG(status) as u8)
        } else {
            Ended::Exited(libc::WEXITSTATUS(status) as u8)
        }
    }
}
