//! The connection to a machine: its QEMU's monitor, and the channel to its front end.

use super::attached::{Attached, Monitor};
use super::plug::{self, Channel};
use super::qmp::Qmp;
use crate::running::Running;
use crate::shared::sockets::{agent_socket, monitor_socket, AGENT, AGENT_ALIAS};
use crate::state::record::{Machine, Record};
use std::path::PathBuf;
use std::time::Duration;
use vshmem_base::error::Result;

/// The connection to a machine: its QEMU's monitor, and the channel to its front end.
pub struct Connection {
    /// The monitor of its QEMU.
    pub monitor: Monitor,
    /// QEMU's id of the channel to the front end, if there is one.
    label: Option<String>,
    /// The channel's socket, if QEMU does not know the path.
    socket: Option<PathBuf>,
}

impl Connection {
    /// The connection to a cluster's machine.
    pub fn to_machine(record: &Record, machine: &Machine) -> Result<Connection> {
        let directory = record.machine_directory(machine)?;
        if let Some(managed) = machine.runs.as_ref().and_then(Running::managed) {
            return Ok(Connection {
                monitor: Monitor::Libvirt(managed.libvirt.clone()),
                // libvirt puts this before its alias.
                label: Some(format!("char{AGENT_ALIAS}")),
                socket: Some(agent_socket(&directory)),
            });
        }
        Ok(Connection {
            monitor: Monitor::Qmp(monitor_socket(&directory)),
            label: Some(AGENT.into()),
            socket: Some(agent_socket(&directory)),
        })
    }

    /// The connection to an attached machine.
    pub fn to_attached(record: &Attached) -> Connection {
        Connection { monitor: record.monitor.clone(), label: record.channel.clone(), socket: None }
    }

    /// A connection to QEMU.
    pub fn qmp(&self, timeout: Duration) -> Result<Qmp> {
        self.monitor.connect(timeout)
    }

    /// The channel to the front end; `None` if there is none.
    pub fn channel(&self, qmp: &mut Qmp) -> Result<Option<Channel>> {
        match &self.label {
            Some(label) => plug::channel(qmp, label, self.socket.as_deref()),
            None => Ok(None),
        }
    }
}
