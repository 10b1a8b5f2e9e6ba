//! The hypervisor as its machines see it: its file transport, its channels for commands, its pools.

pub mod qemu;
pub mod table;
mod xen;

use std::path::PathBuf;
use vshmem_base::error::Result;

/// A hypervisor, as its machines see it.
pub trait Hypervisor: Sync {
    /// The transport of the host's file tree: the option `trans` of 9p.
    fn file_transport(&self) -> &'static str;

    /// The device files of the channels for commands, once there are `count`.
    fn channels(&self, count: usize) -> Result<Vec<PathBuf>>;

    /// Has the kernel find the devices of so many pools, which have come since it has booted.
    fn find_pools(&self, _count: usize) -> Result<()> {
        Ok(())
    }

    /// Permits this user to map the pools that are there from the start.
    fn set_pool_owner(&self, uid: u32) -> Result<()>;

    /// Records why the driver could not be loaded, for the front end to report.
    fn driver_failed(&self, _why: &str) {}

    /// The arguments of this program that start the front end.
    fn front_end(&self, uid: u32) -> Vec<String>;
}
