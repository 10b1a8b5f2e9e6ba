//! The location of a command: a machine, this kernel, or a place that a command prefix reaches.

use crate::share::Share;
use std::ffi::OsString;
use std::path::PathBuf;

/// The location of a command.
#[derive(Debug, Clone)]
pub enum Location {
    /// In a machine.
    Machine(MachineLocation),
    /// On this kernel.
    Local,
    /// In a place that a command prefix reaches, such as a container.
    Reached(Reached),
}

/// A machine as the host's end of a channel knows it.
#[derive(Debug, Clone)]
pub struct MachineLocation {
    /// The name of its cluster.
    pub cluster: String,
    /// Its name.
    pub name: String,
    /// Channels that it has.
    pub channels: usize,
    /// It notices when the host's end of a channel is closed.
    pub reports_hang_up: bool,
    /// The name of the cluster's pool in it.
    pub pool: String,
    /// Files of this host that it sees, besides the system's.
    pub shares: Vec<Share>,
}

/// The identity of a location. Commands in one place share a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// A machine, by the names of its cluster and its own.
    Machine(&'a str, &'a str),
    /// This kernel.
    Here,
    /// A reached place, by its name.
    Reached(&'a str),
}

impl Location {
    /// The identity of this location.
    pub fn place(&self) -> Place<'_> {
        match self {
            Location::Machine(machine) => Place::Machine(&machine.cluster, &machine.name),
            Location::Local => Place::Here,
            Location::Reached(reached) => Place::Reached(&reached.name),
        }
    }

    /// Whether its commands have the user and the environment of the place, and not this process's.
    pub fn has_environment(&self) -> bool {
        matches!(self, Location::Reached(reached) if !reached.prefix.is_empty())
    }

    /// Its name, if it has one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Location::Machine(machine) => Some(&machine.name),
            Location::Local => None,
            Location::Reached(reached) => Some(&reached.name),
        }
    }
}

/// A place that a command prefix reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// Its name in messages.
    pub name: String,
    /// The command prefix. Empty: this kernel.
    pub prefix: Vec<OsString>,
    /// This program, as it is called there.
    pub program: PathBuf,
}
