//! The description of networks: the one between the machines, and the one of their uplink.

use clap::Args;
use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::Deserialize;
use std::borrow::Cow;
use std::fmt;
use std::net::Ipv4Addr;
use vshmem_guest::settings::uplink::Static;

/// The word for addresses that a DHCP server gives.
const DHCP: &str = "dhcp";

/// The networks that the machines are on.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Network {
    /// A network between the machines, which then reach each other by name; by default, if the hypervisor has
    /// one.
    #[arg(skip)]
    pub private: Option<bool>,
    /// Machines reach what this host reaches, by the program passt, and nobody reaches them.
    #[arg(
        long = "user-net",
        conflicts_with_all = ["bridge", "tap"],
        help = "A network outside for the machines: what this host reaches, by the program passt"
    )]
    pub user: bool,
    /// The bridge of this host that machines are in. An ordinary user needs the hypervisor's bridge helper,
    /// which the host must allow to use it.
    #[arg(
        long,
        value_name = "BRIDGE",
        conflicts_with = "tap",
        help = "A network outside for the machines: this bridge of the host, whose DHCP server gives them addresses"
    )]
    pub bridge: Option<String>,
    /// The tap device that a machine has, such as "tap%d", in which %d is the machine's index: one of this
    /// user's that exists, or for root also a new one, which is gone with the machine.
    #[arg(
        long,
        value_name = "TAP",
        help = "A network outside for the machines: the tap device of this name, in which %d is a machine's index"
    )]
    pub tap: Option<String>,
    /// The machines' addresses in the bridge, or on their tap devices: "dhcp", which is the default, or that
    /// of the first machine and the bits of the net mask, such as "10.0.0.1/24", from which the others count
    /// up.
    #[arg(skip)]
    pub address: Option<Address>,
    /// The router to other networks, where addresses are not from a DHCP server.
    #[arg(skip)]
    pub gateway: Option<Ipv4Addr>,
    /// Servers of names, where addresses are not from a DHCP server.
    #[arg(skip)]
    pub dns: Vec<Ipv4Addr>,
}

/// Addresses of machines.
#[derive(Debug, Clone, PartialEq)]
pub enum Address {
    /// From a DHCP server.
    Dhcp,
    /// From this one on.
    First(Static),
}

struct ReadAddress;

impl Visitor<'_> for ReadAddress {
    type Value = Address;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"dhcp\", or an address with the bits of its net mask, such as \"10.0.0.1/24\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Address, E> {
        if text == DHCP {
            return Ok(Address::Dhcp);
        }
        let first = Static::parse(text).map(Address::First);
        first.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Address, D::Error> {
        from.deserialize_str(ReadAddress)
    }
}

impl JsonSchema for Address {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(dhcp|[0-9]+(\\.[0-9]+){3}/[0-9]+)$",
            "examples": [DHCP, "10.0.0.1/24"],
        })
    }
}

/// Reads a network: whether there is one between the machines, or a table.
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Network>, D::Error> {
    struct Either;
    impl<'de> Visitor<'de> for Either {
        type Value = Network;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a boolean or a table")
        }

        fn visit_bool<E: Error>(self, private: bool) -> Result<Network, E> {
            Ok(Network::private(private))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Network, A::Error> {
            Network::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_any(Either).map(Some)
}

/// The schema of the values that [`read`] takes.
pub fn schema(generator: &mut SchemaGenerator) -> Schema {
    let table = generator.subschema_for::<Network>();
    json_schema!({ "anyOf": [{ "type": "boolean" }, table] })
}

impl Network {
    /// A description with a network between the machines, or with none.
    pub fn private(private: bool) -> Network {
        Network { private: Some(private), ..Network::default() }
    }

    /// This description with the values of another one in place of its own.
    pub fn overridden_by(self, other: Network) -> Network {
        // Of these there is one.
        let outside = match (other.user, &other.bridge, &other.tap) {
            (false, None, None) => (self.user, self.bridge, self.tap),
            _ => (other.user, other.bridge, other.tap),
        };
        Network {
            private: other.private.or(self.private),
            user: outside.0,
            bridge: outside.1,
            tap: outside.2,
            address: other.address.or(self.address),
            gateway: other.gateway.or(self.gateway),
            dns: if other.dns.is_empty() { self.dns } else { other.dns },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_replace_what_a_file_says_of_a_network() {
        let file = Network { bridge: Some("br0".into()), ..Network::private(true) };
        let tap = Network { tap: Some("t".into()), ..Network::default() };
        let both = file.clone().overridden_by(tap);
        assert_eq!((both.bridge, both.tap.as_deref(), both.private), (None, Some("t"), Some(true)));
        assert_eq!(file.clone().overridden_by(Network::private(false)).bridge, file.bridge);
    }
}
