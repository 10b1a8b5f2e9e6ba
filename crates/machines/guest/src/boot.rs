//! The first process of a machine: it loads drivers, mounts the host's file tree below a private layer, sets
//! host name and network, and serves commands until the machine is turned off.

use super::commands::Commands;
use super::console::print;
use super::copies::{Copies, Layer};
use super::files::{self, mount_9p};
use super::hypervisor::table;
use super::names::write_hosts;
use super::skeleton::{make_directory, skeleton};
use super::supervised::Supervised;
use super::{disk, exported, sys, template, uplink};
use crate::settings::{hosts_file, Settings, DRIVER, PROBE_MARK};
use rustix::io::Errno;
use rustix::mount::{
    mount_bind, mount_bind_recursive, mount_move, mount_remount, unmount, MountFlags, UnmountFlags,
};
use rustix::system::{init_module, sethostname};
use rustix::time::{clock_gettime, ClockId};
use std::fs;
use std::os::unix::fs::{chown, MetadataExt};
use std::path::{Path, PathBuf};
use vshmem_base::error::{Explain, Result};
use vshmem_base::interface;
use vshmem_session::agent::serve::Agent;
use vshmem_session::share::{Share, ROOT_TAG, WRITABLE_TAG};
use vshmem_transport::given::SETTINGS;

/// The directory of modules in the initramfs; their names begin with numbers in the order of loading.
pub const MODULES: &str = "/modules";
/// The machine's own directories that are file systems, with their options. Shares below them stay visible.
const MOUNTED: [(&str, &str); 2] = [("/run", "mode=0755"), ("/tmp", "mode=1777")];

/// Runs as the machine's first process. It never returns: without it, the kernel would panic.
pub fn main() -> ! {
    if let Err(error) = start() {
        print(&format!("vshmem: the machine can't start: {error}"));
    }
    sys::power_off()
}

fn start() -> Result<()> {
    for (kind, target) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        // The kernel may have mounted /dev already.
        match rustix::mount::mount(kind, target, kind, MountFlags::empty(), None) {
            Err(Errno::BUSY) => (),
            mounted => mounted.explain(|| format!("could not mount {target}"))?,
        }
    }
    let line = fs::read_to_string("/proc/cmdline").explain(|| "reading /proc/cmdline".into())?;
    let mut settings = Settings::from_command_line(&line)?;
    if settings.probe {
        print(PROBE_MARK);
        return Ok(());
    }
    let driver_failed = load_modules()?;
    let thaws = settings.template;
    if thaws {
        settings = template::await_settings()?;
    }
    let layers = match settings.slim {
        true => {
            slim_root(&settings)?;
            vec![]
        }
        false => {
            let (root, layers) = build_root(&settings)?;
            sys::change_root(&root).explain(|| "could not enter the host's file tree".into())?;
            own_directories(&settings.shares)?;
            layers
        }
    };
    if thaws {
        tell_programs(&settings.to_command_line())?;
    }
    if let Some(why) = driver_failed {
        table::of(&settings.launcher).driver_failed(&why);
    }
    let supervised = identify(&settings)?;
    // Caches are dropped before each command; this keeps the kernel from logging that.
    let _ = fs::write("/proc/sys/vm/drop_caches", "4");
    table::of(&settings.launcher).set_pool_owner(settings.uid)?;
    let shared = settings.shares.iter().map(|share| share.path.clone()).collect();
    serve(&settings, supervised, Copies::new(layers, shared))
}

/// Has programs read these settings, where the kernel's command line has none.
pub fn tell_programs(settings: &str) -> Result<()> {
    let file = Path::new(std::str::from_utf8(SETTINGS.to_bytes()).expect("it is plain text"));
    fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))
        .and_then(|()| fs::write(file, settings))
        .explain(|| format!("could not write {}", file.display()))
}

/// Serves commands, and keeps the front end and another process running, until the machine is turned off.
pub fn serve(settings: &Settings, also: Option<Supervised>, copies: Copies) -> Result<()> {
    let mut agent = Agent::new()?;
    for device in table::of(&settings.launcher).channels(settings.channels)? {
        agent.open(&device)?;
    }
    let since = clock_gettime(ClockId::Boottime);
    print(&format!(
        "vshmem: commands are taken {}.{:03} s after the kernel began",
        since.tv_sec,
        since.tv_nsec / 1_000_000
    ));
    let mut commands = Commands::new(copies);
    let mut supervised: Vec<Supervised> = also.into_iter().chain([Supervised::front_end(settings)]).collect();
    loop {
        supervised.iter_mut().for_each(Supervised::start_if_due);
        let deadline = supervised.iter().filter_map(Supervised::deadline).min();
        agent
            .work(deadline, &mut commands, &mut |pid| supervised.iter_mut().for_each(|one| one.ended(pid)))?;
    }
}

/// Loads all modules. Returns why vshmem.ko could not be loaded, if so: the machine can do without.
fn load_modules() -> Result<Option<String>> {
    let mut driver_failed = None;
    let mut files: Vec<PathBuf> = fs::read_dir(MODULES)
        .explain(|| format!("reading {MODULES}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    for file in files {
        let bytes = fs::read(&file).explain(|| format!("reading {}", file.display()))?;
        match init_module(&bytes, c"") {
            // Pools can be used without it.
            Err(e) if file.to_string_lossy().ends_with(&format!("-{}.ko", DRIVER)) => {
                print(&format!("vshmem: the machine goes on without vshmem.ko: {e}"));
                driver_failed = Some(format!("vshmem.ko could not be loaded: {e}"));
            }
            loaded => loaded.explain(|| format!("could not load {}", file.display()))?,
        }
        // The initramfs is memory.
        let _ = fs::remove_file(&file);
    }
    Ok(driver_failed)
}

/// The host's file tree, read-only, below a tmpfs for what is written.
fn build_root(settings: &Settings) -> Result<(PathBuf, Vec<Layer>)> {
    let transport = table::of(&settings.launcher).file_transport();
    if let Some(parts) = &settings.exported {
        let (root, layers) = exported::build_root(settings, parts, transport)?;
        return Ok((with_own_mounts(root)?, layers));
    }
    let (lower, disk) = (Path::new("/lower"), Path::new("/disk"));
    let (memory, root) = (Path::new("/memory"), PathBuf::from("/root"));
    for directory in [lower, memory, &root] {
        make_directory(directory)?;
    }
    mount_9p(ROOT_TAG, lower, MountFlags::RDONLY, (transport, "loose"))
        .explain(|| "could not mount the host's file tree".into())?;
    let mut lowers = vec![lower];
    if settings.root_disk {
        // Directories that both have are the disk's; what is shared is not on it.
        make_directory(disk)?;
        disk::mount(disk)?;
        lowers.insert(0, disk);
    }
    sys::mount("memory", memory, "tmpfs", MountFlags::empty(), "mode=0755")
        .explain(|| "could not mount the private layer".into())?;
    let upper = memory.join("upper");
    make_directory(&memory.join("work"))?;
    skeleton(&upper).explain(|| "could not make the machine's own directories".into())?;
    let joined = lowers.iter().map(|it| it.to_string_lossy()).collect::<Vec<_>>().join(":");
    let options = format!("lowerdir={joined},upperdir=/memory/upper,workdir=/memory/work");
    // An ordinary user's hypervisor process maps root's files to another user, so set-user-id programs would
    // not become root of this machine.
    let flags = match settings.uid {
        0 => MountFlags::empty(),
        _ => MountFlags::NOSUID,
    };
    sys::mount("root", &root, "overlay", flags, &options)
        .explain(|| "could not lay the private layer over the host's tree".into())?;
    share_writable(&root, transport, &settings.shares)?;
    let layer =
        Layer::new(&lowers, &upper, "/".into()).explain(|| "could not look into the private layer".into())?;
    Ok((with_own_mounts(root)?, vec![layer]))
}

/// A new root, with the file systems that are mounted already moved into it.
fn with_own_mounts(root: PathBuf) -> Result<PathBuf> {
    for directory in ["dev", "proc", "sys"] {
        let to = root.join(directory);
        mount_move(Path::new("/").join(directory), &to).explain(|| format!("could not move /{directory}"))?;
    }
    Ok(root)
}

/// Makes the host's shares visible in the initramfs, which is the root of a slim machine.
fn slim_root(settings: &Settings) -> Result<()> {
    skeleton(Path::new("/")).explain(|| "could not make the machine's own directories".into())?;
    own_directories(&[])?;
    let transport = table::of(&settings.launcher).file_transport();
    files::share(transport, settings)
}

/// Mounts writable shares from a 9p device of their own, without the layer above and without a write-back
/// cache.
fn share_writable(root: &Path, transport: &str, shares: &[Share]) -> Result<()> {
    let mut shares = shares.iter().filter(|share| share.writable).peekable();
    if shares.peek().is_none() {
        return Ok(());
    }
    let all = Path::new("/writable");
    make_directory(all)?;
    mount_9p(WRITABLE_TAG, all, MountFlags::NOSUID | MountFlags::NODEV, (transport, files::SEEN_BY_OTHERS))
        .explain(|| "could not mount what the machine can write to".into())?;
    for share in shares {
        let below = share.path.strip_prefix("/").unwrap_or(&share.path);
        mount_bind(all.join(below), root.join(below))
            .explain(|| format!("could not mount {}", share.path.display()))?;
    }
    Ok(())
}

/// Mounts a file system over a directory. Shares below it stay visible.
fn mount_over(target: &str, options: &str, shares: &[Share]) -> Result<()> {
    let supervised = Path::new("/mnt");
    let explain = || format!("could not keep what is shared below {target} in sight");
    mount_bind_recursive(target, supervised).explain(explain)?;
    mount_own("tmpfs", target, options)?;
    for share in shares.iter().filter(|share| share.path.starts_with(target)) {
        let below = share.path.strip_prefix(target).unwrap_or(&share.path);
        let (from, to) = (supervised.join(below), Path::new(target).join(below));
        make_mount_point(supervised, Path::new(target), below)
            .and_then(|()| Ok(mount_bind_recursive(&from, &to)?))
            .explain(explain)?;
    }
    unmount(supervised, UnmountFlags::DETACH).explain(explain)
}

/// Makes a mount point; its directories have the same owners as on the host.
fn make_mount_point(host: &Path, own: &Path, below: &Path) -> std::io::Result<()> {
    let (mut from, mut to) = (host.to_path_buf(), own.to_path_buf());
    for part in below {
        from.push(part);
        to.push(part);
        if to.exists() {
            continue;
        }
        let meta = fs::metadata(&from)?;
        match meta.is_dir() {
            true => fs::create_dir(&to)?,
            false => fs::write(&to, "")?,
        }
        chown(&to, Some(meta.uid()), Some(meta.gid()))?;
    }
    Ok(())
}

/// Mounts the directories that are the machine's own.
fn own_directories(shares: &[Share]) -> Result<()> {
    for (target, options) in MOUNTED {
        mount_over(target, options, shares)?;
    }
    make_directory(Path::new("/dev/shm"))?;
    mount_own("tmpfs", "/dev/shm", "mode=1777")?;
    make_directory(Path::new("/dev/pts"))?;
    mount_own("devpts", "/dev/pts", "mode=0620,ptmxmode=0666")?;
    make_directory(Path::new("/dev/mqueue"))?;
    // Kernels may lack these two.
    let _ = mount_own("mqueue", "/dev/mqueue", "");
    let _ = mount_own("cgroup2", "/sys/fs/cgroup", "");
    // Not essential.
    if let Err(error) = forbid_suspend() {
        print(&format!("vshmem: {error}"));
    }
    for (link, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
    {
        let _ = std::os::unix::fs::symlink(target, Path::new("/dev").join(link));
    }
    Ok(())
}

/// Makes writes to /sys/power/state fail with EROFS. Linux can't resume the 9p transports of the host's file
/// tree, which have no power management: after a suspend, the machine could not read any file.
fn forbid_suspend() -> Result<()> {
    let power = Path::new("/sys/power");
    // Kernels may lack it.
    if !power.exists() {
        return Ok(());
    }
    mount_bind(power, power)
        .and_then(|()| mount_remount(power, MountFlags::BIND | MountFlags::RDONLY, ""))
        .explain(|| "could not make /sys/power read-only".into())
}

fn mount_own(kind: &str, target: &str, options: &str) -> Result<()> {
    sys::mount(kind, Path::new(target), kind, MountFlags::NOSUID, options)
        .explain(|| format!("could not mount {target}"))
}

/// Writes a line into a file of the private layer, and not into the host's.
fn own_file(path: &str, line: &str) -> std::io::Result<()> {
    let _ = fs::remove_file(path);
    fs::write(path, format!("{line}\n"))
}

/// Sets host name and networks. Returns the process that they need, if they need one.
fn identify(settings: &Settings) -> Result<Option<Supervised>> {
    sethostname(settings.name.as_bytes()).explain(|| "could not set the machine's name".into())?;
    interface::loopback_up().explain(|| "could not bring the loopback interface up".into())?;
    let hosts = hosts_file(&settings.name, settings.network, &settings.hosts);
    if let Some(net) = &settings.network {
        interface::configure("eth0", net.address, std::net::Ipv4Addr::new(255, 255, 255, 0))
            .explain(|| "could not set the address of eth0".into())?;
    }
    // Into the private layer; the host's own files don't change.
    let _ = write_hosts(&hosts);
    let _ = own_file("/etc/hostname", &settings.name);
    // Programs take machines with one id for one machine.
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let _ = own_file("/etc/machine-id", &id.trim().replace('-', ""));
    match settings.uplink.as_ref().map(uplink::set_up).transpose() {
        Ok(supervised) => Ok(supervised.flatten()),
        Err(error) => {
            print(&format!("vshmem: the machine goes on without its network outside: {error}"));
            Ok(None)
        }
    }
}
