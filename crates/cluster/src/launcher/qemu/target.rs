//! A machine that pools are granted to and revoked from: one of a cluster, or one that was adopted. It is locked meanwhile.

use super::adopted::{self, Adopted, Reach};
use super::libvirt::Domain;
use super::plug::{self, Channel, Sees};
use super::qmp::Qmp;
use super::sockets::{agent_socket, monitor_socket, AGENT};
use crate::error::{Error, Result};
use crate::state::directories::cluster_directory;
use crate::state::lock::{forget_cluster, try_lock_cluster, Lock};
use crate::state::machine::{find, state, MachineState};
use crate::state::record::{Granted, Machine, Record};
use crate::{interrupt, user};
use std::time::Duration;

/// A machine, locked.
pub struct Target {
    home: Home,
    _lock: Lock,
}

enum Home {
    Cluster { record: Record, place: usize },
    Adopted(Adopted),
}

/// How long another command may be at work on the same machine.
const OTHERS_WITHIN: Duration = Duration::from_secs(20);
/// How long QEMU may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

impl Target {
    /// The machine of this name: of the cluster, which passes `check`, else an adopted one.
    pub fn find(
        cluster: &str,
        name: &str,
        check: &dyn Fn(&Record) -> Result<()>,
    ) -> Result<Target> {
        let has = |record: &Record| record.machines.iter().any(|machine| machine.name == name);
        if Record::read(cluster)?.as_ref().is_some_and(has) {
            return Target::of_cluster(cluster, name, check);
        }
        if let Some(found) = Target::adopted(name)? {
            return Ok(found);
        }
        // For what it says about clusters and their machines.
        find(cluster, &[name.to_string()])?;
        Err(Error::new(format!("there is no machine {name}")))
    }

    /// The adopted machine of this name.
    pub fn adopted(name: &str) -> Result<Option<Target>> {
        if Adopted::read(name)?.is_none() {
            return Ok(None);
        }
        let lock = waited_for(|| adopted::lock(name), name)?;
        // Another command may have let go of it meanwhile.
        let Some(record) = Adopted::read(name)? else {
            return Ok(None);
        };
        Ok(Some(Target {
            home: Home::Adopted(record),
            _lock: lock,
        }))
    }

    fn of_cluster(
        cluster: &str,
        name: &str,
        check: &dyn Fn(&Record) -> Result<()>,
    ) -> Result<Target> {
        let lock = waited_for(|| try_lock_cluster(cluster), name)?;
        let found = find(cluster, &[name.to_string()]);
        if !cluster_directory(cluster)?.exists() {
            // The lock's file was made anew.
            forget_cluster(cluster)?;
        }
        let (record, _) = found?;
        check(&record)?;
        let place = record
            .machines
            .iter()
            .position(|machine| machine.name == name);
        let place = place.ok_or_else(|| Error::new(format!("there is no machine {name}")))?;
        Ok(Target {
            home: Home::Cluster { record, place },
            _lock: lock,
        })
    }

    fn machine(record: &Record, place: usize) -> &Machine {
        &record.machines[place]
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match &self.home {
            Home::Cluster { record, place } => &Target::machine(record, *place).name,
            Home::Adopted(adopted) => &adopted.name,
        }
    }

    /// The pools that are written down.
    pub fn pools(&self) -> &[Granted] {
        match &self.home {
            Home::Cluster { record, place } => &Target::machine(record, *place).pools,
            Home::Adopted(adopted) => &adopted.pools,
        }
    }

    /// Writes down which pools it has.
    pub fn set_pools(&mut self, pools: Vec<Granted>) -> Result<()> {
        match &mut self.home {
            Home::Cluster { record, place } => {
                record.machines[*place].pools = pools;
                record.write()
            }
            Home::Adopted(adopted) => {
                adopted.pools = pools;
                adopted.write()
            }
        }
    }

    /// The back end is to serve its pools.
    pub fn doorbell(&self) -> bool {
        match &self.home {
            Home::Cluster { record, .. } => record.doorbell,
            Home::Adopted(adopted) => adopted.doorbell,
        }
    }

    /// A connection to its QEMU.
    pub fn qmp(&self) -> Result<Qmp> {
        match &self.home {
            Home::Cluster { record, place } => {
                let directory = record.machine_directory(Target::machine(record, *place))?;
                Qmp::connect(&monitor_socket(&directory), ANSWERS_WITHIN)
            }
            Home::Adopted(adopted) => adopted.qmp(ANSWERS_WITHIN),
        }
    }

    /// How its front end can be talked to; `None` if it has no such channel.
    pub fn channel(&self, qmp: &mut Qmp) -> Result<Option<Channel>> {
        match &self.home {
            Home::Cluster { record, place } => {
                let directory = record.machine_directory(Target::machine(record, *place))?;
                let socket = agent_socket(&directory);
                let open = plug::is_open(qmp, AGENT)?;
                Ok(open.map(|open| Channel { socket, open }))
            }
            Home::Adopted(adopted) => match &adopted.channel {
                Some(label) => plug::channel(qmp, label),
                None => Ok(None),
            },
        }
    }

    /// How its QEMU gets at pools.
    pub fn sees(&self) -> Sees {
        match &self.home {
            Home::Cluster { record, place } => {
                Sees::Descriptors(user::of_machine(Target::machine(record, *place).index))
            }
            Home::Adopted(_) => Sees::Paths,
        }
    }

    /// A front end starts with the machine, so it is worth a moment's wait.
    pub fn has_front_end(&self) -> bool {
        matches!(self.home, Home::Cluster { .. })
    }

    /// libvirt's domain, if it must be asked to plug.
    pub fn domain(&self) -> Option<&Domain> {
        match &self.home {
            Home::Adopted(Adopted {
                reach: Reach::Libvirt(domain),
                ..
            }) => Some(domain),
            _ => None,
        }
    }

    /// The record of an adopted machine.
    pub fn record(&self) -> Option<&Adopted> {
        match &self.home {
            Home::Adopted(adopted) => Some(adopted),
            Home::Cluster { .. } => None,
        }
    }

    /// Turns the machine off at once, as if its power failed.
    pub fn power_off(&self) -> Result<()> {
        if let Some(domain) = self.domain() {
            return domain.destroy();
        }
        let mut qmp = self.qmp()?;
        // The answer may get lost with QEMU.
        let _ = qmp.ask("quit", serde_json::json!({}));
        drop(qmp);
        let gone = interrupt::wait_for(Duration::from_secs(10), || {
            Ok(self.has_ended().then_some(()))
        })?;
        gone.ok_or_else(|| Error::new(format!("{} does not turn off", self.name())))
    }

    /// It does not run any more.
    fn has_ended(&self) -> bool {
        match &self.home {
            Home::Cluster { record, place } => {
                state(record, Target::machine(record, *place)) == MachineState::Died
            }
            Home::Adopted(adopted) => !adopted.runs(),
        }
    }
}

/// A lock that another command may hold for a moment.
fn waited_for(lock: impl Fn() -> Result<Option<Lock>>, name: &str) -> Result<Lock> {
    interrupt::wait_for(OTHERS_WITHIN, lock)?.ok_or_else(|| {
        Error::new(format!("another vshmem command is at work on {name}"))
            .hint("Wait until it is done, or end it.")
    })
}
