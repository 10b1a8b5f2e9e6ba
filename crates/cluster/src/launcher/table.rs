//! The launchers that there are.

/// Machines that others have started: so far, one launcher can adopt them.
pub use super::qemu::attached;
#[cfg(any(test, feature = "fuzz"))]
pub use super::qemu::fuzz::READERS;
pub use super::qemu::health::clear_attached;

use super::qemu::launcher::Qemu;
use super::qemu::target::Target;
use super::traits::{Guest, Launcher};
use super::xen::launcher::Xen;
use crate::error::Result;
use crate::state::record::Record;

/// The launchers; the first one is what machines are started by if nothing else is said.
pub fn launchers() -> [&'static dyn Launcher; 2] {
    [&Qemu, &Xen]
}

/// The launcher of this name.
pub fn by_name(name: &str) -> Option<&'static dyn Launcher> {
    launchers()
        .into_iter()
        .find(|launcher| launcher.name() == name)
}

/// The launcher that has started a cluster's machines.
pub fn of(record: &Record) -> &'static dyn Launcher {
    let its = |launcher: &&dyn Launcher| {
        let mut all = launcher.accelerators().iter();
        all.any(|(name, _)| *name == record.accel)
    };
    launchers().into_iter().find(its).unwrap_or(launchers()[0])
}

/// The machine's side of the launcher of this name; of the first one, if there is none.
pub fn guest(launcher: &str) -> &'static dyn Guest {
    by_name(launcher).unwrap_or(launchers()[0]).guest()
}

/// The machine of this name, to be granted pools: of the cluster, else an adopted one.
pub fn target(cluster: &str, name: &str) -> Result<Target> {
    Target::find(cluster, name, &|record| of(record).check_grants(name))
}
