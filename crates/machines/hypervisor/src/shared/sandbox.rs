//! The sandbox of QEMU, and of the server of machines' roots, which run in namespaces of their own, with file
//! trees of their own, without a network, other processes or root's rights.
//!
//! This program is executed again for that, as `vshmem-sandbox`, so that a process with one thread makes the
//! preparations between `fork` and `exec`. It stays beside QEMU and writes its logs ([`super::confined`]).
//! Apart from programs and libraries, QEMU gets files and sockets as descriptors. The process that becomes
//! QEMU opens them: the kernel reports the process that listened or connected as a socket's peer.

use crate::shared::file_tree::FileTree;
use rustix::io::{fcntl_setfd, FdFlags};
use rustix::process::setsid;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::process::Process;
use vshmem_devices::choose::Assigned;

/// The name by which this program is executed for a sandbox.
pub const NAME: &str = "vshmem-sandbox";
/// QEMU's program.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// Number of QEMU's first descriptor, above all that this program has.
pub const FIRST: RawFd = 512;
/// The directory in which QEMU finds its own descriptors. It also looks there when a machine makes a file.
pub const DESCRIPTORS: &str = "/proc/self/fd";
/// The path of the file tree that the machine sees.
pub const SHARED: &str = "/shared";
/// The directory in which QEMU finds the sockets that it connects to again by itself.
pub const SOCKETS: &str = "/sockets";

/// A descriptor for QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Descriptor {
    /// A socket that listens at this path.
    Listen(PathBuf),
    /// A socket that is connected to this path.
    Connect(PathBuf),
    /// This file, read-only.
    Read(PathBuf),
    /// This file, to read and write.
    Write(PathBuf),
    /// A descriptor of the caller's.
    Inherited(RawFd),
    /// The socket of the machine's console.
    Console,
}

/// QEMU's descriptors, in the order of their numbers.
#[derive(Debug, Default)]
pub struct Descriptors(pub Vec<Descriptor>);

impl Descriptors {
    /// Adds a descriptor; returns its number.
    pub fn add(&mut self, descriptor: Descriptor) -> RawFd {
        self.0.push(descriptor);
        FIRST + self.0.len() as RawFd - 1
    }
}

/// The path at which QEMU finds one of its descriptors.
pub fn path_of(descriptor: RawFd) -> String {
    format!("{DESCRIPTORS}/{descriptor}")
}

/// The descriptor at such a path.
pub fn descriptor_at(path: &Path) -> Option<RawFd> {
    path.strip_prefix(DESCRIPTORS).ok()?.to_str()?.parse().ok()
}

/// The program and the resources of a sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Its name in process lists.
    pub name: String,
    /// The program's path, there or as one of its descriptors.
    pub program: PathBuf,
    /// The name by which it is called.
    pub called: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its descriptors.
    pub descriptors: Vec<Descriptor>,
    /// Devices of the host that QEMU uses.
    pub devices: Vec<Assigned>,
    /// Bytes of memory that QEMU locks, if it does.
    pub memlock: Option<u64>,
    /// The file tree that QEMU itself sees.
    pub own: FileTree,
    /// The file tree that the machine sees.
    pub shared: FileTree,
    /// The directory of sockets that QEMU connects to by their paths.
    pub sockets: Option<PathBuf>,
    /// The user that it runs as, if not the caller.
    pub user: Option<u32>,
    /// The machine's directory.
    pub directory: PathBuf,
    /// The log of what QEMU says.
    pub log: PathBuf,
    /// Its memory is in small pages, and in no transparent huge ones.
    pub small_pages: bool,
    /// It is started again if it is killed, and ends with the process beside it, which stands for it.
    pub again: bool,
}

/// A guard that kills QEMU when it is dropped, or this process dies, unless QEMU is kept: it would not be in
/// any record.
pub struct KillGuard(ChildStdin);

impl KillGuard {
    /// QEMU is in a record now.
    pub fn keep(mut self) -> Result<()> {
        self.0.write_all(b"\n").explain(|| "QEMU's sandbox does not listen".into())
    }
}

/// Starts QEMU. If it is kept, it outlives this process and its terminal.
pub fn start(spec: &SandboxSpec) -> Result<(Process, KillGuard)> {
    let failed = || "could not start QEMU's sandbox".to_string();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).arg(&spec.name).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let inherited: Vec<RawFd> = spec.descriptors.iter().filter_map(Descriptor::inherited).collect();
    let prepare = move || {
        let _ = setsid();
        for &fd in &inherited {
            // SAFETY: the caller has it open until QEMU was started.
            let inherited = unsafe { BorrowedFd::borrow_raw(fd) };
            fcntl_setfd(inherited, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    let mut child = command.spawn().explain(failed)?;
    let text = serde_json::to_vec(spec).map_err(|e| error!("{}: {e}", failed()))?;
    let ends = child.stdin.take().zip(child.stdout.take());
    let (mut input, mut output) = ends.ok_or_else(|| Error::new(failed()))?;
    // A line of JSON.
    input.write_all(&[&text[..], b"\n"].concat()).explain(failed)?;
    let mut answer = String::new();
    output.read_to_string(&mut answer).explain(failed)?;
    let outcome: Result<i32> = serde_json::from_str(&answer).unwrap_or_else(|_| Err(Error::new(failed())));
    match outcome {
        Ok(pid) => {
            let process = Process::find(pid).unwrap_or(Process { pid, started: 0 });
            Ok((process, KillGuard(input)))
        }
        Err(error) => {
            let _ = child.wait();
            Err(error)
        }
    }
}

impl Descriptor {
    /// The number of a descriptor of the caller's.
    pub fn inherited(&self) -> Option<RawFd> {
        match self {
            Descriptor::Inherited(fd) => Some(*fd),
            _ => None,
        }
    }
}

/// A file that QEMU can read without root's rights: this one, or a copy in the machine's directory.
pub fn readable(file: &Path, user: Option<u32>, directory: &Path) -> Result<PathBuf> {
    let failed = || format!("could not read {}", file.display());
    if user.is_none() || fs::metadata(file).explain(failed)?.mode() & 0o4 != 0 {
        return Ok(file.into());
    }
    let copy = directory.join(file.file_name().unwrap_or_default());
    fs::copy(file, &copy)
        .and_then(|_| fs::set_permissions(&copy, fs::Permissions::from_mode(0o444)))
        .explain(failed)?;
    Ok(copy)
}
