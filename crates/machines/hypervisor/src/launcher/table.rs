//! The table of all launchers.

#[cfg(any(test, feature = "fuzz"))]
pub use crate::qemu::fuzz::READERS;
/// Machines that something else has started: so far, one launcher can attach to them.
pub use crate::running::attached;
pub use crate::running::health::clear_attached;

use super::traits::Launcher;
use crate::libvirt::launcher::Libvirt;
use crate::qemu::launcher::Qemu;
use crate::qemu::program::NAME;
use crate::state::record::{Machine, Record};
use crate::xen::launcher::Xen;
use vshmem_session::commands::location::MachineLocation;

/// The launchers that are chosen by their hypervisors; the first one is the default.
pub fn launchers() -> [&'static dyn Launcher; 2] {
    [&Qemu, &Xen]
}

/// The launchers that have a service start machines, each with the hypervisor that those are of.
pub fn services() -> [(&'static str, &'static dyn Launcher); 1] {
    [(NAME, &Libvirt)]
}

/// All launchers that are chosen by their hypervisors.
fn all() -> impl Iterator<Item = &'static dyn Launcher> {
    #[cfg(feature = "contract")]
    let registered = contract::REGISTERED.get().copied();
    #[cfg(not(feature = "contract"))]
    let registered = None;
    launchers().into_iter().chain(registered)
}

/// A launcher of the tests in the table.
#[cfg(feature = "contract")]
mod contract {
    use super::Launcher;
    use std::sync::OnceLock;

    pub static REGISTERED: OnceLock<&'static dyn Launcher> = OnceLock::new();

    /// Adds a launcher to the table of this process; only the first one is.
    pub fn register(launcher: &'static dyn Launcher) {
        REGISTERED.get_or_init(|| launcher);
    }
}
#[cfg(feature = "contract")]
pub use contract::register;

/// The launcher of this hypervisor.
pub fn by_name(name: &str) -> Option<&'static dyn Launcher> {
    all().find(|launcher| launcher.facts().name == name)
}

/// The launcher that has started a cluster's machines.
pub fn of(record: &Record) -> &'static dyn Launcher {
    if record.service.is_some() {
        return services()[0].1;
    }
    let its = |launcher: &&dyn Launcher| {
        let mut all = launcher.facts().accelerators.iter();
        all.any(|(name, _)| *name == record.accel)
    };
    all().find(its).unwrap_or(launchers()[0])
}

/// A machine of a cluster, for commands that are to run there.
pub fn location(record: &Record, machine: &Machine) -> MachineLocation {
    let launcher = of(record);
    MachineLocation {
        cluster: record.name.clone(),
        name: machine.name.clone(),
        channels: record.channels,
        reports_hang_up: launcher.facts().reports_hang_up,
        pool: launcher.pool_name(&record.name),
        shares: record.shares.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vshmem_guest::hypervisor::table::find;

    #[test]
    fn machines_know_the_hypervisor_of_each_launcher() {
        let of_services = services().map(|(_, launcher)| launcher);
        for launcher in launchers().into_iter().chain(of_services) {
            let name = launcher.facts().name;
            assert!(find(name).is_some(), "the guest's table of hypervisors lacks the launcher {name}");
        }
    }
}
