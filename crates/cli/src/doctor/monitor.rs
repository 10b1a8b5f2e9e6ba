//! How a machine's monitor is asked.

use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use vshmem_cluster::Monitor;

/// A monitor has one client at a time, who may stay: it is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks the monitor that listens at a socket.
pub fn ask(socket: &Path, command: &str, arguments: Value) -> Result<Value, String> {
    let connect = || Monitor::Qmp(socket.to_owned()).connect(PATIENCE)?.call(command, arguments);
    connect().map_err(|error| error.to_string())
}
