//! How machines are.

use super::state::{Granted, Machine, Record};
use schemars::JsonSchema;
use serde::Serialize;

/// How a machine that runs is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Health {
    /// What the pools that it has are called there.
    pub pools: Vec<String>,
    /// Its front end answers.
    pub front_end: bool,
    /// Why the driver could not be loaded there.
    pub no_driver: Option<String>,
}

/// Of a cluster's machine that runs.
pub fn of(record: &Record, machine: &Machine) -> Health {
    record.launcher().health(record, machine)
}

/// As it is written down, of a machine that does not answer.
pub fn written_down(pools: &[Granted]) -> Health {
    Health {
        pools: pools.iter().map(|pool| pool.name.clone()).collect(),
        ..Health::default()
    }
}
