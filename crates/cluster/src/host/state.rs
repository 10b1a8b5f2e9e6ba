//! Where clusters are written down: one private directory for each user, one below it for each cluster.

use super::ports::Ports;
use super::process::Process;
use super::share::Share;
use crate::error::{Error, Explain, Result};
use crate::launcher::{table, Launcher, Running};
use crate::visitor::MemberId;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A pool that a machine was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// What it is called in the machine.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// The back end serves it to this machine.
    pub doorbell: bool,
    /// Which member the machine is, if its front end has said so.
    #[serde(default)]
    pub member: Option<MemberId>,
}

/// One machine of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// `vm0`, `vm1`, ...
    pub name: String,
    /// Its place among the machines.
    pub index: u32,
    /// Seconds since the epoch when it was started last, if not with the cluster.
    #[serde(default)]
    pub since: Option<u64>,
    /// What runs it.
    pub runs: Option<Running>,
    /// Its address on the network between the machines.
    pub address: Option<String>,
    /// The host's core that each of its virtual cores is pinned to; empty if none is.
    pub cores: Vec<usize>,
    /// The pools that it has, or was about to be given or to lose when a command was cut off: the hypervisor knows better.
    #[serde(default)]
    pub pools: Vec<Granted>,
}

/// A cluster, as written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Version of this format.
    pub version: u32,
    /// The cluster's name.
    pub name: String,
    /// The boot of the host that it belongs to.
    pub boot: String,
    /// The `vshmem up` that starts it, while it does.
    pub starter: Option<Process>,
    /// The process that owns the pool, if one does.
    #[serde(default)]
    pub owner: Option<Process>,
    /// What carries out the machines' instructions.
    pub accel: String,
    /// The kernel that the machines run.
    pub kernel: PathBuf,
    /// Virtual cores of each machine.
    pub cpus: u32,
    /// Memory of each machine in bytes.
    pub memory: u64,
    /// The file behind the pool.
    pub pool: PathBuf,
    /// Size of the pool in bytes.
    pub pool_size: u64,
    /// The back end serves doorbells on the pool.
    #[serde(default)]
    pub doorbell: bool,
    /// The driver that the machines load, if any.
    #[serde(default)]
    pub driver: Option<PathBuf>,
    /// Room for pools that machines are granted while they run.
    #[serde(default)]
    pub ports: Ports,
    /// What machines see of this host's files beside the system.
    #[serde(default)]
    pub shares: Vec<Share>,
    /// How many channels for commands each machine has.
    pub channels: usize,
    /// Seconds since the epoch when it was started.
    pub since: u64,
    /// The machines.
    pub machines: Vec<Machine>,
    /// The pools that each machine starts with.
    #[serde(default)]
    pub first_pools: Vec<Granted>,
}

/// The format that this program writes.
pub const VERSION: u32 = 2;
const RECORD: &str = "cluster.json";

/// The boot of this host.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .into()
}

/// This user.
pub fn uid() -> u32 {
    // SAFETY: always succeeds and takes nothing.
    unsafe { libc::geteuid() }
}

/// Where the user's directory for what lives until the computer is turned off is, if there is one.
pub fn runtime_place() -> PathBuf {
    let set = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usable =
        |dir: &PathBuf| fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid());
    match set.filter(usable) {
        Some(base) => base.join("vshmem"),
        None => PathBuf::from(format!("/tmp/vshmem-{}", uid())),
    }
}

/// The user's directory for what lives until the computer is turned off; made if need be.
pub fn runtime_directory() -> Result<PathBuf> {
    let directory = runtime_place();
    private_directory(&directory)?;
    Ok(directory)
}

/// The user's directory for what may be kept or thrown away.
pub fn cache_directory() -> Result<PathBuf> {
    let set = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute());
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute());
    let base = set.or_else(|| Some(home?.join(".cache"))).ok_or_else(|| {
        Error::new(
            "there is no place for downloaded kernels: neither XDG_CACHE_HOME nor HOME is set",
        )
        .hint("Set HOME to a directory that you can write to.")
    })?;
    let directory = base.join("vshmem");
    fs::create_dir_all(&directory).explain(|| format!("could not make {}", directory.display()))?;
    Ok(directory)
}

/// Makes a directory that only its owner can enter, or checks that an existing one is so.
pub fn private_directory(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => (),
        Err(e) => {
            return Err(Error::new(format!(
                "could not make {}: {e}",
                path.display()
            )))
        }
    }
    let meta =
        fs::symlink_metadata(path).explain(|| format!("could not look at {}", path.display()))?;
    if is_private(&meta) {
        return Ok(());
    }
    Err(Error::new(format!(
        "{} is not a directory that only you can enter, so it is not used",
        path.display()
    ))
    .hint("Remove it, or set XDG_RUNTIME_DIR to a private directory of yours."))
}

/// Is it a directory that only this user can enter?
pub fn is_private(meta: &fs::Metadata) -> bool {
    meta.is_dir() && meta.uid() == uid() && meta.mode() & 0o077 == 0
}

/// Refuses names that can't be a part of a path or of a kernel's command line.
pub fn check_name(name: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.len() <= 24 && name.chars().all(fine) {
        return Ok(());
    }
    Err(Error::new(format!("{name:?} can't be a cluster's name"))
        .code(2)
        .hint("A name has 1 to 24 letters, digits, '-' and '_'."))
}

/// The directory of a cluster's record and sockets.
pub fn cluster_directory(name: &str) -> Result<PathBuf> {
    check_name(name)?;
    Ok(runtime_directory()?.join(name))
}

/// The names of all clusters that are written down.
pub fn cluster_names() -> Result<Vec<String>> {
    let directory = runtime_directory()?;
    let names = names_in(&directory).explain(|| format!("reading {}", directory.display()))?;
    if names.is_empty() {
        // Looking leaves nothing behind; the directory stays if anything else is in it.
        let _ = fs::remove_dir(&directory);
    }
    Ok(names)
}

/// The names of what has a directory in this one.
pub fn names_in(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(directory)?
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| check_name(name).is_ok())
        .collect();
    names.sort();
    Ok(names)
}

impl Record {
    /// What has started its machines.
    pub fn launcher(&self) -> &'static dyn Launcher {
        table::by_accelerator(&self.accel)
    }

    /// It was up in this boot of the host, and has its pool: if its machines have died they can be started anew.
    pub fn is_left_to_restart(&self) -> bool {
        self.boot == boot_id() && self.starter.is_none() && self.pool.exists()
    }

    /// The pool as commands on this host take it.
    pub fn pool_reference(&self) -> String {
        self.launcher().pool_reference(self)
    }

    /// Are processes that wait in a machine woken from others, rather than look by themselves?
    pub fn wakes(&self) -> bool {
        (self.doorbell || !self.launcher().needs_back_end()) && self.driver.is_some()
    }

    /// Reads a cluster's record; `None` if there is none.
    pub fn read(name: &str) -> Result<Option<Record>> {
        let path = cluster_directory(name)?.join(RECORD);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                return Err(Error::new(format!(
                    "could not read {}: {e}",
                    path.display()
                )))
            }
        };
        let damaged = |why: String| {
            Error::new(format!("{} can't be read: {why}", path.display())).hint(format!(
                "Remove what is left with: vshmem down --cluster {name}"
            ))
        };
        let record: Record = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        if record.version != VERSION {
            return Err(damaged(format!(
                "its version is {}, not {VERSION}",
                record.version
            )));
        }
        Ok(Some(record))
    }

    /// Writes the record, whole or not at all.
    pub fn write(&self) -> Result<()> {
        let path = cluster_directory(&self.name)?.join(RECORD);
        let new = path.with_extension("new");
        let text = serde_json::to_vec_pretty(self).expect("a record is plain data");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .explain(|| format!("could not write {}", path.display()))
    }

    /// The directory of one machine's sockets and logs.
    pub fn machine_directory(&self, machine: &Machine) -> Result<PathBuf> {
        Ok(cluster_directory(&self.name)?.join(&machine.name))
    }
}

/// Keeps other `vshmem` commands from changing the same cluster; dropped with the value.
pub struct Lock(#[allow(dead_code)] File);

/// Takes a file's lock; `None` if another holds it and `wait` is false.
pub fn lock_file(path: &Path, wait: bool) -> Result<Option<File>> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .explain(|| format!("could not open {}", path.display()))?;
    let how = if wait {
        libc::LOCK_EX
    } else {
        libc::LOCK_EX | libc::LOCK_NB
    };
    // SAFETY: a descriptor of ours and plain values.
    if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
        return Ok(Some(file));
    }
    let error = std::io::Error::last_os_error();
    if error.kind() == std::io::ErrorKind::WouldBlock {
        return Ok(None);
    }
    Err(Error::new(format!(
        "could not lock {}: {error}",
        path.display()
    )))
}

/// Takes a cluster's lock, for starting or stopping it.
pub fn lock_cluster(name: &str) -> Result<Lock> {
    try_lock_cluster(name)?.ok_or_else(|| {
        Error::new(format!(
            "another vshmem is starting, changing or stopping the cluster {name}"
        ))
        .hint("Wait until it is done, or end it.")
    })
}

/// The same; `None` if another command holds it.
pub fn try_lock_cluster(name: &str) -> Result<Option<Lock>> {
    check_name(name)?;
    lock_at(&runtime_directory()?.join(format!("{name}.lock")))
}

/// Takes the lock whose file is at this path, which may be removed by who holds it.
pub fn lock_at(path: &Path) -> Result<Option<Lock>> {
    loop {
        let Some(file) = lock_file(path, false)? else {
            return Ok(None);
        };
        // Whoever held the lock before may have removed the file since we opened it.
        if is_at(&file, path) {
            return Ok(Some(Lock(file)));
        }
        runtime_directory()?;
    }
}

/// Whether an open file is the one at this path.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
        _ => false,
    }
}

/// Removes a cluster's directory and lock file, and the user's directory if that was the last one.
pub fn forget_cluster(name: &str) -> Result<()> {
    let directory = cluster_directory(name)?;
    match fs::remove_dir_all(&directory) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::new(format!(
                "could not remove {}: {e}",
                directory.display()
            )));
        }
        _ => (),
    }
    let runtime = runtime_directory()?;
    let _ = fs::remove_file(runtime.join(format!("{name}.lock")));
    let _ = fs::remove_dir(&runtime);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for name in ["", "..", "a/b", "a b", "a,b", "ümlaut", &"x".repeat(25)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["default", "my-cluster_2"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let path = std::env::temp_dir().join(format!("vshmem-state-{}", std::process::id()));
        private_directory(&path).unwrap();
        private_directory(&path).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, open).unwrap();
        assert!(private_directory(&path).is_err());
        fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn a_lock_is_exclusive() {
        let path = std::env::temp_dir().join(format!("vshmem-lock-{}", std::process::id()));
        let held = lock_file(&path, false).unwrap();
        assert!(held.is_some());
        assert!(lock_file(&path, false).unwrap().is_none());
        drop(held);
        assert!(lock_file(&path, false).unwrap().is_some());
        fs::remove_file(&path).unwrap();
    }
}
