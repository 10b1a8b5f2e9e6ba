//! The sockets of a machine's QEMU, and what QEMU calls what is behind them.

use std::path::{Path, PathBuf};

/// The socket of a machine's monitor.
pub fn monitor_socket(directory: &Path) -> PathBuf {
    directory.join("qmp.sock")
}

/// What QEMU calls the channel to a machine's front end.
pub const AGENT: &str = "agent";

/// The socket by which a machine's front end is talked to.
pub fn agent_socket(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}
