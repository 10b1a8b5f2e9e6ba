//! The rules by which machines are placed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The policy for the cores on which a machine's virtual cores (vCPUs) may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Any core that the kernel's scheduler chooses.
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

impl Policy {
    /// All of them, by their names.
    pub const ALL: [(&'static str, Policy); 4] = [
        ("unpinned", Policy::Unpinned),
        ("pinned", Policy::Pinned),
        ("range-pinned", Policy::RangePinned),
        ("numa-first", Policy::NumaFirst),
    ];

    /// The policy of this name.
    pub fn named(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, policy)| policy)
    }

    /// Whether each vCPU has a processor of its own.
    pub fn pins_alone(self) -> bool {
        matches!(self, Policy::Pinned | Policy::NumaFirst)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Policy::ALL.into_iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }
}

/// The consequence if a placement can't be had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Insist {
    /// It is an error.
    Strict,
    /// The next best is taken, and named.
    #[default]
    Preferred,
}

/// The nodes that a machine's memory comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// The nodes of its cores, and no others.
    Strict,
    /// The nodes of its cores as far as these have some.
    #[default]
    Preferred,
    /// All nodes by turns, page by page.
    Interleave,
}

/// The rules by which machines are to be placed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rules {
    /// The policy for the cores on which vCPUs may run.
    pub policy: Policy,
    /// The consequence if there are no such cores.
    pub cores: Insist,
    /// The nodes that memory comes from.
    pub memory: Memory,
    /// The consequence if there are no cores near to the machine's devices.
    pub devices: Insist,
    /// vCPUs share cores as SMT siblings, and the machine is told so. Else each has a core to itself.
    pub smt: bool,
    /// The number of cores of each memory node that no pinned vCPU gets.
    pub reserve_cores: u32,
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = match self.cores {
            Insist::Strict => "strict",
            Insist::Preferred => "preferred",
        };
        let memory = match self.memory {
            Memory::Strict => "strict",
            Memory::Preferred => "preferred",
            Memory::Interleave => "interleaved",
        };
        write!(f, "{}, cores {cores}, memory {memory}", self.policy.name())?;
        if self.devices == Insist::Strict {
            f.write_str(", devices strict")?;
        }
        if self.smt {
            f.write_str(", SMT siblings")?;
        }
        match self.reserve_cores {
            0 => Ok(()),
            count => write!(f, ", {count} of each node's cores reserved"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_the_names_that_files_have_for_them() {
        for (name, policy) in Policy::ALL {
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("{name:?}"));
            assert_eq!((Policy::named(name), policy.name()), (Some(policy), name));
        }
    }
}
