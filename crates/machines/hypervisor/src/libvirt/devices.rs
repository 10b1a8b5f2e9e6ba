//! A domain's devices. Pools, and the host's devices, are behind ports of their own; the domain's other
//! devices are on the root bus.

use super::files::Export;
use super::uri::RunsAs;
use crate::qemu::disks::Attached;
use crate::running::libvirt_pools::{address, shmem};
use crate::running::ports::Generation;
use crate::shared::sockets::{agent_socket, AGENT_ALIAS};
use crate::shared::xml::{text_of, Element};
use crate::state::record::Granted;
use std::path::Path;
use vshmem_agent::guest::protocol::PORT;
use vshmem_base::directories::channel_socket;
use vshmem_base::error::{error, Error, Result};
use vshmem_devices::choose::Assigned;
use vshmem_guest::hypervisor::qemu::PORT_NAME;

/// The first slot of the root bus for ports, of which eight share one.
const PORTS: usize = 2;
/// The first slot of the root bus for other devices.
const OTHERS: usize = 8;
/// The slots for other devices; the last slot is the chipset's.
const ROOM: usize = 0x1f - OTHERS;

/// A pool that a domain starts with.
pub struct Pool<'a> {
    /// The pool.
    pub granted: &'a Granted,
    /// The name of its file in `/dev/shm`, if that is used.
    pub file: String,
    /// The socket at which the back end serves it, if it has doorbells.
    pub doorbell: Option<&'a Path>,
}

/// The devices of a domain.
pub struct Devices<'a> {
    /// The pools that it starts with.
    pub pools: &'a [Pool<'a>],
    /// Ports for pools that it is granted later.
    pub spare: u32,
    /// Devices of the host that it has for itself.
    pub passed: &'a [Assigned],
    /// Its disks, if its system is one of its own, whether it boots from them, and the user that opens them.
    pub disks: Option<(&'a Attached, bool, RunsAs)>,
    /// The directories of this host that it sees.
    pub exports: &'a [Export],
    /// Its network cards.
    pub cards: &'a [Element],
    /// Channels for commands.
    pub channels: usize,
    /// The directory of its sockets.
    pub directory: &'a Path,
    /// The file of its console's output.
    pub console: &'a Path,
}

impl Devices<'_> {
    /// Their elements.
    ///
    /// # Errors
    /// There is no room for all of them, or a path can't be written as XML.
    pub fn elements(&self) -> Result<Vec<Element>> {
        let pools = self.pools.len() + self.spare as usize;
        let mut all =
            vec![Element::new("controller").with("type", "pci").with("index", 0).with("model", "pcie-root")];
        all.extend((0..pools + self.passed.len()).map(port));
        all.push(Element::new("controller").with("type", "usb").with("model", "none"));
        for (number, pool) in self.pools.iter().enumerate() {
            all.push(shmem(pool.granted, &pool.file, pool.doorbell, (Generation::FIRST, bus(number) as u8))?);
        }
        all.extend(self.passed.iter().zip(pools..).map(|(device, number)| passed(device, bus(number))));
        let others = self.on_root_bus()?;
        if others.len() > ROOM {
            let many = others.len() - ROOM;
            return Err(error!("a domain has no room for so many shared directories: {many} too many")
                .hint("Share a directory that has others in it."));
        }
        let placed =
            others.into_iter().zip(OTHERS..).map(|(element, slot)| element.and([address(0, slot, 0)]));
        all.extend(placed);
        all.extend(self.channels()?);
        all.push(console(self.console)?);
        all.push(Element::new("memballoon").with("model", "none"));
        Ok(all)
    }

    /// The elements of devices on the root bus, still without their addresses.
    fn on_root_bus(&self) -> Result<Vec<Element>> {
        let random = Element::new("backend").with("model", "random").text("/dev/urandom");
        let mut all = vec![
            Element::new("rng").with("model", "virtio").and([random]),
            Element::new("controller")
                .with("type", "virtio-serial")
                .with("index", 0)
                .with("ports", self.channels + 2),
        ];
        if let Some((disks, boots, runs_as)) = self.disks {
            all.extend(disk_elements(disks, boots, runs_as)?);
        }
        for export in self.exports {
            all.push(filesystem(export)?);
        }
        all.extend(self.cards.iter().cloned());
        Ok(all)
    }

    /// The channels for commands, and the front end's.
    fn channels(&self) -> Result<Vec<Element>> {
        let channel = |number: usize| {
            let socket = channel_socket(self.directory, number);
            channel(&socket, &format!("{PORT_NAME}{number}"), number + 1, None)
        };
        let mut all = (0..self.channels).map(channel).collect::<Result<Vec<_>>>()?;
        all.push(self::channel(&agent_socket(self.directory), PORT, self.channels + 1, Some(AGENT_ALIAS))?);
        Ok(all)
    }
}

/// The number of the bus behind a port.
fn bus(port: usize) -> usize {
    port + 1
}

fn port(number: usize) -> Element {
    let place = address(0, PORTS + number / 8, number % 8);
    let place = if number % 8 == 0 { place.with("multifunction", "on") } else { place };
    let port = Element::new("controller").with("type", "pci").with("index", bus(number));
    port.with("model", "pcie-root-port").and([place])
}

fn passed(device: &Assigned, bus: usize) -> Element {
    let it = device.address;
    let source = Element::new("address")
        .with("domain", format!("{:#06x}", it.domain))
        .with("bus", format!("{:#04x}", it.bus))
        .with("slot", format!("{:#04x}", it.device))
        .with("function", format!("{:#x}", it.function));
    // Its driver is changed and given back by the ledger's rules.
    let device = Element::new("hostdev").with("mode", "subsystem").with("type", "pci").with("managed", "no");
    device.and([Element::new("source").and([source]), address(bus, 0, 0)])
}

/// The disk, with its overlay over the image, and the seed. They need not survive this host, so nothing waits
/// for its own disks. Their owners are set elsewhere: libvirt must give no file to another user, and the
/// image stays its owner's.
fn disk_elements(disks: &Attached, boots: bool, runs_as: RunsAs) -> Result<Vec<Element>> {
    let disk = |format: &str| {
        let driver = Element::new("driver").with("name", "qemu").with("type", format).with("cache", "unsafe");
        (Element::new("disk").with("type", "file").with("device", "disk"), driver)
    };
    let stays = runs_as.user().map(|_| Element::new("seclabel").with("model", "dac").with("relabel", "no"));
    let source =
        |file: &Path| Ok::<_, Error>(Element::new("source").with("file", text_of(file)?).and(stays.clone()));
    let target = |name| Element::new("target").with("dev", name).with("bus", "virtio");
    let mut all = Vec::new();
    if let Some((image, format, written)) = &disks.disk {
        let (element, driver) = disk("qcow2");
        let base = [Element::new("format").with("type", format.name()), source(image)?];
        let base = Element::new("backingStore").with("type", "file").and(base);
        let order = boots.then(|| Element::new("boot").with("order", 1));
        let parts = [driver.with("discard", "unmap"), source(written)?, base, target("vda")];
        all.push(element.and(parts).and(order));
    }
    let (element, driver) = disk("raw");
    all.push(element.and([driver, source(&disks.seed)?, target("vdb"), Element::new("readonly")]));
    Ok(all)
}

fn filesystem(export: &Export) -> Result<Element> {
    let element = Element::new("filesystem")
        .with("type", "mount")
        .with("accessmode", "squash")
        .with("multidevs", "remap");
    let source = Element::new("source").with("dir", text_of(&export.directory)?);
    let parts = [source, Element::new("target").with("dir", &export.tag)];
    let read_only = (!export.writable).then(|| Element::new("readonly"));
    Ok(element.and(parts).and(read_only))
}

fn channel(socket: &Path, name: &str, port: usize, alias: Option<&str>) -> Result<Element> {
    let source = Element::new("source").with("mode", "bind").with("path", text_of(socket)?);
    let target = Element::new("target").with("type", "virtio").with("name", name);
    let alias = alias.map(|alias| Element::new("alias").with("name", alias));
    let place = Element::new("address").with("type", "virtio-serial").with("controller", 0).with("bus", 0);
    Ok(Element::new("channel")
        .with("type", "unix")
        .and([source, target])
        .and(alias)
        .and([place.with("port", port)]))
}

/// The console, which `virsh console` shows, and which is written to a file.
fn console(file: &Path) -> Result<Element> {
    let log = Element::new("log").with("file", text_of(file)?).with("append", "off");
    Ok(Element::new("serial").with("type", "pty").and([log, Element::new("target").with("port", 0)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::image::Format;

    fn export(number: usize) -> Export {
        Export { tag: format!("share{number}"), directory: "/a'b".into(), writable: number == 1 }
    }

    fn told(devices: &Devices) -> Result<String> {
        Ok(devices.elements()?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn each_device_has_a_place_of_its_own() {
        let pool = Granted::new("work".into(), "/p".into(), 1 << 20, false);
        let pools = [
            Pool { granted: &pool, file: "linked".into(), doorbell: None },
            Pool { granted: &pool, file: "work".into(), doorbell: Some(Path::new("/s")) },
        ];
        let passed =
            [Assigned { address: "01:02.3".parse().unwrap(), kind: "nvme".into(), group: 1, node: None }];
        let disk = Some(("/base".into(), Format::Raw, "/over".into()));
        let disks = Attached { disk, seed: "/seed".into() };
        let devices = Devices {
            pools: &pools,
            spare: 6,
            passed: &passed,
            disks: Some((&disks, true, RunsAs::Starter)),
            exports: &[export(0), export(1)],
            cards: &[Element::new("interface").with("type", "bridge")],
            channels: 2,
            directory: Path::new("/run/c"),
            console: Path::new("/run/c/console.log"),
        };
        let all = told(&devices).unwrap();
        for part in [
            "<controller type='pci' index='9' model='pcie-root-port'>\n  <address type='pci' domain='0x0000' bus='0x00' slot='0x03' function='0x0' multifunction='on'/>",
            "<shmem name='linked'>\n  <model type='ivshmem-plain'/>",
            "<server path='/s'/>",
            "<hostdev mode='subsystem' type='pci' managed='no'>\n  <source>\n    <address domain='0x0000' bus='0x01' slot='0x02' function='0x3'/>\n  </source>\n  <address type='pci' domain='0x0000' bus='0x09'",
            "<source file='/over'/>\n  <backingStore type='file'>\n    <format type='raw'/>\n    <source file='/base'/>",
            "<boot order='1'/>",
            "<source dir='/a&apos;b'/>\n  <target dir='share0'/>\n  <readonly/>",
            "<target dir='share1'/>\n  <address",
            "<interface type='bridge'>\n  <address type='pci'",
            "<source mode='bind' path='/run/c/channel1.sock'/>\n  <target type='virtio' name='vshmem.1'/>\n  <address type='virtio-serial' controller='0' bus='0' port='2'/>",
            "<alias name='ua-agent'/>\n  <address type='virtio-serial' controller='0' bus='0' port='3'/>",
            "<log file='/run/c/console.log' append='off'/>",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
        let mut places: Vec<&str> = all
            .lines()
            .filter(|line| line.contains("domain='0x0000' bus='0x0") && line.contains("type='pci'"))
            .collect();
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count, "{places:?}");
        let others = Devices { disks: Some((&disks, true, RunsAs::Other(7))), ..devices };
        let owned = told(&others).unwrap();
        assert_eq!(owned.matches("<seclabel model='dac' relabel='no'/>").count(), 3, "{owned}");
        let many: Vec<Export> = (0..30).map(export).collect();
        let why = told(&Devices { exports: &many, ..others }).unwrap_err().to_string();
        assert!(why.contains("no room for so many shared directories: 12 too many"), "{why}");
    }
}
