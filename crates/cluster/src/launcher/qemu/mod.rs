//! QEMU: its command line, and starting it.
//!
//! | module | subject |
//! | --- | --- |
//! | `machine`, `guest` | what is asked of a launcher, on the host and in a machine |
//! | `accel` | KVM or TCG |
//! | `sandbox` | what QEMU may have of this host, and no more |
//! | `logs` | what machines and QEMU print |
//! | `lent` | files that QEMU may open for a moment |
//! | `qmp` | what is said to a running QEMU |
//! | `ports` | where pools are plugged in |
//! | `wires` | the network between machines |
//! | `doorbell` | pools that the back end serves |
//! | `grant`, `plug`, `pci`, `target` | giving pools to machines that run, and taking them away |
//! | `attach`, `adopted`, `libvirt`, `permanent` | machines that Vshmem did not start |
//! | `health` | how machines are |

pub mod accel;
pub mod adopted;
pub mod attach;
pub mod doorbell;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod grant;
mod guest;
pub mod health;
mod lent;
pub mod libvirt;
mod logs;
mod machine;
pub mod pci;
pub mod permanent;
pub mod plug;
pub mod ports;
pub mod qmp;
pub mod sandbox;
pub mod target;
mod wires;

pub use lent::Lent;
pub use logs::last_words;
pub use machine::Qemu;

use crate::error::{Error, Result};
use crate::host::channel::channel_socket;
use crate::host::ports::Ports;
use crate::host::process::Process;
use crate::host::settings::Settings;
use crate::host::share::{self, Share};
use crate::host::tree::Tree;
use crate::launcher::network::Wire;
use crate::wire::PORT_NAME;
use ports::Turn;
use sandbox::{path_of, Descriptor, Descriptors};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use vshmem_agent::guest::protocol::PORT;

/// What it is called on command lines.
pub const NAME: &str = "qemu";
/// The program.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// QEMU's file. An error unless it is installed; asked before anything is downloaded or made.
pub fn installed() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(PROGRAM));
    let found = files.find_map(|file| file.canonicalize().ok().filter(|file| file.is_file()));
    found.ok_or_else(|| {
        Error::new(format!("there is no {PROGRAM} on the PATH"))
            .hint("Install QEMU, for instance: sudo apt-get install qemu-system-x86")
    })
}

/// What QEMU needs of this host for itself, if it is not installed as the system's.
fn own_files(program: &Path) -> Vec<Share> {
    let directory = program.parent().unwrap_or(Path::new("/"));
    let data = directory.with_file_name("share").join("qemu");
    let parts = [directory.to_path_buf(), data].into_iter();
    let missing = |path: &PathBuf| path.is_dir() && !share::sees(&[], path);
    let share = |path| Share {
        path,
        writable: false,
    };
    parts.filter(missing).map(share).collect()
}

/// How a machine's instructions are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// By the processor.
    Kvm,
    /// By translation.
    Tcg,
}

impl Accel {
    /// The one that records call so.
    pub fn named(name: &str) -> Option<Accel> {
        [Accel::Kvm, Accel::Tcg]
            .into_iter()
            .find(|accel| accel.name() == name)
    }

    /// As written in records and on QEMU's command line.
    pub fn name(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        }
    }

    /// The guest kernel's parameters. Translated code does not speculate, and all cores' time stamps come from one clock. On a busy host a
    /// kernel that counts the ticks of its first moments, to see that the timer works, finds too few and gives up. QEMU tells
    /// an AMD processor's kernel, as of an emulated one, to keep off the last 12 GiB below 1 TiB, where DMA of the host's own devices can't go.
    /// The firmware of QEMU 10 puts the ports for pools right there.
    fn kernel_parameters(self) -> &'static str {
        match self {
            Accel::Kvm => "console=ttyS0 quiet panic=-1",
            Accel::Tcg => {
                "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check pci=no_e820"
            }
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Accel::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // Five-level page tables would only make translation slower. `rep movsb` is carried out byte by byte: a
            // C library that does not find it praised (ERMS, FSRM) copies by vectors, several times as fast.
            Accel::Tcg => {
                let cpu = "max,la57=off,erms=off,fsrm=off";
                ["-accel", "tcg,thread=multi", "-cpu", cpu]
            }
        }
    }
}

/// The kernel's own limit is 2048, with its other parameters.
const LONGEST: usize = 1900;

/// How many ways there are to ring a machine.
pub const VECTORS: usize = 2;

/// A file that a machine gets as a pool.
pub struct PoolFile<'a> {
    /// What it is called in the machine.
    pub name: &'a str,
    /// Where it is.
    pub path: &'a Path,
    /// Its size in bytes, a power of two.
    pub size: u64,
    /// Where the back end serves it, if machines are to ring each other.
    pub doorbell: Option<&'a Path>,
}

/// A machine to start.
pub struct Spec<'a> {
    /// What the machine is told.
    pub settings: &'a Settings,
    /// As what QEMU shows up in lists of processes.
    pub title: String,
    /// Carries out its instructions.
    pub accel: Accel,
    /// Virtual cores.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Kernel image.
    pub kernel: &'a Path,
    /// First root file system.
    pub initramfs: &'a Path,
    /// For sockets and logs.
    pub directory: &'a Path,
    /// Pools that it starts with.
    pub pools: Vec<PoolFile<'a>>,
    /// Ports for pools.
    pub ports: Ports,
    /// Its end of a wire to each neighbour that there is, if it has a network.
    pub wires: Option<Vec<Wire>>,
    /// Number of the machine, for its hardware address.
    pub index: u32,
}

/// The socket of a machine's monitor.
pub fn monitor_socket(directory: &Path) -> PathBuf {
    directory.join("qmp.sock")
}

/// What QEMU calls the channel to a machine's front end.
pub const AGENT: &str = "agent";

/// The socket by which a machine's front end is talked to.
pub fn agent_socket(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}

/// What QEMU must not do, whatever a machine makes of it. Which core runs what is set from outside.
const SECCOMP: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// The arguments for a machine, and the descriptors that are named in them.
fn arguments(spec: &Spec<'_>) -> (Vec<String>, Descriptors) {
    let mut out = Arguments::default();
    out.add("-name", &spec.title);
    out.words
        .extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(String::from));
    out.add("-sandbox", SECCOMP);
    out.add("-display", "none");
    out.add("-machine", "q35");
    out.words.extend(spec.accel.arguments().map(String::from));
    // With room for one processor only, TCG emulates locked instructions by plain loads and stores: they would not be
    // atomic between machines.
    let room = spec.cpus.max(2);
    out.add("-smp", &format!("cpus={},maxcpus={room}", spec.cpus));
    out.add("-m", &format!("size={}k", spec.memory / 1024));
    for (option, file) in [("-kernel", spec.kernel), ("-initrd", spec.initramfs)] {
        let file = out.file(Descriptor::Read(file.into()));
        out.add(option, &file);
    }
    let settings = spec.settings.to_command_line();
    out.add(
        "-append",
        &format!("{} {settings}", spec.accel.kernel_parameters()),
    );
    let console = out.descriptors.add(Descriptor::Console);
    out.add("-chardev", &format!("socket,id=console,fd={console}"));
    out.add("-serial", "chardev:console");
    out.listen("monitor", monitor_socket(spec.directory));
    out.add("-mon", "chardev=monitor,mode=control");
    out.add("-device", "virtio-rng-pci");
    files(&mut out, &spec.settings.shares);
    channels(&mut out, spec);
    pools(&mut out, spec);
    if let Some(wires) = &spec.wires {
        network(&mut out, wires, spec.index);
    }
    (out.words, out.descriptors)
}

#[derive(Default)]
struct Arguments {
    words: Vec<String>,
    descriptors: Descriptors,
}

impl Arguments {
    fn add(&mut self, option: &str, value: &str) {
        self.words.extend([option.into(), value.into()]);
    }

    /// As which file QEMU finds one more descriptor.
    fn file(&mut self, descriptor: Descriptor) -> String {
        path_of(self.descriptors.add(descriptor))
    }

    /// A character device that is a socket at which QEMU listens.
    fn listen(&mut self, id: &str, socket: PathBuf) {
        let fd = self.descriptors.add(Descriptor::Listen(socket));
        self.add(
            "-chardev",
            &format!("socket,id={id},fd={fd},server=on,wait=off"),
        );
    }
}

/// What the machine sees of this host's files: all of it to read, and once more what it can write to. A device serves one mount.
fn files(out: &mut Arguments, shares: &[Share]) {
    let mut add = |tag: &str, options: &str| {
        let local = format!("local,id={tag},path={}", sandbox::SHARED);
        out.add(
            "-fsdev",
            &format!("{local},security_model=none,multidevs=remap{options}"),
        );
        out.add(
            "-device",
            &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
        );
    };
    add(share::ROOT_TAG, ",readonly=on");
    if shares.iter().any(|share| share.writable) {
        add(share::WRITABLE_TAG, "");
    }
}

/// Each pool behind a port of its own, and ports for those that come later.
fn pools(out: &mut Arguments, spec: &Spec<'_>) {
    for port in ports::devices(spec.ports, spec.pools.len()) {
        out.add("-device", &port);
    }
    for (place, pool) in spec.pools.iter().enumerate() {
        let (port, device, backing) = (
            ports::port(place),
            Turn::FIRST.device(pool.name),
            Turn::FIRST.backing(pool.name),
        );
        if let Some(socket) = pool.doorbell {
            let fd = out.descriptors.add(Descriptor::Connect(socket.into()));
            out.add("-chardev", &format!("socket,id={backing},fd={fd}"));
            let bell = format!("ivshmem-doorbell,vectors={VECTORS},chardev={backing}");
            out.add("-device", &format!("{bell},id={device},bus={port}"));
            continue;
        }
        let (path, size) = (out.file(Descriptor::Write(pool.path.into())), pool.size);
        let memory = format!("share=on,mem-path={path},size={size}");
        out.add(
            "-object",
            &format!("memory-backend-file,id={backing},{memory}"),
        );
        let plain = format!("ivshmem-plain,memdev={backing},master=on");
        out.add("-device", &format!("{plain},id={device},bus={port}"));
    }
}

fn channels(out: &mut Arguments, spec: &Spec<'_>) {
    // Port 0 is kept for consoles, the last one is the front end's.
    let agent = spec.settings.channels + 1;
    let ports = agent + 1;
    out.add(
        "-device",
        &format!("virtio-serial-pci,id=serial,max_ports={ports}"),
    );
    for channel in 0..spec.settings.channels {
        out.listen(
            &format!("c{channel}"),
            channel_socket(spec.directory, channel),
        );
        let port = channel + 1;
        out.add(
            "-device",
            &format!("virtserialport,nr={port},chardev=c{channel},name={PORT_NAME}{channel}"),
        );
    }
    out.listen(AGENT, agent_socket(spec.directory));
    out.add(
        "-device",
        &format!("virtserialport,nr={agent},chardev={AGENT},name={PORT}"),
    );
}

/// The machine's wires and its card meet in a hub inside this QEMU.
fn network(out: &mut Arguments, wires: &[Wire], index: u32) {
    for Wire { to, socket } in wires {
        let fd = out
            .descriptors
            .add(Descriptor::Inherited(socket.as_raw_fd()));
        let (wire, port) = (wires::wire(*to), wires::port(*to));
        out.add("-netdev", &format!("socket,id={wire},fd={fd}"));
        out.add(
            "-netdev",
            &format!("hubport,id={port},hubid=0,netdev={wire}"),
        );
    }
    out.add("-netdev", "hubport,id=net,hubid=0");
    let (high, low) = ((index + 1) >> 8 & 0xff, (index + 1) & 0xff);
    out.add(
        "-device",
        &format!("virtio-net-pci,netdev=net,mac=52:54:00:77:{high:02x}:{low:02x},romfile="),
    );
}

/// Starts a machine's QEMU, which outlives this process if it is let go of.
pub fn start(spec: &Spec<'_>) -> Result<(Process, sandbox::Leash)> {
    let program = installed()?;
    let (arguments, descriptors) = arguments(spec);
    if spec.settings.to_command_line().len() > LONGEST {
        return Err(
            Error::new("what machines are told is too long for a kernel's command line")
                .hint("Share fewer directories, or give pools shorter names."),
        );
    }
    sandbox::start(&sandbox::Order {
        name: spec.title.clone(),
        own: Tree::of(&own_files(&program))?,
        shared: Tree::of(&spec.settings.shares)?,
        program,
        arguments,
        descriptors: descriptors.0,
        user: sandbox::user(spec.index),
        directory: spec.directory.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(wires: Option<Vec<Wire>>) -> String {
        let settings = Settings {
            name: "vm0".into(),
            pools: vec!["default".into()],
            uid: 1,
            channels: 2,
            network: None,
            shares: vec![],
            launcher: NAME.into(),
            probe: false,
        };
        let spec = Spec {
            settings: &settings,
            title: "t".into(),
            accel: Accel::Tcg,
            cpus: 1,
            memory: 512 << 20,
            kernel: Path::new("/k"),
            initramfs: Path::new("/i"),
            directory: Path::new("/a,b"),
            pools: vec![PoolFile {
                name: "default",
                path: Path::new("/dev/shm/p"),
                size: 1 << 20,
                doorbell: None,
            }],
            ports: Ports {
                spare: 1,
                largest: 1 << 30,
            },
            wires,
            index: 1,
        };
        let (words, descriptors) = arguments(&spec);
        format!("{} {:?}", words.join(" "), descriptors.0)
    }

    #[test]
    fn qemu_is_told_no_path_of_the_host() {
        let line = line(None);
        let (words, descriptors) = line.split_once(" [").expect("descriptors follow");
        for path in ["/a,b", "/k", "/i", "/dev/shm"] {
            assert!(
                !words.contains(path) && descriptors.contains(path),
                "{path}: {line}"
            );
        }
        assert!(words.contains("id=c0,fd=516,server=on"), "{line}");
        assert!(descriptors.ends_with("Write(\"/dev/shm/p\")]"), "{line}");
        assert!(words.contains("mem-path=/proc/self/fd/519,"), "{line}");
        assert!(!line.contains("-netdev"));
    }

    #[test]
    fn what_machines_write_to_is_a_device_of_its_own() {
        let mut out = Arguments::default();
        let share = |writable| Share {
            path: "/a".into(),
            writable,
        };
        files(&mut out, &[share(false)]);
        assert_eq!(
            out.words
                .iter()
                .filter(|word| word.ends_with("readonly=on"))
                .count(),
            1
        );
        assert_eq!(out.words.len(), 4);
        files(&mut out, &[share(true)]);
        let writable = &out.words[9];
        assert!(writable.starts_with("local,id=writable,") && !writable.contains("readonly"));
    }

    #[test]
    fn pools_are_behind_ports() {
        let line = line(None);
        assert!(
            line.contains("id=vshmem-pool-00000000-default,bus=vshmem-port0"),
            "{line}"
        );
        assert!(line.contains("id=vshmem-port1,bus=pcie.0"), "{line}");
        assert!(
            line.contains("nr=3,chardev=agent,name=org.vshmem.agent"),
            "{line}"
        );
    }

    #[test]
    fn neighbours_meet_in_a_hub() {
        let wires = crate::launcher::network::all(4).unwrap().remove(0);
        let line = line(Some(wires));
        assert!(
            line.contains("hubport,id=port3,hubid=0,netdev=wire3"),
            "{line}"
        );
        assert!(line.contains("mac=52:54:00:77:00:02"));
    }
}
