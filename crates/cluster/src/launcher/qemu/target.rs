//! The machine that pools are granted to and revoked from: one of a cluster, or an attached one. It is
//! locked.

use super::attached::{self, Attached, Monitor};
use super::libvirt::Domain;
use super::plug::{self, Channel, FileAccess};
use super::qmp::{Qmp, ANSWER_TIMEOUT};
use super::sockets::{agent_socket, monitor_socket, AGENT};
use crate::error::{error, Result};
use crate::state::directories::cluster_directory;
use crate::state::lock::{remove_cluster_directory, try_lock_cluster, wait_for_lock, Lock};
use crate::state::machine::{find, state, MachineState};
use crate::state::record::{Granted, Machine, Record};
use crate::{interrupt, user};
use std::time::Duration;

/// A locked machine.
pub struct Target {
    home: Home,
    _lock: Lock,
}

enum Home {
    Cluster { record: Record, index: usize },
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
        let Some(record) = Attached::read(name)? else {
            return Ok(None);
        };
        Ok(Some(Target { home: Home::Attached(record), _lock: lock }))
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
        let index = record.machines.iter().position(|machine| machine.name == name);
        let index = index.ok_or_else(|| error!("there is no machine {name}"))?;
        Ok(Target { home: Home::Cluster { record, index }, _lock: lock })
    }

    fn machine(record: &Record, index: usize) -> &Machine {
        &record.machines[index]
    }

    /// The machine's name.
    pub fn name(&self) -> &str {
        match &self.home {
            Home::Cluster { record, index } => &Target::machine(record, *index).name,
            Home::Attached(attached) => &attached.name,
        }
    }

    /// The pools in its record.
    pub fn pools(&self) -> &[Granted] {
        match &self.home {
            Home::Cluster { record, index } => &Target::machine(record, *index).pools,
            Home::Attached(attached) => &attached.pools,
        }
    }

    /// Writes its pools into the record.
    pub fn set_pools(&mut self, pools: Vec<Granted>) -> Result<()> {
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

    /// The back end serves its pools.
    pub fn doorbell(&self) -> bool {
        match &self.home {
            Home::Cluster { record, .. } => record.doorbell,
            Home::Attached(attached) => attached.doorbell,
        }
    }

    /// A connection to its QEMU.
    pub fn qmp(&self) -> Result<Qmp> {
        match &self.home {
            Home::Cluster { record, index } => {
                let directory = record.machine_directory(Target::machine(record, *index))?;
                Qmp::connect(&monitor_socket(&directory), ANSWER_TIMEOUT)
            }
            Home::Attached(attached) => attached.qmp(ANSWER_TIMEOUT),
        }
    }

    /// The channel to its front end; `None` if it has none.
    pub fn channel(&self, qmp: &mut Qmp) -> Result<Option<Channel>> {
        match &self.home {
            Home::Cluster { record, index } => {
                let directory = record.machine_directory(Target::machine(record, *index))?;
                let socket = agent_socket(&directory);
                let open = plug::is_open(qmp, AGENT)?;
                Ok(open.map(|open| Channel { socket, open }))
            }
            Home::Attached(attached) => match &attached.channel {
                Some(label) => plug::channel(qmp, label),
                None => Ok(None),
            },
        }
    }

    /// How its QEMU accesses pools.
    pub fn access(&self) -> FileAccess {
        match &self.home {
            Home::Cluster { record, index } => {
                FileAccess::Descriptors(user::of_machine(Target::machine(record, *index).index))
            }
            Home::Attached(_) => FileAccess::Paths,
        }
    }

    /// A front end starts with the machine, so it is worth waiting a moment for it.
    pub fn has_front_end(&self) -> bool {
        matches!(self.home, Home::Cluster { .. })
    }

    /// Its domain, if libvirt must be asked for changes.
    pub fn domain(&self) -> Option<&Domain> {
        match &self.home {
            Home::Attached(Attached { monitor: Monitor::Libvirt(domain), .. }) => Some(domain),
            _ => None,
        }
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
        let mut qmp = self.qmp()?;
        // QEMU may end before it answers.
        let _ = qmp.try_call("quit", serde_json::json!({}));
        drop(qmp);
        let gone = interrupt::wait_for(Duration::from_secs(10), || Ok(self.has_ended().then_some(())))?;
        gone.ok_or_else(|| error!("{} does not turn off", self.name()))
    }

    /// It does not run any more.
    fn has_ended(&self) -> bool {
        match &self.home {
            Home::Cluster { record, index } => {
                state(record, Target::machine(record, *index)) == MachineState::Died
            }
            Home::Attached(attached) => !attached.runs(),
        }
    }
}
