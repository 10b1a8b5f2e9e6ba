//! The table of hypervisors.

use super::qemu::Qemu;
use super::xen::Xen;
use super::Hypervisor;

/// The hypervisors, each with the launchers that start its machines. The first one is the default.
const ALL: [(&[&str], &dyn Hypervisor); 2] = [(&["qemu", "libvirt"], &Qemu), (&["xen"], &Xen)];

/// The hypervisor of machines that this launcher starts.
pub fn find(launcher: &str) -> Option<&'static dyn Hypervisor> {
    ALL.iter().find(|(launchers, _)| launchers.contains(&launcher)).map(|(_, hypervisor)| *hypervisor)
}

/// The hypervisor of a machine whose settings name this launcher: the default for one that is not known,
/// which may be newer than this machine's program.
pub fn of(launcher: &str) -> &'static dyn Hypervisor {
    find(launcher).unwrap_or(ALL[0].1)
}
