//! QEMU: its command line, and starting it.
//!
//! | module | subject |
//! | --- | --- |
//! | `machine` | what the rest of the host's side asks of a hypervisor |
//! | `accel` | KVM or TCG |
//! | `qmp` | what is said to a running QEMU |
//! | `ports` | where pools are plugged in |
//! | `wires` | the network between machines |

pub mod accel;
mod machine;
pub mod ports;
pub mod qmp;
pub mod wires;

pub use machine::{Qemu, CHANNELS};

use crate::error::{Error, Explain, Result};
use crate::host::process::Process;
use crate::host::settings::Settings;
use crate::wire::PORT_NAME;
use ports::{Ports, Turn};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use vshmem_agent::guest::protocol::PORT;
use wires::Wire;

/// The program.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// An error unless QEMU is installed; asked before anything is downloaded or made.
pub fn check_installed() -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| directory.join(PROGRAM).is_file()) {
        return Ok(());
    }
    Err(not_installed())
}

fn not_installed() -> Error {
    Error::new(format!("there is no {PROGRAM} on the PATH"))
        .hint("Install QEMU, for instance: sudo apt-get install qemu-system-x86")
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
    /// As written in records and on QEMU's command line.
    pub fn name(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        }
    }

    /// The guest kernel's parameters. Translated code does not speculate, and all cores' time stamps come from one clock. On a busy host a
    /// kernel that counts the ticks of its first moments, to see that the timer works, finds too few and gives up.
    fn kernel_parameters(self) -> &'static str {
        match self {
            Accel::Kvm => "console=ttyS0 quiet panic=-1",
            Accel::Tcg => {
                "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check"
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

/// A network card's other side.
pub struct Link {
    /// An end of a wire to each neighbour that there is.
    pub wires: Vec<Wire>,
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
    /// Network, if any.
    pub link: Option<Link>,
    /// Number of the machine, for its hardware address.
    pub index: u32,
}

/// The socket of a machine's monitor.
pub fn monitor_socket(directory: &Path) -> PathBuf {
    directory.join("qmp.sock")
}

/// The socket of one of a machine's channels.
pub fn channel_socket(directory: &Path, channel: usize) -> PathBuf {
    directory.join(format!("channel{channel}.sock"))
}

/// What QEMU calls the channel to a machine's front end.
pub const AGENT: &str = "agent";

/// The socket by which a machine's front end is talked to.
pub fn agent_socket(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}

/// What the machine's kernel and first process print.
pub fn console_log(directory: &Path) -> PathBuf {
    directory.join("console.log")
}

/// What QEMU itself prints.
pub fn qemu_log(directory: &Path) -> PathBuf {
    directory.join("qemu.log")
}

/// QEMU takes a comma for the end of a value unless it is doubled.
fn quoted(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// The arguments for a machine.
pub fn arguments(spec: &Spec<'_>) -> Vec<OsString> {
    let mut out = Arguments::default();
    out.add("-name", &spec.title);
    out.0
        .extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(OsString::from));
    out.add("-display", "none");
    out.add("-machine", "q35");
    out.0.extend(spec.accel.arguments().map(OsString::from));
    // With room for one processor only, TCG emulates locked instructions by plain loads and stores: they would not be
    // atomic between machines.
    let room = spec.cpus.max(2);
    out.add("-smp", &format!("cpus={},maxcpus={room}", spec.cpus));
    out.add("-m", &format!("size={}k", spec.memory / 1024));
    out.0.extend(["-kernel".into(), spec.kernel.into()]);
    out.0.extend(["-initrd".into(), spec.initramfs.into()]);
    let settings = spec.settings.to_command_line();
    out.add(
        "-append",
        &format!("{} {settings}", spec.accel.kernel_parameters()),
    );
    out.add(
        "-serial",
        &format!("file:{}", console_log(spec.directory).display()),
    );
    let monitor = quoted(&monitor_socket(spec.directory));
    out.add("-qmp", &format!("unix:{monitor},server=on,wait=off"));
    out.add("-device", "virtio-rng-pci");
    out.add(
        "-fsdev",
        "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
    );
    out.add("-device", "virtio-9p-pci,fsdev=root,mount_tag=root");
    channels(&mut out, spec);
    pools(&mut out, spec);
    if let Some(link) = &spec.link {
        network(&mut out, link, spec.index);
    }
    out.0
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add(&mut self, option: &str, value: &str) {
        self.0.extend([option.into(), value.into()]);
    }
}

/// Each pool behind a port of its own, and ports for those that come later.
fn pools(out: &mut Arguments, spec: &Spec<'_>) {
    for port in spec.ports.devices(spec.pools.len()) {
        out.add("-device", &port);
    }
    for (place, pool) in spec.pools.iter().enumerate() {
        let (port, device, backing) = (
            ports::port(place),
            Turn::FIRST.device(pool.name),
            Turn::FIRST.backing(pool.name),
        );
        if let Some(socket) = pool.doorbell {
            let socket = quoted(socket);
            out.add("-chardev", &format!("socket,id={backing},path={socket}"));
            let bell = format!("ivshmem-doorbell,vectors={VECTORS},chardev={backing}");
            out.add("-device", &format!("{bell},id={device},bus={port}"));
            continue;
        }
        let (path, size) = (quoted(pool.path), pool.size);
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
        let path = quoted(&channel_socket(spec.directory, channel));
        out.add(
            "-chardev",
            &format!("socket,id=c{channel},path={path},server=on,wait=off"),
        );
        let port = channel + 1;
        out.add(
            "-device",
            &format!("virtserialport,nr={port},chardev=c{channel},name={PORT_NAME}{channel}"),
        );
    }
    let path = quoted(&agent_socket(spec.directory));
    out.add(
        "-chardev",
        &format!("socket,id={AGENT},path={path},server=on,wait=off"),
    );
    out.add(
        "-device",
        &format!("virtserialport,nr={agent},chardev={AGENT},name={PORT}"),
    );
}

/// The machine's wires and its card meet in a hub inside this QEMU.
fn network(out: &mut Arguments, link: &Link, index: u32) {
    for Wire { to, socket } in &link.wires {
        let (fd, wire, port) = (socket.as_raw_fd(), wires::wire(*to), wires::port(*to));
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

/// Starts a machine in a session of its own, so that it outlives the terminal.
pub fn start(spec: &Spec<'_>) -> Result<(Child, Process)> {
    let log = File::create(qemu_log(spec.directory))
        .explain(|| format!("could not make {}", qemu_log(spec.directory).display()))?;
    let copy = log
        .try_clone()
        .explain(|| "could not copy a descriptor".into())?;
    let mut command = Command::new(PROGRAM);
    command.args(arguments(spec)).current_dir("/");
    command.stdin(Stdio::null()).stdout(log).stderr(copy);
    let wires = spec.link.iter().flat_map(|link| &link.wires);
    let inherited: Vec<RawFd> = wires.map(|wire| wire.socket.as_raw_fd()).collect();
    let prepare = move || {
        // SAFETY: plain values; these calls are safe in a forked child.
        unsafe {
            libc::setsid();
            raise_limit();
            for &fd in &inherited {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it takes no lock and no memory.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => not_installed(),
        _ => Error::new(format!("could not start {PROGRAM}: {e}")),
    })?;
    let pid = child.id() as i32;
    let process = Process::find(pid).unwrap_or(Process { pid, started: 0 });
    Ok((child, process))
}

/// QEMU keeps the descriptors of each machine that has ever shared a pool with this one: as many as it may have. Makes system
/// calls only, so a forked child may call it.
fn raise_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure lives across both calls, which read or fill it.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// The last lines of a machine's logs, for an error message.
pub fn last_words(directory: &Path) -> String {
    tail(&qemu_log(directory)) + &tail(&console_log(directory))
}

/// The last lines of a log, each on a line of its own.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let mut out = String::new();
    for line in &lines[lines.len().saturating_sub(4)..] {
        let clean: String = line.chars().filter(|c| !c.is_control()).collect();
        out.push_str(&format!("\n    {clean}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(link: Option<Link>) -> String {
        let settings = Settings {
            name: "vm0".into(),
            pools: vec!["default".into()],
            uid: 1,
            channels: 2,
            network: None,
            xen: false,
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
            link,
            index: 1,
        };
        let words: Vec<_> = arguments(&spec)
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect();
        words.join(" ")
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        let line = line(None);
        assert!(
            line.contains("path=/a,,b/channel0.sock,server=on"),
            "{line}"
        );
        assert!(!line.contains("-netdev"));
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
        let wires = wires::all(4).unwrap().remove(0);
        let line = line(Some(Link { wires }));
        assert!(
            line.contains("hubport,id=port3,hubid=0,netdev=wire3"),
            "{line}"
        );
        assert!(line.contains("mac=52:54:00:77:00:02"));
    }
}
