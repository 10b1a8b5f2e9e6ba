//! A machine that a QEMU runs: one of a cluster, or an attached one. Its monitor plugs pools in and takes
//! them out. The caller has the machine's lock.

use super::attached::{Attached, Monitor};
use super::connection::Connection;
use super::plug::FileAccess;
use super::qmp::ANSWER_TIMEOUT;
use crate::running::virsh::Domain;
use crate::running::Running;
use crate::shared::shm_link::LinkUser;
use crate::state::machine::{state, MachineState};
use crate::state::record::{Granted, Record};
use std::time::Duration;
use vshmem_base::error::{error, Result};
use vshmem_base::interrupt;

/// A machine that a QEMU runs.
pub struct QemuMachine<'a> {
    /// The machine's name.
    pub name: String,
    /// The pools in its record; [`QemuMachine::set_pools`] changes them.
    pub pools: Vec<Granted>,
    /// The back end serves its pools.
    pub doorbell: bool,
    /// The way in which its QEMU accesses pools.
    pub access: FileAccess,
    /// The connection by which it is reached.
    pub connection: Connection,
    home: Home<'a>,
}

/// Its record.
enum Home<'a> {
    Cluster { record: &'a mut Record, index: usize },
    Attached(&'a mut Attached),
}

impl QemuMachine<'_> {
    /// The machine of a cluster with this index.
    pub fn of_cluster(record: &mut Record, index: usize) -> Result<QemuMachine<'_>> {
        let machine = &record.machines[index];
        Ok(QemuMachine {
            name: machine.name.clone(),
            pools: machine.pools.clone(),
            doorbell: record.doorbell,
            access: match machine.runs.as_ref().and_then(Running::managed) {
                Some(_) => FileAccess::Paths,
                None => FileAccess::Descriptors(machine.user()),
            },
            connection: Connection::to_machine(record, machine)?,
            home: Home::Cluster { record, index },
        })
    }

    /// An attached machine.
    pub fn attached(record: &mut Attached) -> QemuMachine<'_> {
        QemuMachine {
            name: record.name.clone(),
            pools: record.pools.clone(),
            doorbell: record.doorbell,
            access: FileAccess::Paths,
            connection: Connection::to_attached(record),
            home: Home::Attached(record),
        }
    }

    /// Writes its pools into the record.
    pub fn set_pools(&mut self, pools: Vec<Granted>) -> Result<()> {
        self.pools.clone_from(&pools);
        match &mut self.home {
            Home::Cluster { record, index } => {
                record.machines[*index].pools = pools;
                record.write()
            }
            Home::Attached(attached) => {
                attached.pools = pools;
                attached.write()
            }
        }
    }

    /// A front end starts with the machine, so it is worth waiting a moment for it.
    pub fn has_front_end(&self) -> bool {
        matches!(self.home, Home::Cluster { .. })
    }

    /// Its domain, if libvirt must be asked for changes.
    pub fn domain(&self) -> Option<&Domain> {
        match &self.connection.monitor {
            Monitor::Libvirt(domain) => Some(domain),
            Monitor::Qmp(_) => None,
        }
    }

    /// The process or domain that runs it, if it is one of a cluster.
    fn runs(&self) -> Option<&Running> {
        match &self.home {
            Home::Cluster { record, index } => record.machines[*index].runs.as_ref(),
            Home::Attached(_) => None,
        }
    }

    /// Its QEMU, if it is one of a cluster.
    pub fn process(&self) -> Option<i32> {
        self.runs().and_then(Running::pid)
    }

    /// The domain that links of pools are made for, if libvirt has started it for a cluster.
    pub fn link_user(&self) -> Option<LinkUser<'_>> {
        let managed = self.runs().and_then(Running::managed)?;
        Some(LinkUser { uuid: &managed.uuid, user: managed.user })
    }

    /// Turns the machine off, like a power failure.
    pub fn power_off(&self) -> Result<()> {
        if let Some(domain) = self.domain() {
            return domain.destroy();
        }
        let mut qmp = self.connection.qmp(ANSWER_TIMEOUT)?;
        // QEMU may end before it answers.
        let _ = qmp.try_call("quit", serde_json::json!({}));
        drop(qmp);
        let gone = interrupt::wait_for(Duration::from_secs(10), || Ok(self.has_ended().then_some(())))?;
        gone.ok_or_else(|| error!("{} does not turn off", self.name))
    }

    /// It does not run any more.
    fn has_ended(&self) -> bool {
        match &self.home {
            Home::Cluster { record, index } => state(record, &record.machines[*index]) == MachineState::Died,
            Home::Attached(attached) => !attached.runs(),
        }
    }
}
