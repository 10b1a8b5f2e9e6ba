//! An MPI's launcher, and its task, whichever MPI it is.

use std::ffi::OsString;
use std::path::PathBuf;

/// A launcher: `mpiexec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// The program.
    pub file: PathBuf,
    /// The daemon that it starts in other hosts.
    pub daemon: PathBuf,
}

/// A launcher's task, from which its command line is made.
#[derive(Debug, Clone)]
pub struct Line {
    /// The hosts, with the number of their ranks. The launcher runs in the first.
    pub hosts: Vec<(String, u32)>,
    /// Libraries that are preloaded into ranks, and not into the launcher or its daemons.
    pub preload: OsString,
    /// Each line of output begins with its rank.
    pub label: bool,
    /// The binding of ranks to processors, in the launcher's words.
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

/// A command line for tests of implementations.
#[cfg(test)]
pub mod samples {
    use super::*;

    /// A program in two hosts.
    pub fn line() -> Line {
        Line {
            hosts: vec![("vm0".into(), 1), ("vm1".into(), 2)],
            preload: "/a.so:/b.so".into(),
            label: false,
            bind_to: None,
            unbound: false,
            own_environments: false,
            root: false,
            extra: vec![],
            program: vec!["./a.out".into(), "-x".into()],
        }
    }

    /// Words with spaces between them.
    pub fn text(words: &[OsString]) -> String {
        words.join(" ".as_ref()).into_string().unwrap()
    }

    /// A command's words.
    pub fn words(text: &[&str]) -> Vec<OsString> {
        text.iter().map(Into::into).collect()
    }
}
