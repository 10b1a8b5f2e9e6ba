//! A machine's settings, which the host passes on the kernel's command line.

pub mod exported;
pub mod uplink;

use super::settings::exported::Exported;
use super::settings::uplink::Card;
use std::net::Ipv4Addr;
use vshmem_base::error::{error, Result};
use vshmem_session::share::{self, Share};

/// The line that a probe prints on the console: a machine that was only booted to see whether that works.
pub const PROBE_MARK: &str = "vshmem: this accelerator boots a machine";

/// The name of the driver, a module of Linux.
pub const DRIVER: &str = "vshmem";

/// The word for a root that is a disk.
const EROFS: &str = "erofs";

/// A machine's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The machine's name, `vm0` and so on.
    pub name: String,
    /// Names of its pools, in the order of its devices.
    pub pools: Vec<String>,
    /// Names of its pools that are DAX devices.
    pub dax: Vec<String>,
    /// The user who started it and may use its pools.
    pub uid: u32,
    /// Channels for commands that it has.
    pub channels: usize,
    /// Its uplink, if it has one.
    pub uplink: Option<Card>,
    /// The network between the machines, if there is one.
    pub network: Option<Network>,
    /// Names of machines on it that are not called `vm` with their index, each with its index. The name is
    /// empty where no machine has the index.
    pub hosts: Vec<(u32, String)>,
    /// Files of the host that it sees, besides the system's.
    pub shares: Vec<Share>,
    /// The exported parts of the host, if it sees the host by them; otherwise it sees one file tree.
    pub exported: Option<Exported>,
    /// The launcher that has started it.
    pub launcher: String,
    /// It has its initramfs only, and not the host's root.
    pub slim: bool,
    /// The machine has the host's files as a disk, as they were, and its shares by 9p above that.
    pub root_disk: bool,
    /// Only report that the machine boots.
    pub probe: bool,
    /// It is a template: it waits to be told its other settings.
    pub template: bool,
}

/// The network between the machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// This machine's address.
    pub address: Ipv4Addr,
    /// The number of machines that are called `vm0` and so on, in the order of their addresses.
    pub machines: u32,
}

impl Network {
    /// This machine's index.
    pub fn index(&self) -> u32 {
        u32::from(self.address).wrapping_sub(u32::from(address(0)))
    }
}

/// The highest index of a machine: its address is one of 10.77.0.0/24.
const MAX_INDEX: u32 = 253;

/// The address of the machine with this index: 10.77.0.1, 10.77.0.2, ...
pub fn address(index: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 1)) + index)
}

/// The hardware address of its card on that network: 52:54:00:77:00:01, ...
pub fn mac(index: u32) -> String {
    let (high, low) = ((index + 1) >> 8 & 0xff, (index + 1) & 0xff);
    format!("52:54:00:77:{high:02x}:{low:02x}")
}

impl Settings {
    /// The settings as parameters of a kernel.
    pub fn to_command_line(&self) -> String {
        let mut out = format!(
            "vshmem.name={} vshmem.pools={} vshmem.uid={} vshmem.channels={}",
            self.name,
            self.pools.join(","),
            self.uid,
            self.channels
        );
        if !self.dax.is_empty() {
            out.push_str(&format!(" vshmem.dax={}", self.dax.join(",")));
        }
        if let Some(net) = self.network {
            out.push_str(&format!(" vshmem.net={}/{}", net.address, net.machines));
        }
        if let Some(card) = &self.uplink {
            out.push_str(&format!(" vshmem.uplink={}", card.to_word()));
        }
        if !self.hosts.is_empty() {
            let hosts: Vec<_> = self.hosts.iter().map(|(index, name)| format!("{index}:{name}")).collect();
            out.push_str(&format!(" vshmem.hosts={}", hosts.join(",")));
        }
        if !self.shares.is_empty() {
            out.push_str(&format!(" vshmem.shares={}", share::encode(&self.shares)));
        }
        if let Some(exported) = &self.exported {
            out.push_str(&format!(" vshmem.exported={}", exported.encode()));
        }
        out.push_str(&format!(" vshmem.launcher={}", self.launcher));
        if self.slim {
            out.push_str(" vshmem.slim");
        }
        if self.root_disk {
            out.push_str(&format!(" vshmem.root={EROFS}"));
        }
        if self.probe {
            out.push_str(" vshmem.probe");
        }
        if self.template {
            out.push_str(" vshmem.template");
        }
        out
    }

    /// The settings in the text of /proc/cmdline; other parameters are skipped.
    pub fn from_command_line(line: &str) -> Result<Settings> {
        let mut out = Settings { name: "vm".into(), ..Settings::default() };
        for word in line.split_ascii_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let bad = || error!("{word} on the kernel's command line is invalid");
            match key {
                "vshmem.name" => out.name = value.into(),
                "vshmem.pools" => out.pools = names(value),
                "vshmem.dax" => out.dax = names(value),
                "vshmem.uid" => out.uid = value.parse().map_err(|_| bad())?,
                "vshmem.channels" => out.channels = value.parse().map_err(|_| bad())?,
                "vshmem.net" => out.network = Some(network(value).ok_or_else(bad)?),
                "vshmem.uplink" => out.uplink = Some(Card::from_word(value).ok_or_else(bad)?),
                "vshmem.hosts" => out.hosts = hosts(value).ok_or_else(bad)?,
                "vshmem.shares" => out.shares = share::decode(value).ok_or_else(bad)?,
                "vshmem.exported" => out.exported = Some(Exported::decode(value).ok_or_else(bad)?),
                "vshmem.launcher" => out.launcher = value.into(),
                "vshmem.slim" => out.slim = true,
                "vshmem.root" => out.root_disk = value == EROFS,
                "vshmem.probe" => out.probe = true,
                "vshmem.template" => out.template = true,
                _ => (),
            }
        }
        Ok(out)
    }
}

/// The names of a list, which commas separate and which may be empty.
fn names(list: &str) -> Vec<String> {
    let all = list.split(',').filter(|name| !name.is_empty());
    all.map(String::from).collect()
}

/// The text of `/etc/hosts` in a machine of this name.
pub fn hosts_file(name: &str, network: Option<Network>, hosts: &[(u32, String)]) -> String {
    let mut out = String::from("127.0.0.1 localhost\n::1 localhost\n");
    let Some(network) = network else {
        return out + &format!("127.0.1.1 {name}\n");
    };
    let usual = (0..network.machines).map(|index| (index, format!("vm{index}")));
    let is_other = |(index, _): &(u32, String)| hosts.iter().any(|(other, _)| other == index);
    let named = hosts.iter().filter(|(_, name)| !name.is_empty());
    for (index, name) in usual.filter(|it| !is_other(it)).chain(named.cloned()) {
        out.push_str(&format!("{} {name}\n", address(index)));
    }
    out
}

fn hosts(list: &str) -> Option<Vec<(u32, String)>> {
    let host = |text: &String| {
        let (index, name) = text.split_once(':')?;
        Some((index.parse().ok().filter(|index| *index <= MAX_INDEX)?, name.into()))
    };
    names(list).iter().map(host).collect()
}

fn network(text: &str) -> Option<Network> {
    let (address, machines) = text.split_once('/')?;
    Some(Network { address: address.parse().ok()?, machines: machines.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_command_line() {
        let settings = Settings {
            dax: vec!["persistent".into()],
            name: "vm1".into(),
            pools: vec!["default".into(), "other".into()],
            uid: 1000,
            channels: 8,
            network: Some(Network { address: address(1), machines: 2 }),
            uplink: Card::from_word("02:00:00:00:00:01,10.0.0.2/24,-,10.0.0.9"),
            hosts: vec![(0, "boss".into()), (2, String::new()), (3, "w3".into())],
            shares: vec![Share { path: "/a b".into(), writable: true }],
            exported: Some(Exported { trees: vec!["/usr".into()], ..Exported::default() }),
            launcher: "other".into(),
            slim: true,
            root_disk: true,
            probe: false,
            template: false,
        };
        let line = format!("quiet console=ttyS0 {} panic=-1\n", settings.to_command_line());
        assert_eq!(Settings::from_command_line(&line).unwrap(), settings);
        let probe = Settings { probe: true, network: None, pools: vec![], ..settings };
        assert_eq!(Settings::from_command_line(&probe.to_command_line()).unwrap(), probe);
        let template = Settings { template: true, ..probe };
        assert_eq!(Settings::from_command_line(&template.to_command_line()).unwrap(), template);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "vshmem.uid=x",
            "vshmem.net=10.0.0.1",
            "vshmem.channels=-1",
            "vshmem.uplink=x",
            "vshmem.hosts=a",
            "vshmem.hosts=254:a",
            "vshmem.shares=x",
            "vshmem.exported=x",
        ] {
            let error = Settings::from_command_line(line).unwrap_err().to_string();
            assert!(error.contains(line), "{error}");
        }
    }

    #[test]
    fn hosts_have_names() {
        let network = Network { address: address(0), machines: 3 };
        let text = hosts_file("vm0", Some(network), &[(1, "boss".into()), (7, "w".into())]);
        assert!(text.ends_with("\n10.77.0.1 vm0\n10.77.0.3 vm2\n10.77.0.2 boss\n10.77.0.8 w\n"), "{text}");
        assert!(hosts_file("vm0", None, &[]).ends_with("\n127.0.1.1 vm0\n"));
    }

    #[test]
    fn addresses_count_up() {
        assert_eq!(address(0).to_string(), "10.77.0.1");
        assert_eq!(address(9).to_string(), "10.77.0.10");
        assert_eq!(Network { address: address(9), machines: 0 }.index(), 9);
        assert_eq!(mac(9), "52:54:00:77:00:0a");
    }
}
