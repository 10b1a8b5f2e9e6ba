//! The uplink of the machines of a description.

use super::cluster::Description;
use super::fault::Fault;
use super::network::{Address, Network};
use vshmem_guest::settings::uplink::{Addresses, Means, Static, Uplink};
use vshmem_hypervisor::launcher::traits::Launcher;

/// The longest name of an interface, in bytes.
const MAX_NAME: usize = 15;
/// The letters for a machine's index in the name of its tap device.
const INDEX: &str = "%d";

impl Network {
    /// The means by which machines are connected with a network outside, and its key.
    fn means(&self) -> Result<Option<(Means, &'static str)>, Fault> {
        let user = self.user.then_some((Means::User, "user"));
        let bridge = self.bridge.clone().map(|name| (Means::Bridge(name), "bridge"));
        let tap = self.tap.clone().map(|name| (Means::Tap(name), "tap"));
        let mut all = [user, bridge, tap].into_iter().flatten();
        let (first, second) = (all.next(), all.next());
        match (&first, second) {
            (Some((_, one)), Some((_, other))) => {
                let what = format!("machines are on one network outside, and {one} is one already");
                Err(Fault::new(&["network", other], what))
            }
            _ => Ok(first),
        }
    }

    fn addresses(&self, by: &Means) -> Result<Addresses, Fault> {
        let first = match &self.address {
            Some(Address::First(first)) if *by != Means::User => first,
            Some(Address::First(_)) => {
                let what = "machines have the address of this host there, which is given by DHCP";
                return Err(Fault::new(&["network", "address"], what));
            }
            _ => {
                let key = if self.gateway.is_some() { "gateway" } else { "dns" };
                return match self.gateway.is_none() && self.dns.is_empty() {
                    true => Ok(Addresses::Dhcp),
                    false => {
                        let what = "the DHCP server says that, from which the machines have their addresses";
                        Err(Fault::new(&["network", key], what))
                    }
                };
            }
        };
        if let Some(other) = self.gateway.filter(|gateway| !first.has(*gateway)) {
            let what = format!("{other} is not in the network {}/{}", first.address, first.prefix);
            return Err(Fault::new(&["network", "gateway"], what));
        }
        Ok(Addresses::Static(Static { gateway: self.gateway, dns: self.dns.clone(), ..first.clone() }))
    }
}

impl Description {
    /// The key of the network outside.
    pub fn uplink_key(&self) -> &'static str {
        let means = self.network.as_ref().and_then(|network| network.means().ok().flatten());
        means.map_or("user", |(_, key)| key)
    }

    /// The uplink of this many machines, if they have one.
    pub fn uplink(&self, launcher: &dyn Launcher, machines: usize) -> Result<Option<Uplink>, Fault> {
        let Some(network) = &self.network else { return Ok(None) };
        let Some((by, key)) = network.means()? else {
            let alone = [
                ("address", network.address.is_some()),
                ("gateway", network.gateway.is_some()),
                ("dns", !network.dns.is_empty()),
            ];
            return match alone.iter().find(|(_, given)| *given) {
                None => Ok(None),
                Some((key, _)) => {
                    let what = "it belongs to a bridge or a tap device, and none is named: \
                        in the network between them machines have addresses of their own";
                    Err(Fault::new(&["network", key], what))
                }
            };
        };
        let fault = |what: String| Fault::new(&["network", key], what);
        if !launcher.gives_uplinks() {
            let name = launcher.facts().name;
            return Err(fault(format!("machines on {name} have no network outside of their cluster")));
        }
        match &by {
            Means::Tap(name) if machines > 1 && !name.contains(INDEX) => {
                let what =
                    format!("several machines would have {name}: with {INDEX} in its name each has its own");
                return Err(fault(what));
            }
            Means::Bridge(name) | Means::Tap(name) => check_name(name).map_err(fault)?,
            Means::User => (),
        }
        let addresses = network.addresses(&by)?;
        let uplink = Uplink { by, addresses };
        if let Addresses::Static(first) = &uplink.addresses {
            let last = u32::from(first.address).saturating_add(machines.saturating_sub(1) as u32);
            if !first.is_host(first.address) || !first.is_host(last.into()) {
                let what = format!(
                    "the network {}/{} has no addresses for {machines} machines from this one on",
                    first.address, first.prefix
                );
                return Err(Fault::new(&["network", "address"], what));
            }
        }
        Ok(Some(uplink))
    }
}

/// An error unless it can be the name of an interface, in which an index may stand.
fn check_name(name: &str) -> Result<(), String> {
    let shown = name.replacen(INDEX, "31", 1);
    let fine = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%');
    match (1..=MAX_NAME).contains(&shown.len()) && shown.bytes().all(fine) && shown != "." && shown != ".." {
        true => Ok(()),
        false => Err(format!("{name:?} can't be the name of an interface")),
    }
}

#[cfg(test)]
mod tests {
    use crate::description::testing::resolved;
    use vshmem_hypervisor::launcher::table::launchers;

    fn uplink(text: &str) -> String {
        let options = resolved(text).unwrap();
        options.uplink.map_or("none".into(), |uplink| uplink.to_string())
    }

    #[test]
    fn a_network_is_a_table_or_whether_there_is_one() {
        assert!(resolved("network = true").unwrap().network);
        assert!(!resolved("network = false").unwrap().network);
        assert!(!resolved("[network]\nprivate = false").unwrap().network);
        assert!(resolved("[network]").unwrap().network);
        assert_eq!(uplink("network = true"), "none");
        assert_eq!(uplink("[network]\nuser = false"), "none");
        assert_eq!(uplink("[network]\nuser = true"), "user");
        assert_eq!(uplink("[network]\nbridge = 'br0'\naddress = 'dhcp'"), "bridge br0");
        let text =
            "[network]\ntap = 'tap%d'\naddress = '10.0.0.1/24'\ngateway = '10.0.0.254'\ndns = ['10.0.0.9']";
        assert_eq!(uplink(text), "tap tap%d, addresses from 10.0.0.1/24 by 10.0.0.254, names from 10.0.0.9");
        assert_eq!(uplink("network = { tap = 'lan' }\n[[machines]]"), "tap lan");
    }

    #[test]
    fn mistakes_are_where_they_are() {
        let cases = [
            ("network = 1", "1:11: invalid type: integer `1`, expected a boolean or a table"),
            ("[network]\nbrigde = 'br0'", "2:1: unknown field `brigde`"),
            ("[network]\nbridge = 'br0'\ntap = 't%d'", "3:7: machines are on one network outside"),
            ("[network]\nbridge = 'a b'", "2:10: \"a b\" can't be the name"),
            ("[network]\nbridge = 'abcdefghijklmnop'", "2:10: "),
            ("[network]\ntap = 'abcdefghijklmn%d'", "2:7: "),
            ("[network]\ntap = 'tap0'", "2:7: several machines would have tap0"),
            ("[network]\ntap = 't%d%d'", "2:7: "),
            ("[network]\naddress = '10.0.0.1/24'", "2:11: it belongs to a bridge"),
            ("[network]\nbridge = 'b'\naddress = '10.0.0.1'", "3:11: invalid value"),
            ("[network]\nbridge = 'b'\naddress = '10.0.0.254/24'", "3:11: the network 10.0.0.254/24 has no"),
            ("[network]\nbridge = 'b'\naddress = '10.0.0.0/24'", "3:11: "),
            (
                "[network]\nbridge = 'b'\naddress = '10.0.0.1/24'\ngateway = '10.0.1.1'",
                "4:11: 10.0.1.1 is not in",
            ),
            ("[network]\nbridge = 'b'\ngateway = '10.0.1.1'", "3:11: the DHCP server says that"),
            ("[network]\nuser = true\naddress = '10.0.0.1/24'", "3:11: machines have the address"),
            ("[network]\ngateway = 'x'", "2:11: "),
        ];
        for (text, said) in cases {
            let why = resolved(text).unwrap_err();
            assert!(why.starts_with(&format!("c:{said}")), "{text}: {why}");
        }
        let without = launchers().into_iter().find(|launcher| !launcher.gives_uplinks()).unwrap();
        let name = without.facts().name;
        let why = resolved(&format!("hypervisor = '{name}'\n[network]\nprivate = false\nbridge = 'b'"));
        let why = why.unwrap_err();
        assert!(why.starts_with(&format!("c:4:10: machines on {name} have no network outside")), "{why}");
    }
}
