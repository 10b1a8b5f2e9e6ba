//! Records of attached machines, which Vshmem did not start: their monitors and their pools. Each has a
//! directory below `.attached` in the user's runtime directory.

use super::qmp::Qmp;
use crate::running::virsh::Domain;
use crate::state::record::Granted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use vshmem_base::directories::{boot_id, check_name, names_in, private_directory, runtime_directory};
use vshmem_base::error::{Explain, Result};
use vshmem_base::lock::{lock_at, wait_for_lock, Lock};
use vshmem_base::stored;

/// The monitor of a machine's QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Monitor {
    /// A socket at which QEMU serves QMP.
    Qmp(PathBuf),
    /// By way of libvirt.
    Libvirt(Domain),
}

impl Monitor {
    /// A connection to QEMU.
    pub fn connect(&self, timeout: Duration) -> Result<Qmp> {
        match self {
            Monitor::Qmp(socket) => Qmp::connect(socket, timeout),
            Monitor::Libvirt(domain) => Ok(Qmp::through(domain.clone())),
        }
    }
}

/// The record of an attached machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attached {
    /// Version of this format.
    pub version: u32,
    /// The machine's name.
    pub name: String,
    /// The boot of the host that it belongs to.
    pub boot: String,
    /// The monitor of its QEMU.
    #[serde(rename = "reach")]
    pub monitor: Monitor,
    /// The back end serves its pools.
    pub doorbell: bool,
    /// QEMU's id of the channel to its front end, if it has one.
    pub channel: Option<String>,
    /// Seconds since the epoch when it was attached.
    pub since: u64,
    /// Its pools.
    pub pools: Vec<Granted>,
}

/// The format that this program writes.
pub const VERSION: u32 = 1;
const RECORD: &str = "machine.json";
/// The directory of the records, in the user's directory.
pub const ATTACHED: &str = ".attached";

/// The directory of the records. No cluster's name begins with a dot.
fn all() -> Result<PathBuf> {
    Ok(runtime_directory()?.join(ATTACHED))
}

/// The directory of one machine.
pub fn directory(name: &str) -> Result<PathBuf> {
    check_name(name)?;
    Ok(all()?.join(name))
}

/// Keeps other commands from changing the same machine; `None` if another one holds the lock.
pub fn lock(name: &str) -> Result<Option<Lock>> {
    check_name(name)?;
    private_directory(&all()?)?;
    lock_at(&all()?.join(format!("{name}.lock")))
}

/// The record of the attached machine of this name, and the machine's lock, which is waited for.
pub fn locked(name: &str) -> Result<Option<(Attached, Lock)>> {
    if Attached::read(name)?.is_none() {
        leave_nothing()?;
        return Ok(None);
    }
    let held = wait_for_lock(name, || lock(name))?;
    // Another command may have detached it in the meantime.
    Ok(Attached::read(name)?.map(|record| (record, held)))
}

/// All attached machines of this user, by name.
pub fn list() -> Result<Vec<Attached>> {
    let names = names_in(&all()?).unwrap_or_default();
    if names.is_empty() {
        leave_nothing()?;
    }
    let mut out = Vec::new();
    for name in names {
        out.extend(Attached::read(&name)?);
    }
    Ok(out)
}

/// Removes the user's directory if it is empty: looking leaves nothing behind.
fn leave_nothing() -> Result<()> {
    let _ = fs::remove_dir(runtime_directory()?);
    Ok(())
}

/// Removes a lock's file, and the directories above if they are empty. The caller has the lock.
pub fn remove_lock(name: &str) -> Result<()> {
    let all = all()?;
    let _ = fs::remove_file(all.join(format!("{name}.lock")));
    let _ = fs::remove_dir(&all);
    let _ = fs::remove_dir(runtime_directory()?);
    Ok(())
}

impl Attached {
    /// Reads a machine's record; `None` if there is none.
    pub fn read(name: &str) -> Result<Option<Attached>> {
        let hint = "Remove its directory, and attach the machine again.";
        let record: Option<Attached> = stored::read(&directory(name)?.join(RECORD), VERSION, hint)?;
        // Nothing of an earlier boot of the host runs.
        Ok(record.filter(|record| record.boot == boot_id()))
    }

    /// Replaces the record.
    pub fn write(&self) -> Result<()> {
        let directory = directory(&self.name)?;
        private_directory(&all()?)?;
        private_directory(&directory)?;
        stored::write(&directory.join(RECORD), self)
    }

    /// Removes the record and its directory. The caller has the lock.
    pub fn remove(&self) -> Result<()> {
        let directory = directory(&self.name)?;
        match fs::remove_dir_all(&directory) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(e).explain(|| format!("could not remove {}", directory.display()))
            }
            _ => (),
        }
        remove_lock(&self.name)
    }

    /// It runs, as far as can be seen.
    pub fn runs(&self) -> bool {
        match &self.monitor {
            // A QEMU that has ended does not listen at its socket.
            Monitor::Qmp(socket) => std::os::unix::net::UnixStream::connect(socket).is_ok(),
            Monitor::Libvirt(domain) => domain.runs().unwrap_or(false),
        }
    }
}
