//! The agent of a machine with a system of its own, which cloud-init starts from the machine's seed: it loads
//! the driver, makes the host's shares visible, and serves commands.

use super::boot::{serve, tell_programs};
use super::console::print;
use super::copies::Copies;
use super::hypervisor::table;
use super::names::write_hosts;
use super::seed::{AGENT, DRIVERS, LINKS, SETTINGS};
use super::{files, sys};
use crate::settings::{hosts_file, Settings, DRIVER};
use rustix::io::Errno;
use rustix::process::set_child_subreaper;
use rustix::system::{init_module, uname};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use vshmem_base::error::{Explain, Result};

/// The name by which this program is executed as this agent.
pub const NAME: &str = AGENT;

/// Runs as a service of the machine, from its seed.
pub fn main() -> ! {
    let outcome = start();
    if let Err(error) = &outcome {
        print(&format!("vshmem: the machine's agent has ended: {error}"));
    }
    std::process::exit(outcome.is_err().into())
}

fn start() -> Result<()> {
    let program = std::env::current_exe().explain(|| "finding this program's own file".into())?;
    let seed = program.parent().unwrap_or(Path::new("/"));
    let line = read(&seed.join(SETTINGS))?;
    let settings = Settings::from_command_line(&line)?;
    let guest = table::of(&settings.launcher);
    tell_programs(&line)?;
    if let Some(why) = load_driver(&seed.join(DRIVERS)) {
        print(&format!("vshmem: the machine goes on without vshmem.ko: {why}"));
        guest.driver_failed(&why);
    }
    let shared = match sys::modprobe(&["9p", "9pnet_virtio"]) {
        _ if settings.shares.is_empty() => Ok(()),
        loaded => loaded
            .explain(|| "9p is not there".into())
            .and_then(|()| files::share(guest.file_transport(), &settings)),
    };
    if let Err(error) = shared {
        print(&format!("vshmem: the machine goes on without what the host shares: {error}"));
    }
    link(seed, &read(&seed.join(LINKS))?)?;
    let hosts = hosts_file(&settings.name, settings.network, &settings.hosts);
    write_hosts(&hosts).explain(|| "could not write /etc/hosts".into())?;
    guest.set_pool_owner(settings.uid)?;
    // Caches are dropped before each command; this keeps the kernel from logging that.
    let _ = fs::write("/proc/sys/vm/drop_caches", "4");
    // Commands' background processes become this process's children, as if it were the first one.
    set_child_subreaper(Some(rustix::process::getpid())).explain(|| "could not adopt processes".into())?;
    serve(&settings, None, Copies::default())
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).explain(|| format!("could not read {}", file.display()))
}

/// Loads the driver for this kernel, unless it is there already. Returns why that fails, if it does.
fn load_driver(drivers: &Path) -> Option<String> {
    if Path::new("/sys/module").join(DRIVER).exists() {
        return None;
    }
    // The image may have one of its own.
    if sys::modprobe(&[DRIVER]).is_ok() {
        return None;
    }
    let kernel = uname().release().to_string_lossy().into_owned();
    let Ok(bytes) = fs::read(drivers.join(format!("{kernel}.ko"))) else {
        return Some(format!("there is none for its kernel {kernel} (on the host: kmod/build.sh {kernel})"));
    };
    match init_module(&bytes, c"") {
        Ok(()) | Err(Errno::EXIST) => None,
        Err(why) => Some(format!("vshmem.ko could not be loaded: {why}")),
    }
}

/// Links files of the seed at the host's paths at which programs look for them, where nothing is in the way.
fn link(seed: &Path, links: &str) -> Result<()> {
    for line in links.lines() {
        let Some((name, path)) = line.split_once(' ') else { continue };
        let path = Path::new(path);
        if path.exists() {
            continue;
        }
        // A link that leads nowhere.
        let _ = fs::remove_file(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))
            .and_then(|()| symlink(seed.join(name), path))
            .explain(|| format!("could not make {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_seed_appear_where_programs_look_for_them() {
        let root = std::env::temp_dir().join(format!("vshmem-links-of-seed-{}", std::process::id()));
        let seed = root.join("seed");
        fs::create_dir_all(&seed).unwrap();
        fs::write(seed.join("a"), "of the seed").unwrap();
        fs::write(root.join("there"), "of the image").unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        let at = |name: &str| root.join(name).display().to_string();
        let links = format!("a {}\na {}\na {}\n", at("in/it"), at("there"), at("dangling"));
        link(&seed, &links).unwrap();
        // Again, as after a restart of the agent.
        link(&seed, &links).unwrap();
        let said = |name: &str| fs::read_to_string(root.join(name)).unwrap();
        assert_eq!([said("in/it"), said("dangling")], ["of the seed", "of the seed"]);
        assert_eq!(said("there"), "of the image");
        fs::remove_dir_all(&root).unwrap();
    }
}
