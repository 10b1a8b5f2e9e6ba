//! What the front end asks of the devices by which a machine is given pools.

use super::protocol::DriverStatus;
use std::io;
use vshmem_transport::{PoolRef, Transport};

/// The devices by which a transport gives pools to a machine.
pub trait Devices {
    /// The transport.
    fn transport(&self) -> &'static dyn Transport;

    /// Whether a driver is loaded that has not bound this pool's device yet.
    fn is_driver_pending(&self, pool: &PoolRef) -> bool;

    /// Whether a driver has bound this pool's device.
    fn has_driver(&self, pool: &PoolRef) -> bool;

    /// Lets this user map a pool, and no other but root.
    ///
    /// # Errors
    /// The kernel refuses.
    fn set_owner(&self, pool: &PoolRef, owner: u32) -> io::Result<()>;

    /// The state of the driver.
    fn driver(&self) -> DriverStatus;
}
