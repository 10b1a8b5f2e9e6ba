//! The command `vshmem machine`, by which commands of the host use this program in a machine. It is not for
//! users.

use crate::output::print;
use clap::Subcommand;
use vshmem_base::{Explain, Result};
use vshmem_guest::names::write_hosts;
use vshmem_guest::{dhcp, ssh};

#[derive(Subcommand)]
pub enum Machine {
    /// Pass standard input and output on to a TCP port of this machine
    Connect {
        /// Its number
        port: u16,
    },
    /// Print the public keys of this machine's ssh server, as a file of known hosts has them
    HostKeys {
        /// The name under which they are printed
        name: String,
    },
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

/// Runs the command.
pub fn machine(what: &Machine) -> Result<u8> {
    match what {
        Machine::Connect { port } => ssh::connect(*port)?,
        Machine::HostKeys { name } => print(&ssh::host_keys(name)?)?,
        Machine::Dhcp { interface } => dhcp::lease(interface)?,
        Machine::Hosts { text } => write_hosts(text).explain(|| "could not write /etc/hosts".into())?,
    }
    Ok(0)
}
