//! The sockets at which the back end serves machines' pools.

use std::path::PathBuf;
use vshmem_base::error::Result;
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_hypervisor::state::record::{Granted, Record};

/// Makes the back end serve pools of a machine; returns a socket for each that it serves. It stops serving a
/// pool with the last machine that has it.
pub fn sockets(launcher: &dyn Launcher, record: &Record, pools: &[Granted]) -> Result<Vec<Option<PathBuf>>> {
    let serve = |pool: &Granted| match record.doorbell && pool.doorbell {
        true => launcher.serve(record, &pool.path).map(Some),
        false => Ok(None),
    };
    pools.iter().map(serve).collect()
}
