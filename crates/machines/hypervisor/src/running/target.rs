//! The machine that pools are granted to and revoked from: one of a cluster, or an attached one. It is
//! locked.

use super::attached::{self, Attached, Monitor};
use super::connection::Connection;
use super::plug::FileAccess;
use super::qmp::ANSWER_TIMEOUT;
use crate::running::virsh::Domain;
use crate::running::Running;
use crate::shared::shm_link::LinkUser;
use crate::state::disks::remove_cluster_directory;
use crate::state::machine::{find, index_of, state, MachineState};
use crate::state::record::{Granted, Record};
use std::time::Duration;
use vshmem_base::directories::cluster_directory;
use vshmem_base::error::{error, Result};
use vshmem_base::interrupt;
use vshmem_base::lock::{try_lock_cluster, wait_for_lock, Lock};

/// A locked machine.
pub struct Target {
    /// The machine's name.
    pub name: String,
    /// The pools in its record; [`Target::set_pools`] changes them.
    pub pools: Vec<Granted>,
    /// The back end serves its pools.
    pub doorbell: bool,
    /// The way in which its QEMU accesses pools.
    pub access: FileAccess,
    /// The connection by which it is reached.
    pub connection: Connection,
    home: Home,
    _lock: Lock,
}

/// Its record.
enum Home {
    Cluster { record: Box<Record>, index: usize },
    Attached(Attached),
}

impl Target {
    /// The machine of this name: one of the cluster, which must pass `check`, else an attached one.
    pub fn find(cluster: &str, name: &str, check: &dyn Fn(&Record) -> Result<()>) -> Result<Target> {
        let has = |record: &Record| record.machines.iter().any(|machine| machine.name == name);
        if Record::read(cluster)?.as_ref().is_some_and(has) {
            return Target::of_cluster(cluster, name, check);
        }
        if let Some(found) = Target::attached(name)? {
            return Ok(found);
        }
        // For its error about clusters and machines.
        find(cluster, &[name.to_string()])?;
        Err(error!("there is no machine {name}"))
    }

    /// The attached machine of this name.
    pub fn attached(name: &str) -> Result<Option<Target>> {
        if Attached::read(name)?.is_none() {
            return Ok(None);
        }
        let lock = wait_for_lock(name, || attached::lock(name))?;
        // Another command may have detached it in the meantime.
        let record = Attached::read(name)?;
        Ok(record.map(|record| Target {
            name: record.name.clone(),
            pools: record.pools.clone(),
            doorbell: record.doorbell,
            access: FileAccess::Paths,
            connection: Connection::to_attached(&record),
            home: Home::Attached(record),
            _lock: lock,
        }))
    }

    fn of_cluster(cluster: &str, name: &str, check: &dyn Fn(&Record) -> Result<()>) -> Result<Target> {
        let lock = wait_for_lock(name, || try_lock_cluster(cluster))?;
        let found = find(cluster, &[name.to_string()]);
        if !cluster_directory(cluster)?.exists() {
            // Taking the lock has made its file again.
            remove_cluster_directory(cluster)?;
        }
        let (record, _) = found?;
        check(&record)?;
        let index = index_of(&record, name)?;
        let machine = &record.machines[index];
        Ok(Target {
            name: name.into(),
            pools: machine.pools.clone(),
            doorbell: record.doorbell,
            access: match machine.runs.as_ref().and_then(Running::managed) {
                Some(_) => FileAccess::Paths,
                None => FileAccess::Descriptors(machine.user()),
            },
            connection: Connection::to_machine(&record, machine)?,
            home: Home::Cluster { record: Box::new(record), index },
            _lock: lock,
        })
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

    /// To whom files of pools are lent for it, if libvirt has started it for a cluster.
    pub fn link_user(&self) -> Option<LinkUser<'_>> {
        let managed = self.runs().and_then(Running::managed)?;
        Some(LinkUser { uuid: &managed.uuid, user: managed.user })
    }

    /// The record of an attached machine.
    pub fn record(&self) -> Option<&Attached> {
        match &self.home {
            Home::Attached(attached) => Some(attached),
            Home::Cluster { .. } => None,
        }
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
