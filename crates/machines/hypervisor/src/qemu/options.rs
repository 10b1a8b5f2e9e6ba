//! QEMU's options for a machine.

use super::accel::Accel;
use super::arguments::Arguments;
use super::disks::Attached;
use super::netdev;
use super::placed::{self, Backing};
use crate::running::plug::{with_head, STAYS};
use crate::running::ports::{self, Generation};
use crate::shared::doorbell::VECTORS;
use crate::shared::network::Link;
use crate::shared::passed;
use crate::shared::root_server;
use crate::shared::sandbox::{self, Descriptor, Descriptors};
use crate::shared::sockets::{agent_socket, monitor_socket, settings_socket, AGENT};
use crate::shared::uplink::Opened;
use crate::state::ports::Ports;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use vshmem_agent::guest::protocol::PORT;
use vshmem_base::directories::channel_socket;
use vshmem_devices::choose::Assigned;
use vshmem_guest::disk;
use vshmem_guest::hypervisor::qemu::PORT_NAME;
use vshmem_guest::settings::{mac, Settings};
use vshmem_guest::template;
use vshmem_placement::plan::Placed;
use vshmem_session::share::{self, Share};

/// A pool's file.
pub struct PoolFile<'a> {
    /// Its name in the machine.
    pub name: &'a str,
    /// Its path.
    pub path: &'a Path,
    /// Its size in bytes, a power of two.
    pub size: u64,
    /// The alignment of QEMU's mapping of it, in bytes, if that matters.
    pub align: Option<u64>,
    /// The socket at which the back end serves it, if it has doorbells.
    pub doorbell: Option<&'a Path>,
    /// The machine gets it as persistent memory, with the head of its file.
    pub dax: bool,
}

/// The beginning of a machine, and where its memory comes from. A file is a descriptor that its starter has
/// open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// It boots.
    Boot,
    /// It boots and becomes a template; its memory is this file, or a part of the state that is saved.
    Template(Option<RawFd>),
    /// It thaws; its memory is a private copy of this file, a template's, or a part of the state.
    Thaw(Option<RawFd>),
}

/// The parts of a machine.
pub struct MachineSpec<'a> {
    /// Its beginning.
    pub beginning: Beginning,
    /// The settings that the host passes to the machine.
    pub settings: &'a Settings,
    /// The name of the QEMU process in process lists.
    pub title: String,
    /// Its accelerator.
    pub accel: Accel,
    /// Virtual cores.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Its placement, if one was asked for.
    pub placement: Option<&'a Placed>,
    /// Devices of the host that it has for itself.
    pub devices: &'a [Assigned],
    /// The pages of its memory, and the threads that take them.
    pub backing: Backing,
    /// The kernel that it boots; none: its disk's boot loader finds one.
    pub kernel: Option<Loaded>,
    /// Its disks, if its system is one of its own.
    pub disks: Option<Attached>,
    /// The disk that is its root, if that is one.
    pub root: Option<RootDisk>,
    /// Directory of its sockets and logs.
    pub directory: &'a Path,
    /// Pools that it starts with.
    pub pools: Vec<PoolFile<'a>>,
    /// Sizes of pools that it has not, and that its machines begin with, if it is a template.
    pub later_pools: Vec<u64>,
    /// Ports for pools that are granted.
    pub ports: Ports,
    /// Its ends of the links to its neighbours, if it has a network.
    pub links: Option<Vec<Link>>,
    /// The opened uplink, if it has one.
    pub uplink: Option<Opened>,
    /// Index of the machine, for its MAC address.
    pub index: u32,
    /// The user that it runs as, if not its starter.
    pub user: Option<u32>,
}

/// A kernel that QEMU loads.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// Its image.
    pub image: PathBuf,
    /// Its initramfs.
    pub initramfs: Option<PathBuf>,
    /// Its parameters.
    pub parameters: String,
}

/// The host's files as a disk, which a server has. QEMU connects again by itself when that was started anew.
#[derive(Debug, Clone)]
pub struct RootDisk {
    /// The name of the server's export. QEMU asks for it each time: another image is refused.
    pub id: String,
    /// The directory of the server's socket.
    pub sockets: PathBuf,
}

/// Seconds that a machine waits for a server that is started anew. Its reads fail then.
const RECONNECT: u32 = 30;

/// The board of a machine.
const MACHINE: &str = "q35";
/// The board without devices that only boot loaders and other systems' drivers use: firmware and kernel look
/// for each of these, and wait for some.
const BARE_MACHINE: &str = "q35,smm=off,sata=off,smbus=off,i8042=off,hpet=off";

/// System calls that QEMU must not make, even if a machine takes it over. Cores are pinned from outside.
const SECCOMP: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// The arguments for a machine, and the descriptors that they name.
pub fn arguments(spec: &MachineSpec<'_>) -> (Vec<String>, Descriptors) {
    let mut out = Arguments::default();
    out.add("-name", &spec.title);
    // vshmem doctor knows the threads of processors by these names.
    out.add("-name", "debug-threads=on");
    out.words.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(String::from));
    out.add("-sandbox", SECCOMP);
    out.add("-display", "none");
    out.add("-machine", if spec.disks.is_some() { MACHINE } else { BARE_MACHINE });
    out.words.extend(spec.accel.arguments().map(String::from));
    out.add("-smp", &placed::processors(spec.cpus, spec.placement.map(|placed| &placed.guest)));
    out.add("-m", &memory(spec));
    ram(&mut out, spec);
    if let Some(kernel) = &spec.kernel {
        for (option, file) in [("-kernel", Some(&kernel.image)), ("-initrd", kernel.initramfs.as_ref())] {
            if let Some(file) = file {
                let file = out.file(Descriptor::Read(file.clone()));
                out.add(option, &file);
            }
        }
        out.add("-append", &kernel.parameters);
    }
    let console = out.descriptors.add(Descriptor::Console);
    out.add("-chardev", &format!("socket,id=console,fd={console}"));
    out.add("-serial", "chardev:console");
    out.listen("monitor", monitor_socket(spec.directory));
    out.add("-mon", "chardev=monitor,mode=control");
    out.add("-device", "virtio-rng-pci");
    if let Some(disks) = &spec.disks {
        disks.add(&mut out);
    }
    files(&mut out, &spec.settings.shares);
    if let Some(root) = &spec.root {
        root_disk(&mut out, root, matches!(spec.beginning, Beginning::Template(_)));
    }
    channels(&mut out, spec);
    pools(&mut out, spec);
    let nodes = spec.placement.map_or(&[][..], |placed| &placed.guest.nodes);
    for device in passed::arguments(spec.devices, nodes) {
        out.add("-device", &device);
    }
    if let Some(links) = &spec.links {
        network(&mut out, links, spec.index);
    }
    let is_template = matches!(spec.beginning, Beginning::Template(_));
    if let Some(card) = spec.settings.uplink.as_ref().filter(|_| is_template || spec.uplink.is_some()) {
        uplink(&mut out, spec.uplink.as_ref(), &card.mac);
    }
    (out.words, out.descriptors)
}

/// The machine's memory, and that it waits for its state if it thaws.
fn ram(out: &mut Arguments, spec: &MachineSpec<'_>) {
    let (file, share) = match spec.beginning {
        Beginning::Boot | Beginning::Template(None) | Beginning::Thaw(None) => (None, false),
        Beginning::Template(Some(file)) => (Some(file), true),
        Beginning::Thaw(Some(file)) => (Some(file), false),
    };
    let options = match file {
        Some(file) => {
            let path = out.file(Descriptor::Inherited(file));
            placed::file(spec.memory, &path, share).into()
        }
        None => {
            // A state names it.
            let named = spec.beginning != Beginning::Boot;
            placed::memory(spec.memory, spec.placement, &spec.backing, named)
        }
    };
    options.into_iter().for_each(|(option, value)| out.add(option, &value));
    if matches!(spec.beginning, Beginning::Thaw(_)) {
        out.add("-incoming", "defer");
        out.words.push("-S".into());
    }
}

/// 9p devices for the files that the machine sees: one to read all of them, and one for those that it can
/// write to. A device serves one mount.
fn files(out: &mut Arguments, shares: &[Share]) {
    let mut add = |tag: &str, options: &str| {
        let local = format!("local,id={tag},path={}", sandbox::SHARED);
        out.add("-fsdev", &format!("{local},security_model=none,multidevs=remap{options}"));
        out.add("-device", &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
    };
    add(share::ROOT_TAG, ",readonly=on");
    if shares.iter().any(|share| share.writable) {
        add(share::WRITABLE_TAG, "");
    }
}

/// The root's port, and the disk behind it, which a template has not: a machine that thaws finds it there.
fn root_disk(out: &mut Arguments, root: &RootDisk, is_template: bool) {
    out.add("-device", ports::ROOT);
    if is_template {
        return;
    }
    let socket = root_server::socket();
    let server = format!("server.type=unix,server.path={},export={}", socket.display(), root.id);
    let node = format!("driver=nbd,node-name=root,read-only=on,{server},reconnect-delay={RECONNECT}");
    out.add("-blockdev", &node);
    let (bus, serial) = (ports::ROOT_PORT, disk::SERIAL);
    out.add("-device", &format!("virtio-blk-pci,drive=root,bus={bus},serial={serial}"));
}

/// Each pool behind a port of its own, and spare ports.
fn pools(out: &mut Arguments, spec: &MachineSpec<'_>) {
    let first: Vec<Option<u64>> = match spec.beginning {
        Beginning::Boot => spec.pools.iter().map(|_| None).collect(),
        Beginning::Template(_) => spec.later_pools.iter().copied().map(Some).collect(),
        // As its template has them.
        Beginning::Thaw(_) => spec.pools.iter().map(|pool| Some(pool.size)).collect(),
    };
    for port in ports::devices(&first, spec.ports) {
        out.add("-device", &port);
    }
    for (index, pool) in spec.pools.iter().enumerate() {
        let (port, device, backing) =
            (ports::port(index), Generation::FIRST.device(pool.name), Generation::FIRST.backing(pool.name));
        if let Some(socket) = pool.doorbell {
            let fd = out.descriptors.add(Descriptor::Connect(socket.into()));
            out.add("-chardev", &format!("socket,id={backing},fd={fd}"));
            let doorbell = format!("ivshmem-doorbell,vectors={VECTORS},chardev={backing}");
            out.add("-device", &format!("{doorbell},id={device},bus={port}"));
            continue;
        }
        let path = out.file(Descriptor::Write(pool.path.into()));
        let size = if pool.dax { with_head(pool.size) } else { pool.size };
        let align = pool.align.map(|align| format!(",align={align}")).unwrap_or_default();
        let memory = format!("share=on,mem-path={path},size={size}{align}");
        out.add("-object", &format!("memory-backend-file,id={backing},{memory}"));
        let shown = match pool.dax {
            true => format!("virtio-pmem-pci,memdev={backing}"),
            // Not master=on, as it stays where it is ([`STAYS`]).
            false => format!("ivshmem-plain,memdev={backing}"),
        };
        out.add("-device", &format!("{shown},id={device},bus={port}"));
    }
    if spec.pools.iter().any(|pool| pool.dax) {
        STAYS.iter().for_each(|(name, value)| out.add(name, value));
    }
}

/// The machine's memory, and address space for persistent memory: where it has a pool so, for as many more as
/// there are spare ports.
fn memory(spec: &MachineSpec<'_>) -> String {
    let size = format!("size={}k", spec.memory / 1024);
    let dax: Vec<u64> = spec.pools.iter().filter(|pool| pool.dax).map(|pool| pool.size).collect();
    if dax.is_empty() {
        return size;
    }
    let spare = std::iter::repeat_n(spec.ports.largest, spec.ports.spare as usize);
    let room: u64 = dax.into_iter().chain(spare).map(|size| with_head(size).next_multiple_of(1 << 30)).sum();
    format!("{size},slots=1,maxmem={}k", (spec.memory + room) / 1024)
}

fn channels(out: &mut Arguments, spec: &MachineSpec<'_>) {
    // Port 0 is reserved for consoles; the front end's follows the channels, and that for settings.
    let agent = spec.settings.channels + 1;
    let settings = agent + 1;
    let ports = settings + 1;
    out.add("-device", &format!("virtio-serial-pci,id=serial,max_ports={ports}"));
    for channel in 0..spec.settings.channels {
        out.listen(&format!("c{channel}"), channel_socket(spec.directory, channel));
        let port = channel + 1;
        out.add("-device", &format!("virtserialport,nr={port},chardev=c{channel},name={PORT_NAME}{channel}"));
    }
    out.listen(AGENT, agent_socket(spec.directory));
    out.add("-device", &format!("virtserialport,nr={agent},chardev={AGENT},name={PORT}"));
    if spec.beginning != Beginning::Boot {
        out.listen("settings", settings_socket(spec.directory));
        let name = template::PORT;
        out.add("-device", &format!("virtserialport,nr={settings},chardev=settings,name={name}"));
    }
}

/// The machine's links and its network card meet in a hub inside this QEMU.
fn network(out: &mut Arguments, links: &[Link], index: u32) {
    for Link { peer, socket } in links {
        let fd = out.descriptors.add(Descriptor::Inherited(socket.as_raw_fd()));
        let (link, port) = (netdev::socket_id(*peer), netdev::hubport_id(*peer));
        out.add("-netdev", &format!("socket,id={link},fd={fd}"));
        out.add("-netdev", &format!("hubport,id={port},hubid=0,netdev={link}"));
    }
    out.add("-netdev", "hubport,id=net,hubid=0");
    out.add("-device", &format!("virtio-net-pci,netdev=net,mac={},romfile=", mac(index)));
}

/// The card of the machine's uplink, and its network backend. A template has none: its card leads nowhere.
fn uplink(out: &mut Arguments, opened: Option<&Opened>, mac: &str) {
    let opened = opened.map(|opened| match opened {
        Opened::Tap(tap) => ("tap", tap),
        Opened::Frames(socket) => ("socket", socket),
    });
    match opened {
        Some((kind, end)) => {
            let fd = out.descriptors.add(Descriptor::Inherited(end.as_raw_fd()));
            out.add("-netdev", &format!("{kind},id=uplink,fd={fd}"));
        }
        None => out.add("-netdev", "hubport,id=uplink,hubid=1"),
    }
    out.add("-device", &format!("virtio-net-pci,netdev=uplink,mac={mac},romfile="));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::network::socket_pair;
    use vshmem_guest::settings::uplink::Card;

    fn line(links: Option<Vec<Link>>) -> String {
        line_with(links, None)
    }

    fn line_with(links: Option<Vec<Link>>, uplink: Option<Opened>) -> String {
        let settings = Settings {
            dax: vec![],
            name: "vm0".into(),
            pools: vec!["default".into()],
            uid: 1,
            channels: 2,
            network: None,
            uplink: Card::from_word("02:00:00:00:00:01,dhcp"),
            hosts: vec![],
            shares: vec![],
            exported: None,
            launcher: "qemu".into(),
            slim: false,
            root_disk: false,
            probe: false,
            template: false,
        };
        let spec = MachineSpec {
            beginning: Beginning::Boot,
            settings: &settings,
            title: "t".into(),
            accel: Accel::Tcg,
            cpus: 1,
            memory: 512 << 20,
            placement: None,
            devices: &[],
            backing: Backing::default(),
            kernel: Some(Loaded {
                image: "/k".into(),
                initramfs: Some("/i".into()),
                parameters: settings.to_command_line(),
            }),
            disks: None,
            root: None,
            directory: Path::new("/a,b"),
            pools: vec![PoolFile {
                name: "default",
                path: Path::new("/dev/shm/p"),
                size: 1 << 30,
                align: Some(1 << 30),
                doorbell: None,
                dax: false,
            }],
            later_pools: vec![],
            ports: Ports { spare: 1, largest: 1 << 30 },
            links,
            uplink,
            index: 1,
            user: None,
        };
        let (words, descriptors) = arguments(&spec);
        format!("{} {:?}", words.join(" "), descriptors.0)
    }

    #[test]
    fn qemu_is_told_no_path_of_the_host() {
        let line = line(None);
        let (words, descriptors) = line.split_once(" [").expect("descriptors follow");
        for path in ["/a,b", "/k", "/i", "/dev/shm"] {
            assert!(!words.contains(path) && descriptors.contains(path), "{path}: {line}");
        }
        assert!(words.contains("id=c0,fd=516,server=on"), "{line}");
        assert!(descriptors.ends_with("Write(\"/dev/shm/p\")]"), "{line}");
        let pool = "mem-path=/proc/self/fd/519,size=1073741824,align=1073741824";
        assert!(words.contains(pool), "{line}");
        assert!(!line.contains("-netdev"));
    }

    #[test]
    fn writable_shares_have_a_device_of_their_own() {
        let mut out = Arguments::default();
        let share = |writable| Share { path: "/a".into(), writable };
        files(&mut out, &[share(false)]);
        assert_eq!(out.words.iter().filter(|word| word.ends_with("readonly=on")).count(), 1);
        assert_eq!(out.words.len(), 4);
        files(&mut out, &[share(true)]);
        let writable = &out.words[9];
        assert!(writable.starts_with("local,id=writable,") && !writable.contains("readonly"));
    }

    #[test]
    fn pools_are_behind_ports() {
        let line = line(None);
        assert!(line.contains("id=vshmem-pool-00000000-default,bus=vshmem-port0"), "{line}");
        assert!(line.contains("id=vshmem-port1,bus=pcie.0"), "{line}");
        assert!(line.contains("nr=3,chardev=agent,name=org.vshmem.agent"), "{line}");
    }

    #[test]
    fn an_uplink_is_a_card_of_its_own() {
        let (one, other) = socket_pair().unwrap();
        let tap = line_with(None, Some(Opened::Tap(one)));
        assert!(tap.contains("-netdev tap,id=uplink,fd=5"), "{tap}");
        assert!(tap.contains("netdev=uplink,mac=02:00:00:00:00:01,romfile="), "{tap}");
        let user = line_with(None, Some(Opened::Frames(other)));
        assert!(user.contains("-netdev socket,id=uplink,fd=5"), "{user}");
    }

    #[test]
    fn a_machine_has_the_devices_of_its_template() {
        let settings = Settings {
            name: "vm7".into(),
            channels: 2,
            shares: vec![Share { path: "/a".into(), writable: true }],
            launcher: "qemu".into(),
            ..Settings::default()
        };
        let spec = |beginning, pools, later_pools, links| MachineSpec {
            beginning,
            settings: &settings,
            title: "t".into(),
            accel: Accel::Tcg,
            cpus: 1,
            memory: 512 << 20,
            placement: None,
            devices: &[],
            backing: Backing::default(),
            kernel: Some(Loaded { image: "/k".into(), initramfs: Some("/i".into()), parameters: "p".into() }),
            disks: None,
            root: Some(RootDisk { id: "0123".into(), sockets: "/d/.root/sockets".into() }),
            directory: Path::new("/d"),
            pools,
            later_pools,
            ports: Ports { spare: 1, largest: 1 << 30 },
            links,
            uplink: None,
            index: 0,
            user: None,
        };
        let pool = PoolFile {
            name: "default",
            path: Path::new("/dev/shm/p"),
            size: 1 << 30,
            align: None,
            doorbell: None,
            dax: false,
        };
        let devices = |spec: &MachineSpec<'_>| {
            let words = arguments(spec).0;
            let all = words.chunks(1).zip(words.iter().skip(1)).filter(|(word, _)| word[0] == "-device");
            let all = all
                .map(|(_, value)| value.clone())
                .filter(|value| !value.starts_with("ivshmem") && !value.starts_with("virtio-blk"));
            all.collect::<Vec<_>>()
        };
        let template = spec(Beginning::Template(Some(7)), vec![], vec![1 << 30], Some(vec![]));
        let links = crate::shared::network::star(2).unwrap().remove(0);
        let machine = spec(Beginning::Thaw(Some(9)), vec![pool], vec![], Some(links));
        assert_eq!(devices(&template), devices(&machine));
        assert!(devices(&machine).iter().any(|device| device.ends_with("name=org.vshmem.settings")));
        let told = |spec: &MachineSpec<'_>| arguments(spec).0.join(" ");
        assert!(!told(&template).contains("nbd") && !told(&template).contains("0123"), "{}", told(&template));
        let root = "server.path=/sockets/root,export=0123,reconnect-delay=30";
        assert!(told(&machine).contains(root) && !told(&machine).contains("/d/.root"), "{}", told(&machine));
        assert!(told(&machine).contains("virtio-blk-pci,drive=root,bus=vshmem-root,"), "{}", told(&machine));
        assert!(told(&template).contains("\"share\":true") && !told(&template).contains("-incoming"));
        assert!(told(&machine).contains("\"share\":false") && told(&machine).contains("-incoming defer -S"));
        let copy = spec(Beginning::Thaw(None), vec![], vec![], None);
        assert!(told(&copy).contains("-machine memory-backend=memory") && told(&copy).contains("-incoming"));
    }

    #[test]
    fn neighbours_meet_in_a_hub() {
        let links = crate::shared::network::star(4).unwrap().remove(0);
        let line = line(Some(links));
        assert!(line.contains("hubport,id=port3,hubid=0,netdev=link3"), "{line}");
        assert!(line.contains("mac=52:54:00:77:00:02"));
    }
}
