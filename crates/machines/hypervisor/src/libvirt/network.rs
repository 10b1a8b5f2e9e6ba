//! The networks that a domain is on: the one between the machines of its cluster, and one outside.
//!
//! The former is a network of libvirt that leads nowhere: a bridge without an address, on which this host is
//! not, and nobody answers requests for addresses. It is transient, like the domains.

use super::names::{network_name, network_uuid};
use super::unfit;
use crate::running::virsh::Domain;
use crate::shared::uplink::{check_bridge, tap_of, wanted};
use crate::shared::xml::Element;
use crate::state::record::{Machine, Record};
use vshmem_base::error::{Error, Explain, Result};
use vshmem_base::interface;
use vshmem_base::user::uid;
use vshmem_guest::settings::mac;
use vshmem_guest::settings::uplink::{Card, Means};

/// The cards of a machine, still without their addresses on a bus. Their networks exist.
pub fn cards(record: &Record, machine: &Machine, uri: &str, is_networked: bool) -> Result<Vec<Element>> {
    let mut all = Vec::new();
    if is_networked {
        make(record, uri)?;
        let source = Element::new("source").with("network", network_name(record));
        all.push(card("network", &mac(machine.index), source));
    }
    all.extend(outside(record, machine)?);
    Ok(all)
}

/// The card on the network outside, if there is one.
fn outside(record: &Record, machine: &Machine) -> Result<Option<Element>> {
    let Some((by, own)) = wanted(record, machine)? else { return Ok(None) };
    let card = card_outside(by, &own, machine);
    card.map(Some).map_err(|why| why.about(&format!("{} gets no network outside", machine.name)))
}

fn card_outside(by: &Means, own: &Card, machine: &Machine) -> Result<Element> {
    Ok(match by {
        Means::Bridge(bridge) => {
            check_bridge(bridge)?;
            card("bridge", &own.mac, Element::new("source").with("bridge", bridge))
        }
        Means::Tap(name) => {
            let name = tap_of(name, machine);
            let is_there = interface::exists(&name);
            if is_there && uid() == 0 {
                interface::up(&name).explain(|| format!("could not bring the tap device {name} up"))?;
            }
            // One that libvirt makes, it removes.
            let target = Element::new("target").with("dev", name);
            card("ethernet", &own.mac, target.with("managed", if is_there { "no" } else { "yes" }))
        }
        Means::User => return Err(Error::new(unfit::USER)),
    })
}

/// A card that is connected with something.
fn card(kind: &'static str, mac: &str, with: Element) -> Element {
    Element::new("interface").with("type", kind).and([
        with,
        Element::new("mac").with("address", mac),
        Element::new("model").with("type", "virtio"),
        // Nothing boots from it.
        Element::new("rom").with("enabled", "no"),
    ])
}

/// Error of virsh where the driver of libvirt's for a task is not installed.
const NO_DRIVER: &str = "not supported by the connection driver";

/// Makes the network between the machines of a cluster, unless it is there.
fn make(record: &Record, uri: &str) -> Result<()> {
    let (libvirt, uuid) = (at(record, uri), network_uuid(record)?);
    if libvirt.virsh(&["net-name", &uuid], "").is_ok() {
        return Ok(());
    }
    let network = Element::new("network").and([
        Element::new("name").text(&libvirt.name),
        Element::new("uuid").text(uuid),
        Element::new("bridge").with("stp", "off").with("delay", 0),
    ]);
    let made = libvirt.virsh(&["net-create", "/dev/stdin"], &network.document()?);
    made.map(drop).map_err(|why| match why.to_string().contains(NO_DRIVER) {
        true => why.hint("Install libvirt's driver for networks, for instance: sudo apt-get install libvirt-daemon-driver-network. Then start libvirtd anew."),
        false => why,
    })
}

/// Removes the network between the machines of a cluster, if there is one, also if somebody has defined it
/// meanwhile.
pub fn remove(record: &Record, uri: &str) -> Result<()> {
    if record.machines.iter().any(|machine| machine.address.is_some()) {
        let (libvirt, uuid) = (at(record, uri), network_uuid(record)?);
        let _ = libvirt.virsh(&["net-destroy", &uuid], "");
        let _ = libvirt.virsh(&["net-undefine", &uuid], "");
    }
    Ok(())
}

fn at(record: &Record, uri: &str) -> Domain {
    Domain { name: network_name(record), connect: Some(uri.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_says_what_it_is_connected_with() {
        let told =
            card("bridge", "02:00:00:00:00:01", Element::new("source").with("bridge", "a'b")).to_string();
        assert_eq!(
            told,
            "<interface type='bridge'>\n  <source bridge='a&apos;b'/>\n  <mac address='02:00:00:00:00:01'/>\n  \
             <model type='virtio'/>\n  <rom enabled='no'/>\n</interface>\n"
        );
    }
}
