//! The probe whether machines run on KVM: it boots one. That `/dev/kvm` can be opened says little: nested
//! virtualization may fail with any stock kernel.

use super::accel::Accel;
use super::options::{Beginning, Loaded, MachineSpec};
use super::placed::Backing;
use super::program::{self, NAME};
use crate::boot::initramfs;
use crate::boot::kernel::Kernel;
use crate::shared::{logs, sandbox};
use crate::state::ports::Ports;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;
use vshmem_base::directories::{boot_id, cache_directory, runtime_directory};
use vshmem_base::error::{Explain, Result};
use vshmem_base::interrupt;
use vshmem_base::user::{self, uid};
use vshmem_guest::settings::{Settings, PROBE_MARK};

/// Time that a machine may take to boot on KVM. It takes about a second.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Chooses the accelerator by what the user wants and what works, and describes the choice.
pub fn choose(
    wanted: Option<Accel>,
    kernel: &Kernel,
    report: &mut dyn FnMut(&str),
) -> Result<(Accel, &'static str)> {
    match wanted {
        Some(Accel::Kvm) => Ok((Accel::Kvm, "with KVM")),
        Some(Accel::Tcg) => Ok((Accel::Tcg, "with TCG")),
        None => detect(kernel, report),
    }
}

fn detect(kernel: &Kernel, report: &mut dyn FnMut(&str)) -> Result<(Accel, &'static str)> {
    match File::options().read(true).write(true).open("/dev/kvm") {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Ok((Accel::Tcg, "with TCG (there is no /dev/kvm)"))
        }
        Err(_) => Ok((Accel::Tcg, "with TCG (you may not use /dev/kvm: is the group kvm yours?)")),
        Ok(_) => Ok(match cached(kernel, report)? {
            Accel::Kvm => (Accel::Kvm, "with KVM"),
            Accel::Tcg => (Accel::Tcg, "with TCG (no machine boots on KVM here)"),
        }),
    }
}

/// The verdict of an earlier probe with this kernel in this boot of the host, or of one made now.
fn cached(kernel: &Kernel, report: &mut dyn FnMut(&str)) -> Result<Accel> {
    let runtime = runtime_directory()?;
    let file = std::env::temp_dir().join(format!("vshmem-accel-{}", uid()));
    let file = match cache_directory() {
        Ok(cache) => cache.join("accel"),
        Err(_) => file,
    };
    let question = format!("{} {}", boot_id(), kernel.version);
    if let Some(answer) = read_verdict(&file, &question) {
        return Ok(answer);
    }
    report("trying whether a machine boots on KVM");
    let directory = runtime.join(format!(".probe-{}", std::process::id()));
    fs::create_dir_all(&directory).explain(|| format!("making {}", directory.display()))?;
    let result = probe(kernel, &directory);
    let _ = fs::remove_dir_all(&directory);
    let accel = if result? { Accel::Kvm } else { Accel::Tcg };
    let _ = fs::write(&file, format!("{question}\n{}\n", accel.name()));
    Ok(accel)
}

fn read_verdict(file: &Path, question: &str) -> Option<Accel> {
    parse_verdict(&fs::read_to_string(file).ok()?, question)
}

pub(crate) fn parse_verdict(text: &str, question: &str) -> Option<Accel> {
    let mut lines = text.lines();
    (lines.next()? == question).then_some(())?;
    Accel::named(lines.next()?)
}

/// Boots a machine on KVM whose first process reports that and turns it off.
fn probe(kernel: &Kernel, directory: &Path) -> Result<bool> {
    let initramfs = directory.join("initramfs");
    initramfs::write(&initramfs, &initramfs::build([].iter())?)?;
    let (name, launcher) = ("probe".into(), NAME.into());
    let settings = Settings { name, uid: uid(), launcher, probe: true, ..Settings::default() };
    let user = (uid() == 0).then(|| user::unused(&BTreeSet::new())).transpose()?;
    let spec = MachineSpec {
        beginning: Beginning::Boot,
        settings: &settings,
        title: "vshmem-probe".into(),
        accel: Accel::Kvm,
        cpus: 1,
        memory: 256 << 20,
        placement: None,
        devices: &[],
        backing: Backing::default(),
        kernel: Some(Loaded {
            image: sandbox::readable(&kernel.image, user, directory)?,
            initramfs: Some(initramfs),
            parameters: format!("{} {}", Accel::Kvm.kernel_parameters(), settings.to_command_line()),
        }),
        disks: None,
        root: None,
        directory,
        pools: vec![],
        later_pools: vec![],
        ports: Ports { spare: 0, largest: 0 },
        links: None,
        uplink: None,
        index: 0,
        user,
    };
    let (process, _guard) = program::start(&spec)?;
    let console = logs::console(directory);
    let said = || fs::read(&console).is_ok_and(|text| contains(&text, PROBE_MARK.as_bytes()));
    let verdict =
        interrupt::wait_for(TIMEOUT, || Ok(if said() { Some(true) } else { (!process.alive()).then(said) }));
    process.end(Duration::ZERO);
    Ok(verdict?.unwrap_or(false))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_holds_for_its_boot_and_kernel_only() {
        let file = "boot-1 6.1\ntcg\n";
        assert_eq!(parse_verdict(file, "boot-1 6.1"), Some(Accel::Tcg));
        assert_eq!(parse_verdict(file, "boot-2 6.1"), None);
        assert_eq!(parse_verdict("boot-1 6.1\nmaybe\n", "boot-1 6.1"), None);
        assert_eq!(parse_verdict("", "boot-1 6.1"), None);
    }
}
