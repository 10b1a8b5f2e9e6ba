//! What is to be placed.

use serde::{Deserialize, Serialize};

/// Where a machine's virtual processors (vCPUs) may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Wherever the kernel's scheduler puts them.
    Unpinned,
    /// Each on a core of its own, in the order of cores, whatever memory they are near to.
    Pinned,
    /// All on any core of one socket.
    RangePinned,
    /// Each on a core of its own, all of a machine on as few memory nodes as can hold it, and near to each
    /// other.
    #[default]
    NumaFirst,
}

/// What happens if a placement can't be had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Insist {
    /// It is an error.
    Strict,
    /// The next best is taken, and named.
    #[default]
    Preferred,
}

/// How machines are to be placed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rules {
    /// Where vCPUs may run.
    pub policy: Policy,
    /// What happens if there are no such cores.
    pub cores: Insist,
    /// What happens if their nodes have too little memory.
    pub memory: Insist,
    /// vCPUs share cores as SMT siblings, and the machine is told so. Else each has a core to itself.
    pub smt: bool,
}

/// A machine to be placed.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// The number of its vCPUs.
    pub cpus: usize,
    /// Its memory in bytes.
    pub memory: u64,
    /// How it is to be placed.
    pub rules: Rules,
}

impl Machine {
    /// The number of its vCPUs, as text.
    pub fn vcpus(&self) -> String {
        vcpus(self.cpus)
    }
}

/// A number of vCPUs, as text.
pub fn vcpus(count: usize) -> String {
    format!("{count} vCPU{}", if count == 1 { "" } else { "s" })
}
