//! What a launcher is to run.

use std::ffi::OsString;

/// What a launcher is to run.
#[derive(Debug, Clone)]
pub struct Line {
    /// The hosts, with the number of their ranks. The launcher runs in the first.
    pub hosts: Vec<(String, u32)>,
    /// What is preloaded into ranks, and not into the launcher or its daemons.
    pub preload: OsString,
    /// Each line of output begins with its rank.
    pub label: bool,
    /// How ranks are bound to processors, in the launcher's words.
    pub bind_to: Option<String>,
    /// Ranks are bound to no processor unless `bind_to` says so.
    pub unbound: bool,
    /// Hosts have different environments, since they have different pools or processors.
    pub own_environments: bool,
    /// It runs as root.
    pub root: bool,
    /// Further arguments of the launcher's.
    pub extra: Vec<OsString>,
    /// The program and its arguments.
    pub program: Vec<OsString>,
}

impl Line {
    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.hosts.iter().map(|(_, ranks)| ranks).sum()
    }

    /// The hosts, as launchers take them: `a:2,b:2`.
    pub(crate) fn host_list(&self) -> String {
        let all: Vec<_> = self.hosts.iter().map(|(name, ranks)| format!("{name}:{ranks}")).collect();
        all.join(",")
    }
}
