//! The sockets of a machine's QEMU.

use std::fs;
use std::path::{Path, PathBuf};

/// Removes the sockets, and files of their locks, in a machine's directory.
pub fn remove_sockets(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "sock" || ending == "lock") {
            let _ = fs::remove_file(path);
        }
    }
}

/// The socket of a machine's monitor.
pub fn monitor_socket(directory: &Path) -> PathBuf {
    directory.join("qmp.sock")
}

/// The socket of the port by which a machine that thaws is told who it is.
pub fn settings_socket(directory: &Path) -> PathBuf {
    directory.join("settings.sock")
}

/// QEMU's id of the channel to a machine's front end.
pub const AGENT: &str = "agent";

/// libvirt's alias of that channel.
pub const AGENT_ALIAS: &str = "ua-agent";

/// The socket of that channel.
pub fn agent_socket(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}
