//! A job: a command, its place, its user and its environment.

use super::location::{Location, MachineLocation};
use super::terminal;
use crate::share;
use crate::wire::start::Start;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vshmem_base::error::Result;
use vshmem_base::user::Identity;

/// Variables that refer to things of the host which a machine does not have.
const HOST_ONLY: [&str; 9] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GPG_AGENT_INFO",
    "SESSION_MANAGER",
    "SSH_AUTH_SOCK",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID",
];

/// The path by which a machine's agent executes its own program, which is this one.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A command and where it runs.
#[derive(Debug, Clone)]
pub struct Job {
    /// The location where it runs.
    pub location: Location,
    /// Precedes each line of its output.
    pub label: String,
    /// The request to start it.
    pub request: Start,
    /// The files of its output and errors, instead of this process's.
    pub files: Option<[Arc<File>; 2]>,
}

/// This process's environment with `changes`, without variables that are meaningless at `location`; only the
/// changes where `location` has an environment of its own.
fn environment(location: &Location, changes: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let machine = matches!(location, Location::Machine(..));
    let dropped = |key: &OsStr| {
        // A machine's pools are its own; names of the host's mean nothing there.
        machine && (HOST_ONLY.iter().any(|name| key == *name) || key == "VSHMEM_POOL")
    };
    let changed = |key: &OsStr| changes.iter().any(|(name, _)| name == key);
    if location.has_environment() {
        return changes.to_vec();
    }
    let mut out: Vec<_> = std::env::vars_os().filter(|(key, _)| !dropped(key) && !changed(key)).collect();
    out.extend(changes.iter().cloned());
    if let Location::Machine(machine) = location {
        // The default pool is the cluster's, under its name in the machine.
        if machine.pool != "default" && !changed(OsStr::new("VSHMEM_POOL")) {
            out.push(("VSHMEM_POOL".into(), machine.pool.clone().into()));
        }
    }
    out
}

impl Job {
    /// A command without input, with this process's environment and `changes`. Without `cwd`, it starts in
    /// the current directory, or in `/` where that does not exist.
    pub fn new(
        location: Location,
        label: String,
        changes: &[(OsString, OsString)],
        cwd: Option<&Path>,
        identity: Identity,
    ) -> Job {
        let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
        let Identity { uid, gid, groups } = identity;
        let request = Start {
            env: environment(&location, changes),
            cwd: here.join(cwd.unwrap_or(&here)).into(),
            cwd_optional: cwd.is_none(),
            inherits: location.has_environment(),
            uid,
            gid,
            groups,
            ..Start::default()
        };
        Job { location, label, request, files: None }
    }

    /// A job that runs `vshmem machine` with these words in a machine, as root.
    ///
    /// # Errors
    /// There is no root here.
    pub fn own(machine: MachineLocation, words: &[&str]) -> Result<Job> {
        let root = Identity::parse("0:0")?;
        let label = machine.name.clone();
        let mut job = Job::new(Location::Machine(machine), label, &[], Some(Path::new("/")), root);
        // It is no business of the machine what is set here.
        job.request.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
        job.request.argv = [OWN_PROGRAM, "machine"].iter().chain(words).map(Into::into).collect();
        Ok(job)
    }

    /// Gives it input and a terminal, connected to this process's. It must run in a machine.
    pub fn with_terminal(mut self) -> Result<Job> {
        self.request.terminal = Some(terminal::size()?);
        self.request.stdin = true;
        Ok(self)
    }

    /// The name of its location, for messages.
    pub fn runs_on(&self) -> &str {
        self.location.name().unwrap_or(&self.label)
    }

    /// A file of this host that the command names and its machine does not see.
    pub fn invisible_file(&self) -> Option<PathBuf> {
        let Location::Machine(machine) = &self.location else {
            return None;
        };
        if self.request.argv.first().is_some_and(|first| first == OWN_PROGRAM) {
            return None;
        }
        share::first_invisible(&machine.shares, Path::new(&self.request.cwd), &self.request.argv)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_replace_variables() {
        let changes = [("PATH".into(), "/x".into())];
        let env = environment(&Location::Local, &changes);
        let paths: Vec<_> = env.iter().filter(|(key, _)| key == "PATH").collect();
        assert_eq!(paths, [&("PATH".into(), "/x".into())]);
    }
}
