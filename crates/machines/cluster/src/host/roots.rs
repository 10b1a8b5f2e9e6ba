//! The root that a cluster's machines have as a disk: whether they have one, and its server, which they
//! share.

use vshmem_base::error::{error, Result};
use vshmem_base::lock::Lock;
use vshmem_hypervisor::boot::image::Image;
use vshmem_hypervisor::boot::software::Software;
use vshmem_hypervisor::launcher::options::{ClusterOptions, RootKind};
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_hypervisor::shared::root_server::{self, Root};
use vshmem_hypervisor::state::machine::{state, MachineState};
use vshmem_hypervisor::state::record::{Machine, Record};

/// The root that machines of these options have as a disk, which nobody serves yet; none if they have none.
pub fn of(
    launcher: &dyn Launcher,
    options: &ClusterOptions,
    software: &Software,
    report: &mut dyn FnMut(&str),
) -> Option<Root> {
    let has_host = options.machines.iter().any(|machine| machine.image == Image::Host);
    if options.root != RootKind::Erofs || !has_host {
        return None;
    }
    let why = match software.kernel.disk {
        _ if !launcher.gives_root_disk() => format!("{} gives machines no such disk", launcher.facts().name),
        // Of a package, only the modules that are known are kept.
        None => format!(
            "the kernel {} has no EROFS, or no disks (if an older Vshmem has downloaded it: remove {})",
            software.kernel.version,
            software.kernel.image.parent().unwrap_or(&software.kernel.image).display()
        ),
        Some(_) => return Some(Root::default()),
    };
    report(&format!("machines see the host's files by 9p, and not as a disk: {why}"));
    None
}

/// Sees to it that the root of a cluster's machines is served, if they have one as a disk. What machines have
/// that run stays as it was; without any, it is made of what the host has now.
pub fn ensure(record: &mut Record, report: &mut dyn FnMut(&str)) -> Result<()> {
    let Some(root) = record.root.clone() else { return Ok(()) };
    let runs = |machine: &Machine| machine.image == Image::Host && is_running(record, machine);
    let has_machines = !root.id.is_empty() && record.machines.iter().any(runs);
    match root.is_served() {
        true if has_machines => return Ok(()),
        // It has what the host had.
        true => root.end(),
        false => (),
    }
    let (served, guard, said) = root_server::start(&record.name, &record.shares, root.user, !has_machines)?;
    if has_machines && served.id != root.id {
        served.end();
        return Err(error!(
            "what the machines of {} have of this host can't be served any more",
            record.name
        )
        .hint(format!("Restart all of them together: vshmem restart -c {} NAME...", record.name)));
    }
    report(&match has_machines {
        true => "the server of the machines' root had ended, and runs again".into(),
        false => format!("machines have this system as it is now, on a disk: {said}"),
    });
    record.root = Some(served);
    record.write()?;
    guard.keep()
}

/// Starts the server of a cluster's root again, if it has died and machines need it.
pub fn revive(cluster: &str, _lock: &Lock, report: &mut dyn FnMut(&str)) -> Result<()> {
    let Some(mut record) = Record::read(cluster)? else { return Ok(()) };
    match record.machines.iter().any(|machine| is_running(&record, machine)) {
        true => ensure(&mut record, report),
        false => Ok(()),
    }
}

/// Ends the server of a cluster's root.
pub fn end(record: &Record) {
    record.root.iter().for_each(Root::end);
}

fn is_running(record: &Record, machine: &Machine) -> bool {
    state(record, machine) != MachineState::Died && machine.runs.is_some()
}
