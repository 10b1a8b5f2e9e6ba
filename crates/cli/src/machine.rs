//! `vshmem machine`: what commands of the host have this program do in a machine. It is not for users.

use clap::Subcommand;
use vshmem_cluster::{lease_address, write_hosts, Explain, Result};

#[derive(Subcommand)]
pub enum Machine {
    /// Lease an address for an interface from a DHCP server, and keep it leased
    Dhcp {
        /// Its name
        interface: String,
    },
    /// Replace /etc/hosts
    Hosts {
        /// What is to be in it
        text: String,
    },
}

/// Does it.
pub fn machine(what: &Machine) -> Result<u8> {
    match what {
        Machine::Dhcp { interface } => lease_address(interface)?,
        Machine::Hosts { text } => write_hosts(text).explain(|| "could not write /etc/hosts".into())?,
    }
    Ok(0)
}
