//! The sockets of a machine's QEMU.

use std::path::{Path, PathBuf};

/// The socket of a machine's monitor.
pub fn monitor_socket(directory: &Path) -> PathBuf {
    directory.join("qmp.sock")
}

/// QEMU's id of the channel to a machine's front end.
pub const AGENT: &str = "agent";

/// libvirt's alias of that channel.
pub const AGENT_ALIAS: &str = "ua-agent";

/// The socket of that channel.
pub fn agent_socket(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}
