//! Hotplug: pools are plugged into a machine that runs, and unplugged, with everything that goes with it: the
//! record, the back end, the front end.

use super::libvirt_pools;
use super::pci::{self, Devices, FreeBus, PoolDevice};
use super::plug::{self, Channel, FileAccess};
use super::qemu_machine::QemuMachine;
use super::qmp::{self, Qmp};
use crate::shared::{dead, doorbell, front_end};
use crate::state::record::Granted;
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use vshmem_agent::guest::protocol::{GrantResponse, GrantedPool, GuestPool};
use vshmem_base::error::{error, Error, Result};
use vshmem_base::interrupt;
use vshmem_inspect::host_pool::{path_of, HostPool};

/// Time that a front end that was just started may take to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a front end may take to answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that QEMU may need to release what is behind a device.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which QEMU is asked for the outcome of a command.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Plugs pools into one machine, and unplugs them.
pub struct Hotplug<'a> {
    /// The machine.
    pub machine: QemuMachine<'a>,
    qmp: Qmp,
    /// Its pool devices, as QEMU reported them last.
    pub devices: Devices,
}

impl<'a> Hotplug<'a> {
    /// Asks QEMU which pools the machine has, and updates the record.
    pub fn begin(machine: QemuMachine<'a>) -> Result<Hotplug<'a>> {
        let mut qmp = machine.connection.qmp(qmp::ANSWER_TIMEOUT)?;
        let devices = query_devices(&mut qmp)?;
        let mut hotplug = Hotplug { machine, qmp, devices: devices.clone() };
        let known = hotplug.machine.pools.clone();
        let gone = |pool: &&Granted| devices.of(&pool.name).is_none();
        for pool in known.iter().filter(gone) {
            hotplug.clean_up(&pool.name)?;
        }
        hotplug.record_unknown()?;
        Ok(hotplug)
    }

    /// Adds pools to the record that the machine has and the record lacks.
    fn record_unknown(&mut self) -> Result<()> {
        let mut pools = self.machine.pools.clone();
        for plugged in &self.devices.plugged {
            if pools.iter().any(|pool| pool.name == plugged.pool) {
                continue;
            }
            let Some(path) = plug::file(&mut self.qmp, &plugged.pool)? else {
                continue;
            };
            let size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
            pools.push(Granted::new(plugged.pool.clone(), path, size, false));
        }
        if pools != self.machine.pools {
            self.machine.set_pools(pools)?;
        }
        Ok(())
    }

    /// Whether the machine has the pool under this name already. It is an error if it has the pool under
    /// another name, or another pool under this name.
    pub fn has(&self, pool: &HostPool) -> Result<bool> {
        let machine = &self.machine.name;
        let known = &self.machine.pools;
        let under = known.iter().find(|known| known.name == pool.name);
        if let Some(other) = under.filter(|under| under.path != pool.path) {
            return Err(error!(
                "{machine} has another pool that is called {}: {}",
                pool.name,
                other.path.display()
            )
            .hint("Give this one another name there with --as, or revoke the other."));
        }
        if let Some(other) = known.iter().find(|known| known.path == pool.path && known.name != pool.name) {
            return Err(error!("{machine} has this pool already, as {}", other.name));
        }
        if under.is_none() && self.devices.of(&pool.name).is_some() {
            return Err(error!("{machine} has a pool {}, and it is unknown which one that is", pool.name)
                .hint(format!("Revoke it first: vshmem revoke {} {machine}", pool.name)));
        }
        Ok(under.is_some())
    }

    /// Plugs a pool in, and writes that into the record.
    pub fn plug(&mut self, pool: &HostPool) -> Result<()> {
        let with_name = |error: Error, name: &str| error.about(&format!("could not give {name} the pool"));
        let is_dax = pool.transport.is_some();
        // Persistent memory lies elsewhere in the machine's address space.
        let bar = if is_dax { 0 } else { pool.size };
        let bus = self.devices.bus_for(bar).map_err(|e| with_name(e, &self.machine.name))?.clone();
        let doorbell = !is_dax && self.machine.doorbell && plug::can_unplug_doorbell(&mut self.qmp)?;
        let granted = Granted {
            transport: pool.transport.clone(),
            ..Granted::new(pool.name.clone(), pool.path.clone(), pool.size, doorbell)
        };
        let mut pools = self.machine.pools.clone();
        pools.push(granted.clone());
        self.machine.set_pools(pools)?;
        let plugged = self.plug_served(&granted, &bus);
        plugged.map_err(|error| {
            // What can't be cleaned up now is when the next command begins.
            let _ = self.clean_up(&pool.name);
            with_name(error, &self.machine.name)
        })
    }

    /// Another command may end the back end in between, when it revokes the pool from the last machine that
    /// has it.
    fn plug_served(&mut self, pool: &Granted, bus: &FreeBus) -> Result<()> {
        let mut tries = 2;
        loop {
            let doorbell = match pool.doorbell {
                true => Some(doorbell::serve(&pool.path)?),
                false => None,
            };
            self.await_removal(&pool.name)?;
            let doorbell = doorbell.as_deref();
            let plugged = match self.machine.domain() {
                Some(domain) => libvirt_pools::plug(domain, pool, doorbell, bus, self.machine.link_user()),
                None => plug::plug(&mut self.qmp, self.machine.access, pool, doorbell, bus),
            };
            tries -= 1;
            match plugged {
                Err(_) if doorbell.is_some_and(|socket| !is_served(socket)) && tries > 0 => (),
                Ok(()) => {
                    if let (true, Some(pid)) = (pool.doorbell, self.connects()) {
                        doorbell::name(pid, &self.machine.name)?;
                    }
                    return Ok(());
                }
                other => return other,
            }
        }
    }

    /// The pid that connects to the back end for the machine, if it is known.
    fn connects(&self) -> Option<i32> {
        match self.machine.access {
            FileAccess::Paths => self.qmp.process().or(self.machine.process()),
            FileAccess::Descriptors(_) => Some(std::process::id() as i32),
        }
    }

    /// Waits until the machine's firmware or kernel has assigned an address to the device.
    pub fn await_device(&mut self, name: &str, timeout: Duration) -> Result<PoolDevice> {
        let machine = &self.machine.name;
        let found = interrupt::poll(timeout, POLL_INTERVAL, || {
            self.devices = query_devices(&mut self.qmp)?;
            let plugged = self.devices.of(name);
            let plugged = plugged
                .ok_or_else(|| error!("the device of the pool {name} is gone from {machine} again"))?;
            Ok(plugged.mapped.then(|| plugged.clone()))
        })?;
        found.ok_or_else(|| {
            let address = self.devices.of(name).map_or("", |plugged| &plugged.address);
            error!("{machine} has the device of the pool {name} at {address}, and its kernel has not found it").hint(
                "Is it still starting, or paused, or without hot-plug of PCI devices, or without room for it (dmesg there)? The command can be repeated.",
            )
        })
    }

    /// Sends the front end the list of pools. The inner error says why it is not known whether the front end
    /// can use this one.
    pub fn announce(&mut self, name: &str, timeout: Duration) -> Result<std::result::Result<(), String>> {
        let answer = match self.announce_all(timeout) {
            Err(error) => return Ok(Err(error.to_string())),
            Ok(answer) => answer,
        };
        let Some(answer) = answer else {
            return Ok(Err("nothing in the machine listens: vshmem agent --guest does not run there".into()));
        };
        if answer.ready.iter().any(|ready| ready == name) {
            return Ok(Ok(()));
        }
        let failed = answer.failed.iter().find(|failed| failed.name == name);
        let why = failed.map_or("it does not say why", |failed| failed.why.as_str());
        let machine = &self.machine.name;
        Err(error!("{machine} has the device of the pool {name} and can't use it: {why}"))
    }

    /// `None` if no front end listens.
    pub fn announce_all(&mut self, timeout: Duration) -> Result<Option<GrantResponse>> {
        let Some(channel) = self.channel()? else {
            return Ok(None);
        };
        self.devices = query_devices(&mut self.qmp)?;
        let entry = |plugged: &PoolDevice| GrantedPool {
            address: plugged.address.clone(),
            name: plugged.pool.clone(),
        };
        let table: Vec<GrantedPool> = self.devices.plugged.iter().map(entry).collect();
        front_end::set_pools(&channel.socket, table, timeout).map(Some)
    }

    /// The channel to a front end that listens. One of ours may have been started just now.
    fn channel(&mut self) -> Result<Option<Channel>> {
        let timeout = match self.machine.has_front_end() {
            true => LISTEN_TIMEOUT,
            false => Duration::ZERO,
        };
        let found =
            interrupt::wait_for(timeout, || match self.machine.connection.channel(&mut self.qmp)? {
                Some(channel) if !channel.open => Ok(None),
                channel => Ok(Some(channel)),
            })?;
        Ok(found.flatten())
    }

    /// The machine's name of a pool that is given by that name, or by a name or path on this host.
    pub fn named(&self, pool: &str) -> Result<String> {
        if self.devices.of(pool).is_some() {
            return Ok(pool.into());
        }
        let path = path_of(pool);
        let mut known = self.machine.pools.iter();
        let found = known.find(|known| Some(&known.path) == path.as_ref());
        Ok(found.map_or(pool, |found| &found.name).into())
    }

    /// A sentence about the pools that the machine has.
    pub fn what_it_has(&self) -> String {
        let names: Vec<&str> = self.devices.plugged.iter().map(|plugged| plugged.pool.as_str()).collect();
        match names.len() {
            0 => "It has none.".into(),
            _ => format!("It has: {}.", names.join(", ")),
        }
    }

    /// An error if the machine has the pool as a device that QEMU can't unplug.
    pub fn check_not_fixed(&self, name: &str) -> Result<()> {
        let known = self.machine.pools.iter().find(|pool| pool.name == name);
        let Some(transport) = known.and_then(|pool| pool.transport.as_ref()) else {
            return Ok(());
        };
        let machine = &self.machine.name;
        Err(error!("{machine} has the pool {name} by {transport}, and QEMU can't take such a device away")
        .hint(format!(
            "It goes with the machine: vshmem restart {machine}, unless it has started with the pool, or vshmem down."
        )))
    }

    /// An error if unplugging the pool would crash QEMU.
    pub fn check_unpluggable(&mut self, name: &str) -> Result<()> {
        let mut known = self.machine.pools.iter();
        let doorbell = known.any(|pool| pool.name == name && pool.doorbell);
        if !doorbell || plug::can_unplug_doorbell(&mut self.qmp)? {
            return Ok(());
        }
        let machine = &self.machine.name;
        Err(error!("{machine} has the pool {name} by a device that wakes its waiters (a doorbell), and without KVM QEMU crashes when it loses that")
        .hint("Turn the machine off with --force or vshmem down. Pools that are granted later, or all with vshmem up --no-doorbell, can be revoked."))
    }

    /// Records which members of its pools the machine is, as its front end reports; once the machine is dead,
    /// nobody can.
    pub fn record_members(&mut self) -> Result<()> {
        let mut pools = self.machine.pools.clone();
        for seen in self.guest_pools().unwrap_or_default() {
            let pool = pools.iter_mut().find(|pool| pool.name == seen.name);
            if let (Some(pool), Some(number)) = (pool, seen.member) {
                let member = dead::clients(pool).find_map(|client| client.member(number));
                pool.member = member.or(pool.member);
            }
        }
        match pools == self.machine.pools {
            true => Ok(()),
            false => self.machine.set_pools(pools),
        }
    }

    /// The machine's pools as its front end sees them, if it has one.
    fn guest_pools(&mut self) -> Option<Vec<GuestPool>> {
        let channel = self.machine.connection.channel(&mut self.qmp).ok()??;
        let status = channel.open.then(|| front_end::status(&channel.socket, ANSWER_TIMEOUT));
        Some(status?.ok()?.pools)
    }

    /// Asks the machine to release a pool's device, and waits until it has.
    pub fn unplug(&mut self, plugged: &PoolDevice, timeout: Duration) -> Result<()> {
        match self.machine.domain() {
            Some(domain) => domain.unplug(&plugged.id)?,
            None => plug::unplug(&mut self.qmp, plugged)?,
        }
        let gone = interrupt::poll(timeout, POLL_INTERVAL, || Ok(self.is_unplugged(plugged)?.then_some(())))?;
        gone.ok_or_else(|| {
            let (machine, pool, seconds) = (&self.machine.name, &plugged.pool, timeout.as_secs_f64());
            error!("{machine} still has the pool {pool}: it was asked to release it, and did not within {seconds} s")
                .hint("It may be paused, or its kernel may not unplug. Repeat the command with a longer --timeout, or turn the machine off with --force.")
        })
    }

    /// The device is gone, and libvirt knows if it has started the machine.
    fn is_unplugged(&mut self, plugged: &PoolDevice) -> Result<bool> {
        self.devices = query_devices(&mut self.qmp)?;
        if self.devices.of(&plugged.pool).is_some() {
            return Ok(false);
        }
        match self.machine.domain() {
            Some(domain) => Ok(!domain.lists(&plugged.id)?),
            None => Ok(true),
        }
    }

    /// Waits until QEMU has released everything behind a device that is gone.
    fn await_removal(&mut self, name: &str) -> Result<()> {
        let released = interrupt::repeat(RELEASE_TIMEOUT, POLL_INTERVAL, || {
            plug::clear(&mut self.qmp, name).map(|clear| clear.then_some(())).transpose()
        });
        released.transpose()?.ok_or_else(|| {
            error!("QEMU of {} does not release the pool {name}", self.machine.name)
                .hint("Repeat the command; if that does not help, turn the machine off.")
        })
    }

    /// Removes a pool that the machine does not have from QEMU, from its members and from the record.
    pub fn clean_up(&mut self, name: &str) -> Result<()> {
        self.await_removal(name)?;
        let mut pools = self.machine.pools.clone();
        if let Some(index) = pools.iter().position(|pool| pool.name == name) {
            let pool = pools.remove(index);
            dead::declare(&pool, &self.machine.name);
            let process = self.qmp.process().or(self.machine.process());
            doorbell::release(&pool, &self.machine.name, process);
            self.machine.set_pools(pools)?;
        }
        Ok(())
    }
}

fn query_devices(qmp: &mut Qmp) -> Result<Devices> {
    pci::read(&qmp.call("query-pci", json!({}))?)
}

fn is_served(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}
