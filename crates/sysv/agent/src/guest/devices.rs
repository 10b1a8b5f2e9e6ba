//! The devices by which a machine is given pools, as the front end uses them.

use super::protocol::DriverStatus;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::Path;
use vshmem_transport::given::Address;
use vshmem_transport::{PoolRef, Transport};

/// The devices by which a transport gives pools to a machine.
pub trait Devices {
    /// The transport.
    fn transport(&self) -> &'static dyn Transport;

    /// Has the kernel make the device of a pool that the host says lies at this address, where it does not by
    /// itself.
    ///
    /// # Errors
    /// The kernel refuses.
    fn make(&self, _address: Address) -> io::Result<()> {
        Ok(())
    }

    /// Whether a driver is loaded that has not bound this pool's device yet.
    fn is_driver_pending(&self, pool: &PoolRef) -> bool;

    /// Whether a driver has bound this pool's device.
    fn has_driver(&self, pool: &PoolRef) -> bool;

    /// Lets this user map a pool, and the group `vshmem`; no other but root.
    ///
    /// # Errors
    /// The kernel refuses.
    fn set_owner(&self, pool: &PoolRef, owner: u32) -> io::Result<()>;

    /// The state of the driver.
    fn driver(&self) -> DriverStatus;
}

/// The group whose users may map every pool of the machine, as by the udev rule for machines without a front
/// end.
const GROUP: &str = "vshmem";

/// Gives a device file to a user, and to the group `vshmem` if the machine has it.
///
/// # Errors
/// The kernel refuses.
pub fn give(file: &Path, owner: u32) -> io::Result<()> {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let group = gid(&groups);
    chown(file, Some(owner), group)?;
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    fs::set_permissions(file, Permissions::from_mode(mode))
}

/// The number of [`GROUP`] in a group(5) file.
fn gid(groups: &str) -> Option<u32> {
    let group = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        fields.nth(1).filter(|_| name == GROUP)?.parse().ok()
    };
    groups.lines().find_map(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found() {
        assert_eq!(gid("root:x:0:\nvshmem:x:998:lw\n"), Some(998));
        assert_eq!(gid("root:x:0:\nvshmemx:x:9:\n# vshmem:x:1:\n"), None);
        assert_eq!(gid("vshmem\nvshmem:x\n"), None);
    }
}
