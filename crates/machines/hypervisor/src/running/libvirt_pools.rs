//! Pools as devices of libvirt's domains.

use super::pci::FreeBus;
use super::ports::Generation;
use crate::running::virsh::{Domain, DENIED};
use crate::shared::doorbell::VECTORS;
use crate::shared::shm_link::{LinkUser, ShmLink};
use crate::shared::xml::{text_of, Element};
use crate::state::record::Granted;
use std::path::Path;
use vshmem_base::error::{error, Error, Result};

/// Plugs a pool into a domain, by way of libvirt. Its file gets a link for the `link_user`, or is where
/// libvirt finds it.
pub fn plug(
    domain: &Domain,
    pool: &Granted,
    doorbell: Option<&Path>,
    bus: &FreeBus,
    link_user: Option<LinkUser<'_>>,
) -> Result<()> {
    if let Some(transport) = &pool.transport {
        return Err(error!("a domain of libvirt can't be given a pool by {transport} while it runs")
            .hint("Make the pool without --dax."));
    }
    let number = bus.bus.strip_prefix("pci.").and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| error!("the port {} is none of libvirt's", bus.bus))?;
    let shm_link = match (doorbell, link_user) {
        (None, Some(link_user)) => Some(ShmLink::make(pool, link_user)?),
        (None, None) => Some(ShmLink::in_place(&pool.path)?),
        (Some(_), _) => None,
    };
    let file = shm_link.as_ref().map_or(&pool.name, |shm_link| &shm_link.name);
    let xml = shmem(pool, file, doorbell, (Generation::now(), number))?.document()?;
    // Links have other names in each boot of the host.
    let called = if link_user.is_some() { "vshmem-*" } else { file.as_str() };
    domain.attach(&xml).map_err(|why| explained(why, called))
}

/// The error of libvirt, with what to do about a file that QEMU may not open. libvirt tells AppArmor of the
/// pools that a domain starts with, and of no other.
fn explained(why: Error, called: &str) -> Error {
    match why.to_string().contains(DENIED) {
        true => why.hint(format!(
            "QEMU's user must be able to open the pool. AppArmor, where it confines domains, admits each to the \
             pools that it starts with: for others, add the line '/dev/shm/{called} rw,' to \
             /etc/apparmor.d/local/abstractions/libvirt-qemu, and start the domain again."
        )),
        false => why,
    }
}

/// A pool's device on a bus of this number, in libvirt's XML. `file` is its name in `/dev/shm`; it means
/// nothing if the back end provides the memory.
pub fn shmem(
    pool: &Granted,
    file: &str,
    doorbell: Option<&Path>,
    (generation, bus): (Generation, u8),
) -> Result<Element> {
    let name = &pool.name;
    if name.contains('.') {
        return Err(error!(
            "libvirt takes no dots in names, as in {name}; choose another (vshmem grant --as)"
        ));
    }
    let model = |kind| Element::new("model").with("type", kind);
    let parts = match doorbell {
        Some(socket) => vec![
            model("ivshmem-doorbell"),
            Element::new("server").with("path", text_of(socket)?),
            Element::new("msi").with("vectors", VECTORS),
        ],
        None => vec![model("ivshmem-plain"), Element::new("size").with("unit", "b").text(pool.size)],
    };
    let alias = format!("ua-{}", generation.device(name));
    Ok(Element::new("shmem")
        .with("name", file)
        .and(parts)
        .and([Element::new("alias").with("name", alias), address(bus.into(), 0, 0)]))
}

/// A PCI address, in libvirt's XML.
pub fn address(bus: usize, slot: usize, function: usize) -> Element {
    let number = |number| format!("{number:#04x}");
    Element::new("address")
        .with("type", "pci")
        .with("domain", "0x0000")
        .with("bus", number(bus))
        .with("slot", number(slot))
        .with("function", format!("{function:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, path: &str) -> Granted {
        Granted::new(name.into(), path.into(), 1 << 20, false)
    }

    #[test]
    fn a_pool_that_qemu_may_not_open_is_an_error_that_says_what_to_do() {
        let denied = explained(error!("can't open backing store: {DENIED}"), "work").to_string();
        assert!(denied.contains("'/dev/shm/work rw,'"), "{denied}");
        assert_eq!(explained(error!("other"), "work").to_string(), "other");
    }

    #[test]
    fn devices_are_described() {
        let told = |pool: &Granted, doorbell| {
            let element = shmem(pool, "file", doorbell, (Generation(7), 12));
            element.and_then(|element| element.document()).map_err(|error| error.to_string())
        };
        let plain = told(&pool("work", "/dev/shm/work"), None).unwrap();
        assert_eq!(
            plain,
            "<shmem name='file'>\n  <model type='ivshmem-plain'/>\n  <size unit='b'>1048576</size>\n  \
             <alias name='ua-vshmem-pool-00000007-work'/>\n  \
             <address type='pci' domain='0x0000' bus='0x0c' slot='0x00' function='0x0'/>\n</shmem>\n"
        );
        let doorbell = told(&pool("work", "/tmp/x"), Some(Path::new("/run/it's/bell"))).unwrap();
        assert!(doorbell.contains("<server path='/run/it&apos;s/bell'/>"), "{doorbell}");
        assert!(!doorbell.contains("<size"), "{doorbell}");
        assert!(told(&pool("a.b", "/dev/shm/x"), None).unwrap_err().contains("dots"));
    }

    #[test]
    fn ports_that_are_not_libvirt_s_are_refused() {
        let domain = Domain { name: "a".into(), connect: None };
        let bus = FreeBus { bus: "port1".into(), largest: 0 };
        let why = plug(&domain, &pool("ab", "/dev/shm/x"), None, &bus, None).unwrap_err().to_string();
        assert!(why.contains("none of libvirt's"), "{why}");
    }
}
