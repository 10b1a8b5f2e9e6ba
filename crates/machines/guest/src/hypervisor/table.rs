//! The table of hypervisors.

use super::qemu::Qemu;
use super::xen::Xen;
use super::Hypervisor;

/// The hypervisors, each with the launchers that start its machines. The first one is the default.
const ALL: [(&[&str], &dyn Hypervisor); 2] = [(&["qemu", "libvirt"], &Qemu), (&["xen"], &Xen)];

/// The hypervisor of a machine that this launcher has started.
pub fn of(launcher: &str) -> &'static dyn Hypervisor {
    let its = ALL.iter().find(|(launchers, _)| launchers.contains(&launcher));
    its.unwrap_or(&ALL[0]).1
}
