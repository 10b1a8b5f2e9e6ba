//! The pools of a machine: which the host grants it, which devices there are, and which of them it has joined.

use super::protocol::{DriverStatus, Failure, Granted, GrantedPool, GuestPool};
use super::Devices;
use crate::kernel::Below;
use crate::mapped::{Mapped, Shared};
use crate::worker::Worker;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_pool::Pool;
use vshmem_transport::given::{Grant, GRANTS};
use vshmem_transport::PoolRef;

/// How long devices of a table may take to come, and the driver to take them.
const WITHIN: Duration = Duration::from_secs(2);
/// Between looks for a device that is to come.
const AGAIN: Duration = Duration::from_millis(5);

/// What a machine has.
pub struct Pools {
    by: &'static [&'static dyn Devices],
    /// Whose the device files are to be, if they are to be anybody's.
    owner: Option<u32>,
    table: PathBuf,
    grants: Vec<Grant>,
    devices: Vec<Device>,
}

/// A device that is there.
struct Device {
    by: &'static dyn Devices,
    pool: PoolRef,
    seen: Instant,
    state: State,
}

enum State {
    Joined(Joined),
    Not(String),
}

/// A pool that the machine is a member of.
struct Joined {
    below: Shared,
    worker: Worker,
}

impl Pools {
    /// What a front end before this one has written down holds until the host says something else.
    pub fn new(by: &'static [&'static dyn Devices], owner: Option<u32>) -> Pools {
        let table = PathBuf::from(std::ffi::OsStr::from_bytes(GRANTS.to_bytes()));
        Pools {
            by,
            owner,
            grants: read_table(&table),
            table,
            devices: Vec::new(),
        }
    }

    /// Joins the pools of devices that have come, and leaves those of devices that are gone.
    pub fn look(&mut self) {
        let mut found: Vec<(&'static dyn Devices, PoolRef)> = Vec::new();
        for &by in self.by {
            let each = &mut |pool: &PoolRef| {
                found.push((by, pool.clone()));
                true
            };
            if by.transport().discover(each).is_err() {
                return;
            }
        }
        for device in &mut self.devices {
            let now = found.iter().find(|(_, pool)| device.shows(pool));
            match now {
                Some((_, pool)) => device.pool = pool.clone(),
                None => device.leave("gone"),
            }
        }
        self.devices
            .retain(|device| found.iter().any(|(_, pool)| device.shows(pool)));
        for (by, pool) in found {
            if !self.devices.iter().any(|device| device.shows(&pool)) {
                self.devices.push(Device {
                    by,
                    pool,
                    seen: Instant::now(),
                    state: State::Not("it was not opened yet".into()),
                });
            }
        }
        for device in &mut self.devices {
            device.look(self.owner);
        }
    }

    /// Takes the host's table, and waits until its devices are there.
    pub fn grant(&mut self, id: u64, table: &[GrantedPool]) -> Granted {
        let (grants, mut failed) = check(table);
        self.grants = grants;
        if let Err(e) = write_table(&self.table, &self.grants) {
            let why = format!("{} could not be written: {e}", self.table.display());
            failed.extend(self.grants.iter().map(|grant| failure(grant.name(), &why)));
            let ready = Vec::new();
            return Granted { id, ready, failed };
        }
        let deadline = Instant::now() + WITHIN;
        loop {
            self.look();
            let states: Vec<_> = self.grants.iter().map(|grant| self.tell(grant)).collect();
            let all_ready = states.iter().all(GuestPool::is_ready);
            if all_ready || Instant::now() >= deadline {
                let (ready, not): (Vec<_>, Vec<_>) =
                    states.into_iter().partition(GuestPool::is_ready);
                failed.extend(not.into_iter().map(GuestPool::into_failure));
                let ready = ready.into_iter().map(|pool| pool.name).collect();
                return Granted { id, ready, failed };
            }
            sleep(AGAIN);
        }
    }

    /// How the devices' driver is.
    pub fn driver(&self) -> DriverStatus {
        let first = self.by.first();
        first.map_or(DriverStatus::Loaded(false), |by| by.driver())
    }

    /// How everything is: what is granted, and what else is there.
    pub fn status(&self) -> Vec<GuestPool> {
        let granted = |device: &&Device| self.grants.iter().any(|g| g.is_for(&device.pool));
        let others = self.devices.iter().filter(|device| !granted(device));
        let granted = self.grants.iter().map(|grant| self.tell(grant));
        granted.chain(others.map(Device::tell)).collect()
    }

    fn tell(&self, grant: &Grant) -> GuestPool {
        let device = self.devices.iter().find(|d| grant.is_for(&d.pool));
        match device {
            Some(device) => GuestPool {
                name: text(grant.name()),
                ..device.tell()
            },
            None => GuestPool {
                name: text(grant.name()),
                address: grant.address().to_string(),
                member: None,
                state: GuestPool::GONE.into(),
            },
        }
    }
}

impl GuestPool {
    const READY: &'static str = "ready";
    const GONE: &'static str = "gone";

    /// Can it be used?
    pub fn is_ready(&self) -> bool {
        self.state == Self::READY
    }

    fn into_failure(self) -> Failure {
        let why = match self.state.as_str() {
            Self::GONE => format!("no device has come at {} within two seconds", self.address),
            _ => self.state,
        };
        let name = self.name;
        Failure { name, why }
    }
}

impl Device {
    /// Whether it is the one that shows this pool.
    fn shows(&self, pool: &PoolRef) -> bool {
        self.pool.address() == pool.address()
    }

    /// Joins the pool if that has not been done, and leaves it if it is another one by now.
    fn look(&mut self, owner: Option<u32>) {
        let by = self.by;
        if let State::Joined(joined) = &self.state {
            let newer = !joined.below.handle.has_driver() && by.have_driver(&self.pool);
            if joined.is_gone() || newer {
                self.leave("it was taken away");
            }
        }
        if matches!(self.state, State::Joined(_)) {
            return;
        }
        let late = self.seen.elapsed() >= WITHIN;
        self.state = if by.wait_for_driver(&self.pool) && !late {
            State::Not("the driver has not taken its device yet".into())
        } else {
            match join(&self.pool, by, owner) {
                Ok(joined) => State::Joined(joined),
                Err(why) => State::Not(why),
            }
        };
    }

    fn leave(&mut self, why: &str) {
        if let State::Joined(joined) = std::mem::replace(&mut self.state, State::Not(why.into())) {
            joined.leave();
        }
    }

    fn tell(&self) -> GuestPool {
        let (member, state) = match &self.state {
            State::Joined(joined) => (Some(joined.below.member), GuestPool::READY),
            State::Not(why) => (None, why.as_str()),
        };
        GuestPool {
            name: text(self.pool.name()),
            address: address(&self.pool),
            member,
            state: state.into(),
        }
    }
}

/// Opens a pool and makes this kernel a member of it.
fn join(reference: &PoolRef, by: &dyn Devices, owner: Option<u32>) -> Result<Joined, String> {
    fn why(error: impl Display) -> String {
        error.to_string()
    }
    if let Some(owner) = owner {
        by.give(reference, owner)
            .map_err(|e| format!("could not give it to its user: {e}"))?;
    }
    let handle = vshmem_transport::open(reference).map_err(why)?;
    // SAFETY: the pool's memory is used through `below`, which has this, alone.
    let handle = unsafe { Mapped::new(handle) };
    let pool = Pool::open(handle.mem()).map_err(why)?;
    let member = handle.join(&pool).map_err(why)?;
    let below = Arc::new(Below::for_a_loop(handle, pool, member));
    below.across().join();
    let name = match reference.name() {
        b"" => address(reference),
        name => text(name),
    };
    let worker = Worker::start(below.clone(), &name, ())
        .map_err(|e| format!("nobody could clean up in it: {e}"))?;
    Ok(Joined { below, worker })
}

impl Joined {
    /// Was the pool taken away?
    fn is_gone(&self) -> bool {
        !self.below.pool.is_joined(self.below.member)
    }

    fn leave(self) {
        self.worker.leave();
    }
}

/// What of a host's table makes sense, and what does not.
pub(crate) fn check(table: &[GrantedPool]) -> (Vec<Grant>, Vec<Failure>) {
    let (mut grants, mut failed) = (Vec::<Grant>::new(), Vec::new());
    for GrantedPool { address, name } in table {
        let wrong = match Grant::new(address.as_bytes(), name.as_bytes()) {
            None => format!("{address:?} is no PCI address, or {name:?} no name of a pool"),
            Some(grant) => {
                let same = |other: &Grant| {
                    other.name() == grant.name() || other.address() == grant.address()
                };
                if !grants.iter().any(same) {
                    grants.push(grant);
                    continue;
                }
                format!("another pool of the table has the name {name} or the address {address}")
            }
        };
        failed.push(failure(name.as_bytes(), &wrong));
    }
    (grants, failed)
}

fn failure(name: &[u8], why: &str) -> Failure {
    Failure {
        name: text(name),
        why: why.into(),
    }
}

/// The address of a pool's device, if it has one.
fn address(pool: &PoolRef) -> String {
    pool.address()
        .map(|its| its.to_string())
        .unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read_table(path: &Path) -> Vec<Grant> {
    let table = fs::read(path).unwrap_or_default();
    table
        .split(|&c| c == b'\n')
        .filter_map(Grant::parse)
        .collect()
}

/// Writes the table in one step: who reads it finds the old one or the new one.
fn write_table(path: &Path, grants: &[Grant]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut file = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&new)?;
    // Whatever the mask of permissions says.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    for grant in grants {
        writeln!(file, "{grant}")?;
    }
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(table: &[(&str, &str)]) -> Vec<GrantedPool> {
        let each = |(address, name): &(&str, &str)| GrantedPool {
            address: (*address).into(),
            name: (*name).into(),
        };
        table.iter().map(each).collect()
    }

    fn pools(table: PathBuf) -> Pools {
        Pools {
            by: &[&crate::guest::tests::NoDevices],
            owner: None,
            table,
            grants: Vec::new(),
            devices: Vec::new(),
        }
    }

    #[test]
    fn tables_are_checked() {
        let table = granted(&[
            ("0000:05:00.0", "work"),
            ("5:0.0", "again"),
            ("06:00.0", "work"),
            ("nowhere", "x"),
            ("07:00.0", "two words"),
            ("08:00.0", "good"),
        ]);
        let (grants, failed) = check(&table);
        let lines: Vec<_> = grants.iter().map(Grant::to_string).collect();
        assert_eq!(lines, ["0000:05:00.0 work", "0000:08:00.0 good"]);
        let names: Vec<_> = failed.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["again", "work", "x", "two words"]);
    }

    #[test]
    fn a_table_is_kept_and_its_absent_devices_are_told() {
        let directory = std::env::temp_dir().join(format!("vshmem-table-{}", std::process::id()));
        let path = directory.join("pools");
        let mut ours = pools(path.clone());
        // No machine has so many PCI buses.
        let answer = ours.grant(9, &granted(&[("ff00:fe:1f.7", "far")]));
        assert_eq!((answer.id, answer.ready.len()), (9, 0));
        assert!(
            answer.failed[0].why.contains("no device has come"),
            "{answer:?}"
        );
        assert_eq!(
            fs::read_to_string(&path).expect("the table"),
            "ff00:fe:1f.7 far\n"
        );
        let status = ours.status();
        let far = status.iter().find(|pool| pool.name == "far").expect("told");
        assert_eq!((far.state.as_str(), far.member), ("gone", None));
        assert_eq!(read_table(&path).len(), 1);
        let answer = ours.grant(10, &[]);
        assert!(answer.failed.is_empty() && read_table(&path).is_empty());
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn a_table_that_cant_be_written_grants_nothing() {
        let mut ours = pools("/proc/no/such/place/pools".into());
        let answer = ours.grant(1, &granted(&[("ff00:fe:1f.7", "far")]));
        assert!(
            answer.failed[0].why.contains("could not be written"),
            "{answer:?}"
        );
    }
}
