//! A command to run somewhere, and all that it needs to know.

use super::terminal;
use crate::launcher::table;
use crate::state::record::{Machine, Record};
use crate::state::share;
use crate::user::Identity;
use crate::wire::start::Start;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Variables that name things of the host which a machine doesn't have.
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

/// Where a command runs.
#[derive(Debug, Clone)]
pub enum Location {
    /// In a machine.
    Machine(Box<Record>, Machine),
    /// On this kernel.
    Local,
}

/// One command in one location.
#[derive(Debug, Clone)]
pub struct Job {
    /// Where.
    pub location: Location,
    /// Stands before each line of its output.
    pub label: String,
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts; `None`: where we are, or `/` where that does not exist.
    pub cwd: Option<PathBuf>,
    /// It gets our standard input.
    pub stdin: bool,
    /// In a machine: it gets a terminal, which is ours.
    pub terminal: bool,
    /// In a machine: `argv` names shells, of which the first one that it has is started as a login shell.
    pub login: bool,
    /// As whom.
    pub identity: Identity,
    /// Files of the host that it needs to see.
    pub needs: Vec<PathBuf>,
}

/// This process's environment, without what makes no sense in `location`, and with `changes`.
pub fn environment(
    location: &Location,
    changes: &[(OsString, OsString)],
) -> Vec<(OsString, OsString)> {
    let machine = matches!(location, Location::Machine(..));
    let dropped = |key: &OsStr| {
        // The pools of a machine are those that it was given; the host's have other names.
        machine && (HOST_ONLY.iter().any(|name| key == *name) || key == "VSHMEM_POOL")
    };
    let changed = |key: &OsStr| changes.iter().any(|(name, _)| name == key);
    let mut out: Vec<_> = std::env::vars_os()
        .filter(|(key, _)| !dropped(key) && !changed(key))
        .collect();
    out.extend(changes.iter().cloned());
    if let Location::Machine(record, _) = location {
        // What a program finds if nothing else is said is the cluster's pool, whatever that is called there.
        let pool = table::of(record).pool_name(&record.name);
        if pool != "default" && !changed(OsStr::new("VSHMEM_POOL")) {
            out.push(("VSHMEM_POOL".into(), pool.into()));
        }
    }
    out
}

impl Job {
    /// What is said of all that runs in the same location begins with this.
    pub fn runs_on(&self) -> &str {
        match &self.location {
            Location::Machine(_, machine) => &machine.name,
            Location::Local => &self.label,
        }
    }

    /// A file of this host that the command names, and its machine does not see.
    pub fn invisible_file(&self) -> Option<PathBuf> {
        let Location::Machine(record, _) = &self.location else {
            return None;
        };
        let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
        let here = self
            .cwd
            .as_deref()
            .map_or(here.clone(), |cwd| here.join(cwd));
        share::first_invisible(&record.shares, &here, &self.argv)
    }

    /// As the order for a machine's agent.
    pub fn order(&self) -> Start {
        let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
        Start {
            argv: self.argv.clone(),
            env: self.env.clone(),
            cwd: self.cwd.clone().unwrap_or(here).into(),
            cwd_optional: self.cwd.is_none(),
            stdin: self.stdin,
            login: self.login,
            terminal: self.terminal.then(terminal::size).flatten(),
            uid: self.identity.uid,
            gid: self.identity.gid,
            groups: self.identity.groups.clone(),
            needs: self.needs.iter().map(|path| path.clone().into()).collect(),
        }
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
