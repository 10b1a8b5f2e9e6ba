//! The uplink of machines: their second card, on a network outside of their cluster. The network
//! between the machines is another one ([`super::Network`]).

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::{fmt, fs};
use vshmem_base::user::uid;

/// The uplink of a cluster's machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uplink {
    /// The means of connection.
    pub by: Means,
    /// The machines' addresses there.
    pub addresses: Addresses,
}

/// The means by which machines are connected with a network outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Means {
    /// By sockets of this user (passt): they reach what this host reaches, and nobody reaches them.
    User,
    /// By a tap device in this bridge.
    Bridge(String),
    /// By the tap device of this name, in which `%d` is a machine's index.
    Tap(String),
}

/// Addresses of machines on their uplink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Addresses {
    /// A DHCP server gives them.
    Dhcp,
    /// They count up from this one.
    Static(Static),
}

/// An address, with its net mask, router and servers of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Static {
    /// The address of the first machine, or of a card.
    pub address: Ipv4Addr,
    /// Bits of the net mask.
    pub prefix: u8,
    /// The router to other networks.
    pub gateway: Option<Ipv4Addr>,
    /// Servers of names.
    pub dns: Vec<Ipv4Addr>,
}

/// A machine's card on its uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Its address on the wire.
    pub mac: String,
    /// Its address.
    pub addresses: Addresses,
}

impl Uplink {
    /// The card of a machine.
    pub fn card(&self, cluster: &str, machine: &str, index: u32) -> Card {
        let addresses = match &self.addresses {
            Addresses::Dhcp => Addresses::Dhcp,
            Addresses::Static(first) => {
                let address = Ipv4Addr::from(u32::from(first.address).wrapping_add(index));
                Addresses::Static(Static { address, ..first.clone() })
            }
        };
        Card { mac: mac(&host(), cluster, machine), addresses }
    }
}

impl Static {
    /// Its net mask.
    pub fn mask(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0))
    }

    /// Whether an address is in the same network.
    pub fn has(&self, other: Ipv4Addr) -> bool {
        let net = |address: Ipv4Addr| u32::from(address) & u32::from(self.mask());
        net(other) == net(self.address)
    }

    /// Whether a machine of the network can have this address: it means neither the network nor all machines.
    pub fn is_host(&self, address: Ipv4Addr) -> bool {
        let rest = u32::from(address) & !u32::from(self.mask());
        self.has(address) && (self.prefix > 30 || rest != 0 && rest != !u32::from(self.mask()))
    }

    /// The address in a text `ADDRESS/BITS`. `None`: there is none.
    pub fn parse(text: &str) -> Option<Static> {
        let (address, prefix) = text.split_once('/')?;
        let prefix = prefix.parse().ok().filter(|prefix| (1..=32).contains(prefix))?;
        Some(Static { address: address.parse().ok()?, prefix, gateway: None, dns: vec![] })
    }
}

impl Card {
    /// The card as a word of a kernel's command line.
    pub fn to_word(&self) -> String {
        let Addresses::Static(own) = &self.addresses else {
            return format!("{},dhcp", self.mac);
        };
        let gateway = own.gateway.map_or("-".into(), |gateway| gateway.to_string());
        let mut out = format!("{},{}/{},{gateway}", self.mac, own.address, own.prefix);
        own.dns.iter().for_each(|dns| out.push_str(&format!(",{dns}")));
        out
    }

    /// The card that such a word says. `None`: it says none.
    pub fn from_word(word: &str) -> Option<Card> {
        let mut parts = word.split(',');
        let mac = parts.next().filter(|mac| is_mac(mac))?.to_owned();
        let address = parts.next()?;
        let addresses = match address {
            "dhcp" if parts.next().is_none() => Addresses::Dhcp,
            _ => {
                let gateway = match parts.next()? {
                    "-" => None,
                    gateway => Some(gateway.parse().ok()?),
                };
                let dns = parts.map(|dns| dns.parse().ok()).collect::<Option<_>>()?;
                Addresses::Static(Static { gateway, dns, ..Static::parse(address)? })
            }
        };
        Some(Card { mac, addresses })
    }
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok())
}

/// The name of this host and user, which tells their clusters from all others in a network.
fn host() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = match id.trim() {
        "" => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        id => id.to_owned(),
    };
    format!("{id}/{}", uid())
}

/// The address of a machine's card on the wire: of those that nobody assigns, the same each time. 46 bits of
/// a hash (FNV-1a) tell it from all others.
fn mac(host: &str, cluster: &str, machine: &str) -> String {
    let text = [host, cluster, machine].join("/");
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let folded = (hash ^ hash >> 48).to_be_bytes();
    let [first, rest @ ..] = &folded[2..] else { unreachable!("there are six") };
    let rest: Vec<_> = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{:02x}:{}", first & 0xfc | 0x02, rest.join(":"))
}

impl fmt::Display for Uplink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Means::User => f.write_str("user")?,
            Means::Bridge(name) => write!(f, "bridge {name}")?,
            Means::Tap(name) => write!(f, "tap {name}")?,
        }
        let Addresses::Static(first) = &self.addresses else {
            return Ok(());
        };
        write!(f, ", addresses from {}/{}", first.address, first.prefix)?;
        if let Some(gateway) = first.gateway {
            write!(f, " by {gateway}")?;
        }
        first.dns.iter().try_for_each(|dns| write!(f, ", names from {dns}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn first(text: &str) -> Static {
        Static::parse(text).unwrap()
    }

    #[test]
    fn addresses_on_the_wire_are_stable_unique_and_nobodys() {
        assert_eq!(mac("h/0", "default", "vm0"), mac("h/0", "default", "vm0"));
        let mut all = BTreeSet::new();
        for cluster in 0..300 {
            for machine in 0..32 {
                let one = mac("h/0", &format!("c{cluster}"), &format!("vm{machine}"));
                let first = u8::from_str_radix(&one[..2], 16).unwrap();
                assert_eq!(first & 3, 2, "{one} is locally administered, and of one card");
                assert!(is_mac(&one) && all.insert(one));
            }
        }
        assert_ne!(mac("h/0", "default", "vm0"), mac("h/1", "default", "vm0"), "users differ");
        assert_eq!(mac("h/0", "default", "vm0"), "7a:1a:93:5a:4f:ac", "it stays so in later versions");
    }

    #[test]
    fn machines_have_addresses_one_after_the_other() {
        let addresses = Addresses::Static(first("10.0.0.254/16"));
        let uplink = Uplink { by: Means::Bridge("br0".into()), addresses };
        let Addresses::Static(third) = uplink.card("c", "vm2", 2).addresses else { panic!("it is static") };
        assert_eq!((third.address.to_string().as_str(), third.prefix), ("10.0.1.0", 16));
        assert_eq!(third.mask().to_string(), "255.255.0.0");
        assert_eq!(uplink.to_string(), "bridge br0, addresses from 10.0.0.254/16");
    }

    #[test]
    fn networks_have_bounds() {
        let net = first("10.0.0.1/24");
        assert!(net.has("10.0.0.0".parse().unwrap()) && !net.has("10.0.1.1".parse().unwrap()));
        for (address, is) in
            [("10.0.0.1", true), ("10.0.0.0", false), ("10.0.0.255", false), ("10.0.1.1", false)]
        {
            assert_eq!(net.is_host(address.parse().unwrap()), is, "{address}");
        }
        for text in ["10.0.0.1", "10.0.0.1/33", "10.0.0.1/0", "10.0.0/24", "x/24"] {
            assert_eq!(Static::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_card_survives_the_command_line() {
        let mac = "02:00:00:00:00:01".to_owned();
        let dns = vec!["10.0.0.3".parse().unwrap(), "10.0.0.4".parse().unwrap()];
        let gateway = Some("10.0.0.2".parse().unwrap());
        for addresses in [
            Addresses::Dhcp,
            Addresses::Static(first("10.0.0.1/24")),
            Addresses::Static(Static { gateway, dns, ..first("10.0.0.1/24") }),
        ] {
            let card = Card { mac: mac.clone(), addresses };
            assert_eq!(Card::from_word(&card.to_word()), Some(card));
        }
        for word in
            ["", "x,dhcp", "02:00:00:00:00:01", "02:00:00:00:00:01,dhcp,x", "02:00:00:00:00:01,10.0.0.1/24"]
        {
            assert_eq!(Card::from_word(word), None, "{word}");
        }
    }
}
