//! The commands of a machine. Each has a cgroup of its own, so that no process that it starts outlives a
//! kill.

use super::copies::Copies;
use super::sys::HighPriority;
use rustix::process::Rlimit;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::Path;
use vshmem_base::error::{error, Result};
use vshmem_base::{descriptors, user};
use vshmem_session::agent::command::{
    command, directory, join_group, spawn, Cgroup, RunningCommand, Starter,
};
use vshmem_session::agent::scratch::Scratches;
use vshmem_session::wire::start::Start;

/// The starter of a machine's commands.
pub struct Commands {
    started: u64,
    limit: Rlimit,
    scratches: Scratches,
    copies: Copies,
}

impl Commands {
    /// A starter. It raises the limit of open files, for many commands.
    pub fn new(copies: Copies) -> Commands {
        Commands { started: 0, limit: descriptors::raise(), scratches: Scratches::default(), copies }
    }
}

impl Starter for Commands {
    fn prepare(&mut self) -> Option<String> {
        sweep();
        refresh();
        self.copies.refresh().map(|said| from_here(&said))
    }

    fn ended(&mut self) -> Option<String> {
        self.copies.note().map(|said| from_here(&said))
    }

    fn start(&mut self, request: &Start) -> Result<RunningCommand> {
        self.started += 1;
        // Programs complain themselves if they lack one.
        let _ = make_home(request);
        check_needs(&request.needs)?;
        let path = format!("/sys/fs/cgroup/vshmem.{}", self.started).into();
        let (group, procs) = Cgroup::create(path, request.ends_with_session);
        let mut command = command(request)?;
        command.current_dir(directory(request)?);
        join_group(&mut command, procs.ok(), request.terminal.is_some());
        if !request.inherits {
            user::switch(&mut command, request.uid, request.gid, request.groups.clone());
        }
        descriptors::restore(&mut command, &self.limit);
        // Hundreds of programs that are running would otherwise compete with the one that is being started.
        let priority = HighPriority::raise();
        priority.reset_in(&mut command);
        let scratch = self.scratches.create(request, &mut command);
        Ok(spawn(command, request, Some(group))?.with(scratch))
    }

    fn clean(&mut self) {
        self.scratches.clean();
    }
}

/// A notice of this machine.
fn from_here(said: &str) -> String {
    format!("vshmem: {}: {said}", rustix::system::uname().nodename().to_string_lossy())
}

/// An error unless the machine has these files: the dynamic loader only warns of a library that it can't
/// preload.
fn check_needs(needs: &[OsString]) -> Result<()> {
    for path in needs {
        File::open(path).map_err(|error| {
            let path = path.to_string_lossy();
            error!("the machine can't see {path} ({error}): machines see what was shared with them when they were started (vshmem up --share)")
        })?;
    }
    Ok(())
}

/// Drops caches: programs on the host may have been rebuilt since the last command.
fn refresh() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "2");
}

/// Removes empty cgroups.
fn sweep() {
    for entry in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("vshmem.") {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Makes an empty home directory for a command's user: the machine has none of the host's.
fn make_home(request: &Start) -> io::Result<()> {
    let home = request.env.iter().find(|(key, _)| key == "HOME");
    let Some(home) = home.map(|(_, home)| Path::new(home)).filter(|home| home.is_absolute()) else {
        return Ok(());
    };
    if home.exists() {
        return Ok(());
    }
    fs::create_dir_all(home)?;
    fs::set_permissions(home, fs::Permissions::from_mode(0o700))?;
    chown(home, Some(request.uid), Some(request.gid))
}
