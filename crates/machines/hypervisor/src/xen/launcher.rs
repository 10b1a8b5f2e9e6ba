//! The launcher `xen`.

use super::config::{name_of, Config};
use super::{owner, xl};
use crate::boot::image::Image;
use crate::boot::software::Software;
use crate::boot::{driver, vmlinux};
use crate::launcher::grants::Grants;
use crate::launcher::options::{ClusterOptions, Progress, Refusal, RefusedOption};
use crate::launcher::starting::settings;
use crate::launcher::traits::{Facts, Launcher, StartOptions, Started};
use crate::running::Running;
use crate::shared::log;
use crate::shared::network::Link;
use crate::state::machine::Health;
use crate::state::ports::Ports;
use crate::state::record::{Machine, Record};
use std::fs;
use std::path::{Path, PathBuf};
use vshmem_base::directories::{channel_socket, private_directory};
use vshmem_base::error::{error, Error, Explain, Result};

/// The accelerator, as in records.
pub const NAME: &str = "xen";
const MODULES: &str = include_str!("../../../../../images/modules-xen.txt");
/// The driver of dom0 and the domains.
const DRIVER: &str = "vshmem_xen";
/// Channels of each machine. Linux supports eight consoles: the first one, the one that libxl breaks, and
/// these.
const CHANNELS: usize = 6;

/// The launcher of Xen's domains.
pub struct Xen;

impl Launcher for Xen {
    fn facts(&self) -> &'static Facts {
        &Facts {
            name: NAME,
            about:
                "Xen, as root in dom0, with the driver vshmem_xen.ko there: domains that xl starts",
            needs: "On Xen root starts domains by xl, with a pool of 16M, and without a network; see docs/xen.md.",
            boot_hint: "More memory (--memory 1G) or another kernel (--kernel) may help; see also /var/log/xen.",
            accelerators: &[(NAME, "")],
            transports: &["xen"],
            channels: CHANNELS,
            pool_size: 16 << 20,
            // There is none between domains so far.
            network: false,
            needs_back_end: false,
            can_pin: false,
            gives_devices: false,
            starts_at_once: false,
            reports_hang_up: false,
            has_own_memory: true,
        }
    }

    fn check_host(&self) -> Result<()> {
        check_host()
    }

    fn check(&self, options: &ClusterOptions) -> std::result::Result<(), Refusal> {
        let unfit = [
            (options.pools.len() > 1, "further pools (--pool)"),
            (options.shares.iter().any(|share| share.ends_with(":rw")), "--share DIR:rw"),
            (options.ports != Ports::DEFAULT, "--spare-pools and --largest-pool"),
            (options.network, "--net"),
            (options.doorbell.is_some(), "--doorbell and --no-doorbell"),
            (options.accel.is_some(), "--accel"),
            (options.machines.iter().any(|it| it.image != Image::Host), "images"),
        ];
        match unfit.iter().find(|(given, _)| *given) {
            Some((_, what)) => {
                Err(Refusal::new(RefusedOption::Other, format!("{what} can't be given for machines on Xen")))
            }
            None => Ok(()),
        }
    }

    fn grants(&self, machine: &str) -> Result<&'static dyn Grants> {
        let what = format!("{machine} is a domain of Xen, which gets no further pools from vshmem grant");
        Err(Error::new(what)
            .hint("Give it one with: vshmem xen own. In the machine, it is attached by itself."))
    }

    fn software(
        &self,
        _: Option<&str>,
        kernel: Option<&Path>,
        driver: &driver::Choice,
        _: Option<&str>,
        report: &mut dyn FnMut(&str),
    ) -> Result<Software> {
        let mut software = Software::find(kernel, MODULES, (driver, DRIVER), report)?;
        if software.driver.is_none() {
            let version = &software.kernel.version;
            return Err(error!("there is no {DRIVER}.ko for the machines' kernel {version}, which they need on Xen")
                .hint("Install it, as root: make -C kmod dkms-install. Or build it by kmod/build.sh --xen, and name it with --driver."));
        }
        // xl may lack the memory to unpack it.
        if let Some(unpacked) = vmlinux::unpacked(&software.kernel, report) {
            software.image = unpacked;
        }
        (software.accel, software.description) = (NAME, "as domains of Xen");
        Ok(software)
    }

    fn pool_name(&self, cluster: &str) -> String {
        owner::pool_name(cluster)
    }

    fn pool_path(&self, cluster: &str) -> PathBuf {
        owner::pool_path(cluster)
    }

    /// The pool's name: domains only find it by that.
    fn pool_reference(&self, record: &Record) -> String {
        owner::pool_name(&record.name)
    }

    fn create_pool(&self, record: &mut Record) -> Result<()> {
        owner::start(record)
    }

    fn remove_pool(&self, record: &Record) -> Result<()> {
        owner::end(record)
    }

    fn start(
        &self,
        record: &Record,
        index: usize,
        options: &StartOptions,
        _: Option<Vec<Link>>,
        _: &mut dyn FnMut(Progress),
    ) -> Result<Started> {
        let directory = record.machine_directory(&record.machines[index])?;
        let root = directory.join("root");
        private_directory(&root)?;
        let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").explain(|| "making a UUID".into())?;
        let config = Config {
            name: name_of(record, &record.machines[index]),
            uuid: uuid.trim(),
            kernel: &options.software.image,
            initramfs: options.initramfs.of(&Image::Host),
            settings: settings(&Xen, record, index, false).to_command_line(),
            cpus: record.machines[index].cpus,
            memory: record.machines[index].memory,
            root,
            shares: &record.shares,
            channels: (0..record.channels).map(|channel| channel_socket(&directory, channel)).collect(),
        };
        let domain = xl::create(&config, &directory)?;
        Ok(Started { running: Running::Domain(domain), keep: Box::new(|| Ok(())), populated: None })
    }

    fn has_pool(&self, record: &Record, machine: &Machine) -> Result<bool> {
        if !record.owner.is_some_and(|owner| owner.alive()) {
            return Err(owner::ended(record));
        }
        Ok(has_attached(record, machine))
    }

    fn health(&self, record: &Record, machine: &Machine) -> Health {
        let joined = has_attached(record, machine);
        let pools = machine.pools.iter().filter(|_| joined);
        Health { pools: pools.map(|pool| pool.name.clone()).collect(), front_end: joined, no_driver: None }
    }

    /// The last lines of the console, if xenconsoled is configured to write a log.
    fn last_output(&self, record: &Record, machine: &Machine) -> String {
        self.console(record, machine).map(|log| log::tail(&log)).unwrap_or_default()
    }

    fn console(&self, record: &Record, machine: &Machine) -> Result<PathBuf> {
        Ok(format!("/var/log/xen/console/guest-{}.log", name_of(record, machine)).into())
    }
}

/// An error unless this is root in dom0, with what is needed there.
fn check_host() -> Result<()> {
    // SAFETY: takes nothing, and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Error::new("only root starts domains of Xen").hint("Call vshmem by sudo."));
    }
    let capabilities = fs::read_to_string("/proc/xen/capabilities").unwrap_or_default();
    if !capabilities.contains("control_d") {
        return Err(Error::new("this is not domain 0 of Xen, from which domains are started")
            .hint("Boot this computer with Xen, or start machines of QEMU: without --hypervisor. In a domain, vshmem xen join attaches pools."));
    }
    if !xl::is_installed() {
        return Err(Error::new("there is no xl on the PATH")
            .hint("Install Xen's tools, for instance: sudo apt-get install xen-utils"));
    }
    if !Path::new("/dev/vshmem-xen-control").exists() {
        return Err(error!("the driver {DRIVER}.ko is not loaded here")
            .hint("Install it, as root: make -C kmod dkms-install. Then: modprobe vshmem_xen"));
    }
    Ok(())
}

fn has_attached(record: &Record, machine: &Machine) -> bool {
    match &machine.runs {
        Some(Running::Domain(domain)) => domain.has_attached(&owner::pool_name(&record.name)),
        _ => false,
    }
}
