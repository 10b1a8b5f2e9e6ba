//! The pools of a machine: those that the host grants it, the devices that it has, and the pools that it has
//! joined.

use super::devices::Devices;
use super::protocol::{DriverStatus, Failure, GrantResponse, GrantedPool, GuestPool};
use crate::maintained_pool::MaintainedPool;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_transport::given::{Grant, GRANTS};
use vshmem_transport::PoolRef;

/// Time that a granted device may take to appear, and the driver to bind it.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time between scans for devices while a granted one is missing.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The pools of a machine.
pub struct Pools {
    kinds: &'static [&'static dyn Devices],
    /// The user that device files are given to.
    owner: Option<u32>,
    table: PathBuf,
    grants: Vec<Grant>,
    devices: Vec<Device>,
}

/// A device that is present.
struct Device {
    kind: &'static dyn Devices,
    pool: PoolRef,
    found_at: Instant,
    state: State,
}

enum State {
    Joined(MaintainedPool),
    /// The pool can't be used, for this reason.
    Unusable(String),
}

impl Pools {
    /// The pools by the table of grants that a previous front end has written.
    pub fn new(kinds: &'static [&'static dyn Devices], owner: Option<u32>) -> Pools {
        let table = PathBuf::from(std::ffi::OsStr::from_bytes(GRANTS.to_bytes()));
        Pools { kinds, owner, grants: read_table(&table), table, devices: Vec::new() }
    }

    /// Joins the pools of new devices, and leaves those of devices that are gone.
    pub fn scan(&mut self) {
        let mut found: Vec<(&'static dyn Devices, PoolRef)> = Vec::new();
        for &kind in self.kinds {
            let each = &mut |pool: &PoolRef| {
                found.push((kind, pool.clone()));
                true
            };
            if kind.transport().discover(each).is_err() {
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
        self.devices.retain(|device| found.iter().any(|(_, pool)| device.shows(pool)));
        for (kind, pool) in found {
            if !self.devices.iter().any(|device| device.shows(&pool)) {
                self.devices.push(Device {
                    kind,
                    pool,
                    found_at: Instant::now(),
                    state: State::Unusable("it was not opened yet".into()),
                });
            }
        }
        for device in &mut self.devices {
            device.update(self.owner);
        }
    }

    /// Takes over the host's table, and waits for its devices.
    pub fn grant(&mut self, id: u64, table: &[GrantedPool]) -> GrantResponse {
        let (grants, mut failed) = check(table);
        self.grants = grants;
        if let Err(e) = write_table(&self.table, &self.grants) {
            let why = format!("{} could not be written: {e}", self.table.display());
            failed.extend(self.grants.iter().map(|grant| failure(grant.name(), &why)));
            let ready = Vec::new();
            return GrantResponse { id, ready, failed };
        }
        let deadline = Instant::now() + TIMEOUT;
        loop {
            for kind in self.kinds {
                // What fails is tried again, and missing in the end.
                let _: Vec<_> = self.grants.iter().map(|grant| kind.make(grant.address())).collect();
            }
            self.scan();
            let states: Vec<_> = self.grants.iter().map(|g| self.status_of(g)).collect();
            let all_ready = states.iter().all(GuestPool::is_ready);
            if all_ready || Instant::now() >= deadline {
                let (ready, not): (Vec<_>, Vec<_>) = states.into_iter().partition(GuestPool::is_ready);
                failed.extend(not.into_iter().map(GuestPool::into_failure));
                let ready = ready.into_iter().map(|pool| pool.name).collect();
                return GrantResponse { id, ready, failed };
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// The state of the devices' driver.
    pub fn driver(&self) -> DriverStatus {
        let first = self.kinds.first();
        first.map_or(DriverStatus::Loaded(false), |kind| kind.driver())
    }

    /// The state of granted pools, and of other devices.
    pub fn status(&self) -> Vec<GuestPool> {
        let granted = |device: &&Device| self.grants.iter().any(|g| g.is_for(&device.pool));
        let others = self.devices.iter().filter(|device| !granted(device));
        let granted = self.grants.iter().map(|grant| self.status_of(grant));
        granted.chain(others.map(Device::status)).collect()
    }

    fn status_of(&self, grant: &Grant) -> GuestPool {
        let device = self.devices.iter().find(|d| grant.is_for(&d.pool));
        match device {
            Some(device) => GuestPool { name: text(grant.name()), ..device.status() },
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

    /// Whether it can be used.
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
    /// Whether it is the device of this pool.
    fn shows(&self, pool: &PoolRef) -> bool {
        self.pool.address() == pool.address()
    }

    /// Joins the pool unless it is joined, and leaves it when it was replaced.
    fn update(&mut self, owner: Option<u32>) {
        let kind = self.kind;
        if let State::Joined(joined) = &self.state {
            let gone = !joined.pool().is_joined(joined.member());
            let bound = !joined.has_driver() && kind.has_driver(&self.pool);
            if gone || bound {
                self.leave("it was taken away");
            }
        }
        if matches!(self.state, State::Joined(_)) {
            return;
        }
        let is_late = self.found_at.elapsed() >= TIMEOUT;
        self.state = if kind.is_driver_pending(&self.pool) && !is_late {
            State::Unusable("the driver has not taken its device yet".into())
        } else {
            match join(&self.pool, kind, owner) {
                Ok(joined) => State::Joined(joined),
                Err(why) => State::Unusable(why),
            }
        };
    }

    fn leave(&mut self, why: &str) {
        let unusable = State::Unusable(why.into());
        if let State::Joined(joined) = std::mem::replace(&mut self.state, unusable) {
            joined.leave();
        }
    }

    fn status(&self) -> GuestPool {
        let (member, state) = match &self.state {
            State::Joined(joined) => (Some(joined.member()), GuestPool::READY),
            State::Unusable(why) => (None, why.as_str()),
        };
        GuestPool { name: text(self.pool.name()), address: address(&self.pool), member, state: state.into() }
    }
}

/// Opens a pool and joins it.
fn join(reference: &PoolRef, kind: &dyn Devices, owner: Option<u32>) -> Result<MaintainedPool, String> {
    if let Some(owner) = owner {
        kind.set_owner(reference, owner).map_err(|e| format!("could not give it to its user: {e}"))?;
    }
    let handle = vshmem_transport::open(reference).map_err(|e| e.to_string())?;
    let name = match reference.name() {
        b"" => address(reference),
        name => text(name),
    };
    MaintainedPool::join(handle, &name, ())
}

/// The valid grants of a host's table, and why the others are not.
pub(crate) fn check(table: &[GrantedPool]) -> (Vec<Grant>, Vec<Failure>) {
    let (mut grants, mut failed) = (Vec::<Grant>::new(), Vec::new());
    for GrantedPool { address, name } in table {
        let wrong = match Grant::new(address.as_bytes(), name.as_bytes()) {
            None => format!("{address:?} is no PCI address, or {name:?} no name of a pool"),
            Some(grant) => {
                let same = |other: &Grant| other.name() == grant.name() || other.address() == grant.address();
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
    Failure { name: text(name), why: why.into() }
}

/// The address of a pool's device, if it has one.
fn address(pool: &PoolRef) -> String {
    pool.address().map(|its| its.to_string()).unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read_table(path: &Path) -> Vec<Grant> {
    let table = fs::read(path).unwrap_or_default();
    table.split(|&c| c == b'\n').filter_map(Grant::parse).collect()
}

/// Replaces the table atomically.
fn write_table(path: &Path, grants: &[Grant]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut file = fs::File::options().write(true).create_new(true).mode(0o644).open(&new)?;
    // The umask does not count.
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
        let each =
            |(address, name): &(&str, &str)| GrantedPool { address: (*address).into(), name: (*name).into() };
        table.iter().map(each).collect()
    }

    fn pools(table: PathBuf) -> Pools {
        Pools {
            kinds: &[&crate::guest::tests::NoDevices],
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
    fn a_table_is_written_and_its_missing_devices_are_reported() {
        let directory = std::env::temp_dir().join(format!("vshmem-table-{}", std::process::id()));
        let path = directory.join("pools");
        let mut ours = pools(path.clone());
        // No machine has so many PCI buses.
        let response = ours.grant(9, &granted(&[("ff00:fe:1f.7", "far")]));
        assert_eq!((response.id, response.ready.len()), (9, 0));
        assert!(response.failed[0].why.contains("no device has come"), "{response:?}");
        assert_eq!(fs::read_to_string(&path).expect("the table"), "ff00:fe:1f.7 far\n");
        let status = ours.status();
        let far = status.iter().find(|pool| pool.name == "far").expect("reported");
        assert_eq!((far.state.as_str(), far.member), ("gone", None));
        assert_eq!(read_table(&path).len(), 1);
        let response = ours.grant(10, &[]);
        assert!(response.failed.is_empty() && read_table(&path).is_empty());
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn a_table_that_cant_be_written_grants_nothing() {
        let mut ours = pools("/proc/no/such/place/pools".into());
        let response = ours.grant(1, &granted(&[("ff00:fe:1f.7", "far")]));
        assert!(response.failed[0].why.contains("could not be written"), "{response:?}");
    }
}
