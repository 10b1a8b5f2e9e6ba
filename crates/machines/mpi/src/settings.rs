//! The variables that are set for a job's ranks and launcher, and why: those for every MPI, and those of its
//! own.

mod row;
mod shared;

pub use row::{harmless, set, symmetric_heap, Row, Situation};
pub use shared::SHARED;

use crate::installation::Mpi;
use std::ffi::OsString;

/// A variable as a job has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: OsString,
    /// The reason why it is set.
    pub reason: &'static str,
    /// The value is the user's own.
    pub own: bool,
    /// The harm that the user's value does; `None`: it does none.
    pub harm: Option<&'static str>,
    /// The MPI may leave UCX by it.
    pub past_ucx: bool,
}

impl Mpi {
    /// The situation of a job of this MPI.
    pub fn situation(&self, mixed: bool, oversubscribed: bool) -> Situation {
        Situation {
            daemon: self.launcher.daemon.clone(),
            passes_within_hosts: self.implementation.passes_within_hosts(),
            shmem: self.shmem,
            mixed,
            oversubscribed,
            ..Situation::default()
        }
    }

    /// The variables of a job. A value of the user's own, for which `own` is asked, stays as it is.
    pub fn settings(&self, situation: &Situation, own: impl Fn(&str) -> Option<OsString>) -> Vec<Setting> {
        let setting = |row: &Row| {
            let (name, reason) = (row.name, row.reason);
            let past_ucx = self.implementation.settings_past_ucx().contains(&name);
            if let Some(value) = own(name) {
                let harm = (row.harm)(&value.to_string_lossy(), situation);
                return Some(Setting { name, value, reason, own: true, harm, past_ucx });
            }
            let value = (row.value)(situation)?.into();
            Some(Setting { name, value, reason, own: false, harm: None, past_ucx })
        };
        SHARED.iter().chain(self.implementation.settings()).filter_map(setting).collect()
    }
}

#[cfg(test)]
mod tests;
