//! Machines that Vshmem did not start: how they are reached, and which pools they were granted. Each has a directory of its own
//! below `.attached` in the user's runtime directory.

use super::libvirt::Domain;
use super::qmp::Qmp;
use crate::error::{Error, Explain, Result};
use crate::state::directories::{boot_id, check_name, private_directory, runtime_directory};
use crate::state::lock::{lock_at, Lock};
use crate::state::record::Granted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

/// How a machine's QEMU is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Monitor {
    /// A socket at which QEMU serves its monitor protocol.
    Qmp(PathBuf),
    /// libvirt.
    Libvirt(Domain),
}

/// A machine that Vshmem did not start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attached {
    /// Version of this format.
    pub version: u32,
    /// What it is called.
    pub name: String,
    /// The boot of the host that it belongs to.
    pub boot: String,
    /// How its QEMU is reached.
    pub reach: Monitor,
    /// The back end serves its pools.
    pub doorbell: bool,
    /// What QEMU calls the channel to its front end, if it has one.
    pub channel: Option<String>,
    /// Seconds since the epoch when it was adopted.
    pub since: u64,
    /// The pools that it has.
    pub pools: Vec<Granted>,
}

/// The format that this program writes.
pub const VERSION: u32 = 1;
const RECORD: &str = "machine.json";
/// Where the records are, in the user's directory.
pub const ATTACHED: &str = ".attached";

/// Where the records are. No cluster's name begins with a dot.
fn all() -> Result<PathBuf> {
    Ok(runtime_directory()?.join(ATTACHED))
}

/// The directory of one.
pub fn directory(name: &str) -> Result<PathBuf> {
    check_name(name)?;
    Ok(all()?.join(name))
}

/// Keeps other commands from changing the same machine; `None` if another does.
pub fn lock(name: &str) -> Result<Option<Lock>> {
    check_name(name)?;
    private_directory(&all()?)?;
    lock_at(&all()?.join(format!("{name}.lock")))
}

/// All of this user's, by name.
pub fn list() -> Result<Vec<Attached>> {
    let entries = fs::read_dir(all()?).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| check_name(name).is_ok()).collect();
    names.sort();
    let mut out = Vec::new();
    for name in names {
        out.extend(Attached::read(&name)?);
    }
    Ok(out)
}

/// Removes a lock's file, and the directories above if nothing else is in them. The caller has the lock.
pub fn forget_lock(name: &str) -> Result<()> {
    let all = all()?;
    let _ = fs::remove_file(all.join(format!("{name}.lock")));
    let _ = fs::remove_dir(&all);
    let _ = fs::remove_dir(runtime_directory()?);
    Ok(())
}

impl Attached {
    /// Reads a machine's record; `None` if there is none.
    pub fn read(name: &str) -> Result<Option<Attached>> {
        let path = directory(name)?.join(RECORD);
        let text = match fs::read(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.explain(|| format!("could not read {}", path.display()))?,
        };
        let damaged = |why: String| {
            Error::new(format!("{} can't be read: {why}", path.display()))
                .hint("Remove its directory, and attach the machine again.")
        };
        let record: Attached = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        if record.version != VERSION {
            return Err(damaged(format!("its version is {}", record.version)));
        }
        // Nothing of an earlier boot of the host runs.
        Ok((record.boot == boot_id()).then_some(record))
    }

    /// Writes the record, whole or not at all.
    pub fn write(&self) -> Result<()> {
        let directory = directory(&self.name)?;
        private_directory(&all()?)?;
        private_directory(&directory)?;
        let (path, new) = (directory.join(RECORD), directory.join("machine.new"));
        let text = serde_json::to_vec_pretty(self).expect("a record is plain data");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .explain(|| format!("could not write {}", path.display()))
    }

    /// Removes all that is written down of it. The caller has its lock.
    pub fn forget(&self) -> Result<()> {
        let directory = directory(&self.name)?;
        match fs::remove_dir_all(&directory) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(e).explain(|| format!("could not remove {}", directory.display()))
            }
            _ => (),
        }
        forget_lock(&self.name)
    }

    /// A connection to its QEMU.
    pub fn qmp(&self, timeout: Duration) -> Result<Qmp> {
        match &self.reach {
            Monitor::Qmp(socket) => Qmp::connect(socket, timeout),
            Monitor::Libvirt(domain) => Ok(Qmp::through(domain.clone())),
        }
    }

    /// It runs, as far as can be seen.
    pub fn runs(&self) -> bool {
        match &self.reach {
            // Of QEMU that has ended nobody listens at the socket.
            Monitor::Qmp(socket) => std::os::unix::net::UnixStream::connect(socket).is_ok(),
            Monitor::Libvirt(domain) => domain.runs().unwrap_or(false),
        }
    }
}
