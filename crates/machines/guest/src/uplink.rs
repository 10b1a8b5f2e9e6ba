//! The uplink of a machine, as it sets it up. In a machine with a system of its own, cloud-init does that.

use super::supervised::Supervised;
use crate::settings::uplink::{Addresses, Card, Static};
use std::fs;
use std::net::Ipv4Addr;
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::interface;

/// The file in which programs find servers of names.
const RESOLVERS: &str = "/etc/resolv.conf";

/// Gives the card its address; returns the DHCP client that it needs, if it needs one.
pub fn set_up(card: &Card) -> Result<Option<Supervised>> {
    let found = interface::with_mac(&card.mac);
    let name = found.ok_or_else(|| error!("the machine has no card {}", card.mac))?;
    match &card.addresses {
        Addresses::Static(own) => configure(&name, own).map(|()| None),
        Addresses::Dhcp => {
            let arguments = ["machine", "dhcp", &name].map(String::from).to_vec();
            Ok(Some(Supervised::new("what leases an address", arguments)))
        }
    }
}

/// Gives an interface its address, and the machine a way to other networks and to servers of names.
pub fn configure(interface: &str, own: &Static) -> Result<()> {
    interface::configure(interface, own.address, own.mask())
        .explain(|| format!("could not set the address of {interface}"))?;
    if let Some(router) = own.gateway {
        interface::route_by(router).explain(|| format!("could not set the route by {router}"))?;
    }
    match own.dns.is_empty() {
        true => Ok(()),
        false => {
            // It may be a link into what the machine does not have.
            let _ = fs::remove_file(RESOLVERS);
            fs::write(RESOLVERS, resolvers(&own.dns)).explain(|| format!("could not write {RESOLVERS}"))
        }
    }
}

fn resolvers(servers: &[Ipv4Addr]) -> String {
    servers.iter().map(|server| format!("nameserver {server}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_is_not_there_is_an_error() {
        let card = Card::from_word("02:00:00:00:00:01,dhcp").unwrap();
        let why = set_up(&card).err().expect("this host has no such card").to_string();
        assert!(why.contains("no card 02:00:00:00:00:01"), "{why}");
    }

    #[test]
    fn servers_of_names_are_a_line_each() {
        let servers = ["10.0.0.3".parse().unwrap(), "10.0.0.4".parse().unwrap()];
        assert_eq!(resolvers(&servers), "nameserver 10.0.0.3\nnameserver 10.0.0.4\n");
    }
}
