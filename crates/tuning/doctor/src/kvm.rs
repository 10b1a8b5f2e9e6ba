//! KVM's counts of a machine, in debugfs.

use crate::system::{System, Unseen};

const DEBUG: &str = "sys/kernel/debug/kvm";

/// True if KVM's counts are there. A machine that has none then is not KVM's.
///
/// # Errors
/// Only root may read them.
pub fn counts(system: &System) -> Result<bool, Unseen> {
    // A file in a directory that one may not read seems not to exist.
    system.names("sys/kernel/debug")?;
    Ok(system.path(DEBUG).is_dir())
}

/// A count of a machine; none if KVM does not count it. Its directory is called PID-DESCRIPTOR.
///
/// # Errors
/// Only root may read it.
pub fn count(system: &System, pid: u32, name: &str) -> Result<Option<u64>, Unseen> {
    let own = format!("{pid}-");
    let mut sum = None;
    for directory in system.names(DEBUG)?.iter().filter(|directory| directory.starts_with(&own)) {
        let text = system.text(&format!("{DEBUG}/{directory}/{name}"))?.unwrap_or_default();
        if let Ok(count) = text.trim().parse::<u64>() {
            *sum.get_or_insert(0) += count;
        }
    }
    Ok(sum)
}
