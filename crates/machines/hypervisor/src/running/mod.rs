//! A machine that runs: its process or domain on this host, the connection to its QEMU, and granting and
//! revoking pools.
//!
//! | module | subject |
//! | --- | --- |
//! | [`libvirt_domain`], [`xen_domain`] | machines that are domains of libvirt and of Xen |
//! | [`connection`], [`qmp`], [`virsh`] | reaching QEMU: its monitor, at a socket or through libvirt |
//! | [`attach`], [`attached`], [`persistent`] | machines that Vshmem did not start |
//! | [`grant`], [`qemu_machine`], [`hotplug`] | granting pools by way of a monitor, and revoking them |
//! | [`plug`], [`libvirt_pools`], [`pci`], [`ports`] | pools as devices |
//! | [`health`] | the health of machines |

pub mod attach;
pub mod attached;
pub mod connection;
pub mod grant;
pub mod health;
pub mod hotplug;
pub mod libvirt_domain;
pub mod libvirt_pools;
pub mod pci;
pub mod persistent;
pub mod plug;
pub mod ports;
pub mod qemu_machine;
pub mod qmp;
pub mod virsh;
pub mod xen_domain;

use self::libvirt_domain::Managed;
use self::xen_domain::Domain;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use vshmem_base::process::Process;

/// The process or domain that runs a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Running {
    /// A domain of libvirt, which is a process of this host.
    Libvirt(Box<Managed>),
    /// A process of this host.
    Process(Process),
    /// A domain on the same hypervisor.
    Domain(Domain),
}

impl Running {
    /// Whether the process or domain that runs the machine has not ended.
    pub fn alive(&self) -> bool {
        match self {
            Running::Libvirt(managed) => managed.alive(),
            Running::Process(process) => process.alive(),
            Running::Domain(domain) => domain.alive(),
        }
    }

    /// Ends it, by force after `timeout`, and returns when it has ended (or nothing helps).
    pub fn end(&self, timeout: Duration) {
        match self {
            Running::Libvirt(managed) => managed.end(timeout),
            Running::Process(process) => process.end(timeout),
            Running::Domain(domain) => domain.end(),
        }
    }

    /// Its pid, if it is a process of this host.
    pub fn pid(&self) -> Option<i32> {
        self.process().map(|process| process.pid)
    }

    /// The process that it is, if it is one.
    pub fn process(&self) -> Option<Process> {
        match self {
            Running::Libvirt(managed) => Some(managed.process),
            Running::Process(process) => Some(*process),
            Running::Domain(_) => None,
        }
    }

    /// The domain of libvirt that it is, if it is one.
    pub fn managed(&self) -> Option<&Managed> {
        match self {
            Running::Libvirt(managed) => Some(managed),
            Running::Process(_) | Running::Domain(_) => None,
        }
    }

    /// Its domain id, if it is a domain.
    pub fn domain(&self) -> Option<u16> {
        match self {
            Running::Libvirt(_) | Running::Process(_) => None,
            Running::Domain(domain) => Some(domain.domain),
        }
    }
}
