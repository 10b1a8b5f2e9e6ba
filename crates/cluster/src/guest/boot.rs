//! The first process of a machine: loads drivers, mounts the host's file tree with a private layer above it,
//! sets name and network, then serves commands until the machine is turned off.

use super::{agent, network, sys};
use crate::error::{Error, Explain, Result};
use crate::host::driver;
use crate::host::settings::Settings;
use std::fs;
use std::path::{Path, PathBuf};

/// Printed on the console when a probe boot has come this far.
pub const PROBE_MARK: &str = "vshmem: this accelerator boots a machine";
/// Where the modules lie in the first root file system; their names begin with their place in the order.
pub const MODULES: &str = "/modules";
/// Where the host's /tmp stays visible below the machine's own.
pub const HOST_TMP: &str = "/run/vshmem/host-tmp";

/// Runs as the machine's first process. Never returns: a machine without one would panic.
pub fn main() -> ! {
    if let Err(error) = start() {
        say(&format!("vshmem: the machine can't start: {error}"));
    }
    sys::power_off()
}

/// Writes to the console, which the host keeps as a file.
pub fn say(text: &str) {
    let _ = fs::write("/dev/console", format!("{text}\n"));
}

fn start() -> Result<()> {
    for (kind, target) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        // The kernel may have mounted /dev already.
        match sys::mount(kind, Path::new(target), kind, 0, "") {
            Err(e) if e.raw_os_error() != Some(libc::EBUSY) => {
                return Err(Error::new(format!("could not mount {target}: {e}")));
            }
            _ => (),
        }
    }
    let line = fs::read_to_string("/proc/cmdline").explain(|| "reading /proc/cmdline".into())?;
    let settings = Settings::from_command_line(&line)?;
    if settings.probe {
        say(PROBE_MARK);
        return Ok(());
    }
    let driver_failed = load_modules()?;
    let root = build_root(&settings)?;
    sys::change_root(&root).explain(|| "could not enter the host's file tree".into())?;
    own_directories()?;
    if let Some(why) = driver_failed {
        vshmem_agent::guest::driver_failed(&why);
    }
    identify(&settings)?;
    // Caches are dropped before each command; the kernel need not log that each time.
    let _ = fs::write("/proc/sys/vm/drop_caches", "4");
    if !settings.xen {
        open_pools(settings.uid)?;
    }
    agent::serve(&settings)
}

/// Loads all modules. That vshmem.ko can't be loaded is no failure: the answer is why.
fn load_modules() -> Result<Option<String>> {
    let mut driver_failed = None;
    let mut files: Vec<PathBuf> = fs::read_dir(MODULES)
        .explain(|| format!("reading {MODULES}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    for file in files {
        let bytes = fs::read(&file).explain(|| format!("reading {}", file.display()))?;
        match sys::load_module(&bytes) {
            // Pools can be used without it.
            Err(e)
                if file
                    .to_string_lossy()
                    .ends_with(&format!("-{}.ko", driver::NAME)) =>
            {
                say(&format!(
                    "vshmem: the machine goes on without vshmem.ko: {e}"
                ));
                driver_failed = Some(format!("vshmem.ko could not be loaded: {e}"));
            }
            loaded => loaded.explain(|| format!("could not load {}", file.display()))?,
        }
        // The first root file system is memory.
        let _ = fs::remove_file(&file);
    }
    Ok(driver_failed)
}

/// The host's tree, read-only, under a layer of memory that takes what is written.
fn build_root(settings: &Settings) -> Result<PathBuf> {
    let (lower, memory, root) = (
        Path::new("/lower"),
        Path::new("/memory"),
        PathBuf::from("/root"),
    );
    for directory in [lower, memory, &root] {
        make_directory(directory)?;
    }
    let transport = if settings.xen { "xen" } else { "virtio" };
    let options = format!("trans={transport},version=9p2000.L,msize=512000,cache=loose,access=any");
    sys::mount("root", lower, "9p", libc::MS_RDONLY, &options)
        .explain(|| "could not mount the host's file tree".into())?;
    sys::mount("memory", memory, "tmpfs", 0, "mode=0755")
        .explain(|| "could not mount the private layer".into())?;
    make_directory(&memory.join("upper"))?;
    make_directory(&memory.join("work"))?;
    let options = "lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work";
    sys::mount("root", &root, "overlay", 0, options)
        .explain(|| "could not lay the private layer over the host's tree".into())?;
    for directory in ["dev", "proc", "sys"] {
        let to = root.join(directory);
        sys::mount(&format!("/{directory}"), &to, "none", libc::MS_MOVE, "")
            .explain(|| format!("could not move /{directory}"))?;
    }
    Ok(root)
}

/// The directories that are the machine's own and not the host's.
fn own_directories() -> Result<()> {
    mount_own("tmpfs", "/run", "mode=0755")?;
    make_directory(Path::new(HOST_TMP))?;
    sys::bind(Path::new("/tmp"), Path::new(HOST_TMP))
        .explain(|| "could not keep the host's /tmp in sight".into())?;
    mount_own("tmpfs", "/tmp", "mode=1777")?;
    make_directory(Path::new("/dev/shm"))?;
    mount_own("tmpfs", "/dev/shm", "mode=1777")?;
    make_directory(Path::new("/dev/pts"))?;
    mount_own("devpts", "/dev/pts", "mode=0620,ptmxmode=0666")?;
    make_directory(Path::new("/dev/mqueue"))?;
    // Kernels may come without these two.
    let _ = mount_own("mqueue", "/dev/mqueue", "");
    let _ = mount_own("cgroup2", "/sys/fs/cgroup", "");
    // A nicety.
    if let Err(error) = refuse_to_suspend() {
        say(&format!("vshmem: {error}"));
    }
    for (link, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ] {
        let _ = std::os::unix::fs::symlink(target, Path::new("/dev").join(link));
    }
    Ok(())
}

/// Makes who writes to /sys/power/state get EROFS. Linux does not resume the 9p that the host's file tree comes by (its drivers have no
/// power management), so that a machine would come back unable to read a file.
fn refuse_to_suspend() -> Result<()> {
    let power = Path::new("/sys/power");
    // Kernels may come without it.
    if !power.exists() {
        return Ok(());
    }
    let read_only = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY;
    sys::bind(power, power)
        .and_then(|()| sys::mount("none", power, "none", read_only, ""))
        .explain(|| "could not make /sys/power read-only".into())
}

fn mount_own(kind: &str, target: &str, options: &str) -> Result<()> {
    sys::mount(kind, Path::new(target), kind, libc::MS_NOSUID, options)
        .explain(|| format!("could not mount {target}"))
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).explain(|| format!("could not make {}", path.display()))
}

/// Name and network.
fn identify(settings: &Settings) -> Result<()> {
    sys::set_host_name(&settings.name).explain(|| "could not set the machine's name".into())?;
    network::loopback_up().explain(|| "could not bring the loopback interface up".into())?;
    let mut hosts = format!(
        "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {}\n",
        settings.name
    );
    if let Some(net) = &settings.network {
        hosts = "127.0.0.1 localhost\n::1 localhost\n".into();
        for index in 0..net.machines {
            hosts.push_str(&format!(
                "{} vm{index}\n",
                crate::host::settings::address(index)
            ));
        }
        network::configure(
            "eth0",
            net.address,
            std::net::Ipv4Addr::new(255, 255, 255, 0),
        )
        .explain(|| "could not set the address of eth0".into())?;
    }
    // Into the private layer; the host's own files stay as they are.
    let _ = fs::write("/etc/hosts", hosts);
    let _ = fs::write("/etc/hostname", format!("{}\n", settings.name));
    Ok(())
}

/// Lets the machine's user map the pools that are there from the start.
fn open_pools(uid: u32) -> Result<()> {
    let devices = "/sys/bus/pci/devices";
    for entry in fs::read_dir(devices)
        .explain(|| format!("reading {devices}"))?
        .flatten()
    {
        let id = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        if id("vendor").trim() == "0x1af4" && id("device").trim() == "0x1110" {
            vshmem_agent::guest::give_device(&entry.path(), uid)
                .explain(|| format!("could not give {} to its user", entry.path().display()))?;
        }
    }
    Ok(())
}
